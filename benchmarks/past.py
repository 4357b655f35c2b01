"""What memory costs: training with cues beside training without, fitting the recall memory, and looking up the past."""

import dataclasses

import numpy as np

from longspan import data as data_room
from longspan import recipes
from longspan.data.lookup import look_up
from longspan.data.music import MusicData
from longspan.memory.recall import Recall
from longspan.training.setup import initial_model

from . import ours
from .contest import now, ratios, seconds_per_update

RECIPE = "nade:sgd"
CUES = ("none", "recall", "recall+meter")
LENGTHS = (1_000, 10_000, 100_000)


def _songs(name: str, cues: str = "none", dropout: float = 0.0) -> MusicData:
    found = data_room.load(name).with_cues(cues, dropout)
    assert isinstance(found, MusicData)
    return found


def training(name: str) -> dict:
    """Seconds of an update with each kind of cues, over whole epochs with the arrangement of their chunks."""
    plain, contestants = recipes.settings(RECIPE, name), {}
    for cues in CUES:
        config = dataclasses.replace(plain, cues=cues)
        contestants[cues] = ours.training(config, _songs(name, cues, config.cue_dropout), fresh=True)
    seconds = seconds_per_update(contestants)
    return {"seconds": seconds, "ratios": ratios(seconds, "none")}


def fitting(name: str) -> dict:
    """Seconds in which the memory is fitted to a network's validation split and scores its test split, compiled."""
    config, data = recipes.settings(RECIPE, name), _songs(name)
    model = initial_model(config, data.record, data.base_rates())
    Recall.fitted(model, data).recollect(model, data, "test")
    began = now()
    memory = Recall.fitted(model, data)
    fitted = now()
    memory.recollect(model, data, "test")
    frames = {split: sum(len(song) for song in data.splits[split]) for split in ("valid", "test")}
    return {"fit_seconds": fitted - began, "score_seconds": now() - fitted, "frames": frames}


def looking_up() -> dict[str, float]:
    """Microseconds a step in which the past of a sequence is looked up, by its length; a theme comes over and over."""
    random = np.random.default_rng(0)
    found = {}
    for length in LENGTHS:
        theme, noise = random.integers(0, 50, 500), random.integers(0, 50, length)
        ids = np.where(random.random(length) < 0.1, noise, np.resize(theme, length)).astype(np.int32)
        began = now()
        look_up(ids, 8)
        found[str(length)] = 1e6 * (now() - began) / length
    return found


def measure() -> dict:
    """By data set."""
    names = ("jsb", "nottingham")
    return {
        "recipe": RECIPE,
        "training": {name: training(name) for name in names},
        "memory": {name: fitting(name) for name in names},
        "microseconds_a_step_of_look_up": looking_up(),
    }


def table(figures: dict) -> list[list[str]]:
    """Times as slow as without cues, and seconds of the memory."""
    rows = [["", *figures["training"]]]
    for cues in CUES[1:]:
        times = [found["ratios"][cues] for found in figures["training"].values()]
        rows.append([f"training with cues {cues}", *(f"{each:.2f}x" for each in times)])
    for name in ("fit", "score"):
        seconds = [found[f"{name}_seconds"] for found in figures["memory"].values()]
        rows.append([f"{name} the recall memory", *(f"{each:.1f} s" for each in seconds)])
    return rows
