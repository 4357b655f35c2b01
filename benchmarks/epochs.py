"""Whole epochs of training, as shipped: frames a second on JSB and Nottingham, and seconds of a validation."""

import statistics

import numpy as np

from longspan import data as data_room
from longspan import recipes
from longspan.evaluation import SplitEvaluator
from longspan.training.setup import initial_model

from . import ours
from .contest import now

VALIDATIONS = 3


def epoch(name: str, recipe: str) -> dict:
    """One epoch after one block that compiles."""
    config, data = recipes.settings(recipe, name), data_room.load(name)
    turn = ours.training(config, data)
    chunks = len(ours.ChunkSource(config, data).epoch(0).lengths)
    turn()
    began, done = now(), 0
    while done < chunks:
        done += turn()
    seconds = (now() - began) * chunks / done
    model = initial_model(config, data.record, data.base_rates())
    valid = SplitEvaluator(data, "valid")
    valid.log_likelihood(model)
    validations = []
    for _ in range(VALIDATIONS):
        began = now()
        valid.log_likelihood(model)
        validations.append(now() - began)
    frames = int(np.sum([len(song) for song in data.splits["train"]]))
    return {
        "epoch_seconds": seconds,
        "frames_per_second": frames / seconds,
        "validation_seconds": statistics.median(validations),
    }


def measure() -> dict:
    """By data set and recipe."""
    return {
        f"{recipe} on {name}": epoch(name, recipe)
        for name in ("jsb", "nottingham")
        for recipe in ("sgd+c", "nade:sgd+crm")
    }


def table(figures: dict) -> list[list[str]]:
    """Seconds and frames a second."""
    rows = [["run", "epoch s", "frames/s", "validation s"]]
    for name, found in figures.items():
        rows.append(
            [
                name,
                f"{found['epoch_seconds']:.2f}",
                f"{found['frames_per_second']:,.0f}",
                f"{found['validation_seconds']:.2f}",
            ]
        )
    return rows
