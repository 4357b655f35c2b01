"""The protocol of the comparison: the arms, the settings drawn alike for all of them, and the budgets.

An arm is a recipe of the paper in the paper's own regime: no dropout, no averaged weights, one sequence at a time. Slot
`n` draws the same nuisance settings, initial weights and song order for every arm; only settings specific to a letter
are drawn in addition. So two arms of one slot differ only by the letter.
"""

import dataclasses
import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Annotated

import msgspec

from longspan import recipes
from longspan.bounds import Figure
from longspan.config import TrainConfig, as_dict
from longspan.data import TargetKind
from longspan.errors import InputError
from longspan.search.space import Space, parse_space, position

FORMAT = 1

MUSIC_ARMS = ("sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm", "nade:sgd", "nade:sgd+cr", "nade:sgd+crm")
TEXT_ARMS = ("sgd", "sgd+c", "sgd+cl", "sgd+clr")
HESSIAN_FREE_ARMS = ("hf", "nade:hf")
FULL_SET = "sgd+clrm"
ABLATION_ARMS = ("sgd", "sgd+c", "sgd+l", "sgd+r", "sgd+m", FULL_SET, "sgd+lrm", "sgd+crm", "sgd+clm", "sgd+clr")
"""Each letter added to plain descent, and taken from the full set: a study of its own, with all arms it compares."""
KNOWN_ARMS = frozenset((*MUSIC_ARMS, *TEXT_ARMS, *HESSIAN_FREE_ARMS, *ABLATION_ARMS))


MOST_SLOTS = 1000
"""Slots of an arm: the analysis draws some thousands of samples of them."""
SlotCount = Annotated[int, msgspec.Meta(ge=0, le=MOST_SLOTS)]
Updates = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class Budget(msgspec.Struct, frozen=True):
    """The budget of every arm on a data set."""

    slots: SlotCount
    """Slots per arm."""
    updates: Updates
    """Maximum number of updates per slot, the same for every arm of descent."""
    hessian_free_slots: SlotCount = 0
    hessian_free_updates: Updates = 0
    """The same for Hessian-free, whose updates cost some hundreds of times as much."""


BUDGETS = {
    "jsb": Budget(40, 36_450, 12, 100),
    "piano-midi": Budget(24, 48_120, 12, 100),
    "nottingham": Budget(24, 79_760),
    "musedata": Budget(12, 81_570),
    "ptb-words": Budget(8, 180_000),
    "ptb-chars": Budget(4, 160_000),
}
"""Fixed before the counted runs; about 30, 60, 90, 120, 180 and 600 seconds of one core per slot."""
COUNTED_SEED, PILOT_SEED = 2012, 7
"""Seeds of the draws: for the runs that count, and for pilot runs that serve to adjust the spaces and are discarded."""

RATE = {"low": 1e-3, "high": 10.0, "log": True}
"""For the mean loss of a chunk. It is the effective rate: with momentum mu the drawn rate is multiplied by (1 - mu)."""
MUSIC_NUISANCES = {
    "learning_rate": RATE,
    "learning_rate_schedule": ["plateau", "plateau", "cosine", "constant"],
    "plateau_epochs": [2, 4],
    "hidden_size": {"low": 100, "high": 400},
    "activation": ["tanh", "sigmoid"],
    "recurrent_scale": {"low": 0.2, "high": 1.2},
    "input_scale": {"low": 0.03, "high": 0.5, "log": True},
    "output_scale": {"low": 0.01, "high": 0.1, "log": True},
}
TEXT_NUISANCES = {
    "learning_rate": RATE,
    "learning_rate_schedule": ["cosine", "rnnlm"],
    "activation": ["tanh", "sigmoid"],
    "recurrent_scale": {"low": 0.5, "high": 5.0, "log": True},
    "input_scale": {"low": 0.05, "high": 2.0, "log": True},
    "output_scale": {"low": 0.01, "high": 0.1, "log": True},
}
NUISANCES: dict[TargetKind, dict] = {
    "frames": MUSIC_NUISANCES,
    "words": TEXT_NUISANCES,
    "characters": TEXT_NUISANCES | {"chunk_length": [50, 150]},
}
LETTER_SETTINGS = {
    "c": {"clip": {"low": 0.1, "high": 100.0, "log": True}},
    "l": {
        "leaky_share": [0.25, 0.5],
        "leak_low": {"low": 0.02, "high": 0.2},
        "leak_high": {"low": 0.02, "high": 0.2},
    },
    "r": {"l1": {"low": 1e-6, "high": 1e-3, "log": True}},
    "m": {"momentum": {"low": 1e-3, "high": 0.95}, "momentum_schedule": ["constant", "ramp"]},
}
HESSIAN_FREE_SETTINGS = {
    "initial_damping": {"low": 0.03, "high": 3.0, "log": True},
    "minimal_damping": {"low": 1e-4, "high": 0.1, "log": True},
    "structural_damping": {"low": 0.01, "high": 1.0, "log": True},
    "cg_iterations": [40, 80, 160],
    "curvature_sequences": [32, 128],
    "block": [250, 1000],
}
NADE_SETTINGS = {"nade_size": {"low": 100, "high": 300}}
NADE_HESSIAN_FREE_SETTINGS = {"pretrain_frames": [0, 20]}
DESCENT_ONLY = ("learning_rate", "learning_rate_schedule", "plateau_epochs")
"""Nuisance settings that Hessian-free does not have."""
HESSIAN_FREE_FIXED = {"optimizer": "hf", "learning_rate_schedule": "constant"}
PRETRAINING_FIXED = {"learning_rate": 0.1, "momentum": 0.9, "clip": 2.0}
"""Settings of the descent that pretrains a NADE on single frames before Hessian-free."""

PATIENCE = 16
"""Validations without improvement after which a slot ends early, keeping its best weights; the same for every arm."""
FIXED: dict[TargetKind, dict] = {
    "frames": {"chunk_length": 100},
    "words": {"chunk_length": 40, "hidden_size": 200, "output": "factored"},
    "characters": {"hidden_size": 500, "output": "softmax"},
}


RECIPE_SLOT = -1
"""Slot number of an arm's shipped recipe, run without dropout and averaging: shown separately, never counted."""
FRESH_SEEDS = 3
"""Number of seeds, used by no slot, with which the slot that validation chose is trained again and scored on test."""


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `count` parts of the slots."""

    number: int = 1
    count: int = 1

    @staticmethod
    def parse(text: str) -> "Shard":
        """Parse a text such as `2/5`."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise InputError(f"a shard is i/N with i from 1 to N, such as 1/2: got {text!r}")
        return Shard(int(number), int(count))

    def has(self, slot: int) -> bool:
        return slot % self.count == self.number - 1


class Definition(msgspec.Struct, frozen=True, dict=True):
    """Everything that determines the result of every slot of every arm on one data set."""

    data: str
    kind: TargetKind
    fingerprint: str
    chunks: dict[str, int]
    """Chunks per epoch by chunk length, which convert a budget of updates into epochs for schedules that count
    epochs."""
    floor: Figure
    """Validation log-likelihood of predicting by the rates of single keys or symbols; the score of a slot that ends
    below it."""
    seed: int = COUNTED_SEED
    arms: tuple[str, ...] = ()
    budget: Budget = Budget(0, 0)
    nuisances: dict = {}
    format: int = FORMAT

    def __post_init__(self) -> None:
        unknown = sorted(set(self.arms) - KNOWN_ARMS)
        if unknown or not self.arms:
            raise ValueError(f"arms cannot be {unknown[0]!r}" if unknown else "there are no arms")
        if len(set(self.arms)) < len(self.arms):
            raise ValueError("an arm is named twice")
        if self.kind not in FIXED:
            raise ValueError(f"methods are not compared on {self.kind}")

    @functools.cached_property
    def identity(self) -> str:
        """Eight hexadecimal digits that differ between definitions whose results must not be mixed."""
        spaces = [{arm: _space(self.nuisances, recipes.parse(arm)) for arm in self.arms}]
        bases = [{arm: _fixed(self.kind, recipes.parse(arm)) for arm in self.arms}]
        decisive = [msgspec.to_builtins(self), spaces, bases]
        return hashlib.sha256(msgspec.json.encode(decisive, order="sorted")).hexdigest()[:8]

    @functools.cached_property
    def _spaces(self) -> dict[str, Space]:
        """The spaces of arms that have been parsed so far."""
        return {}

    def slots_of(self, arm: str) -> int:
        """Number of slots of an arm."""
        return self.budget.hessian_free_slots if recipes.parse(arm).method == "hf" else self.budget.slots

    def tasks(self) -> list[tuple[int, str]]:
        """Every slot of every arm, slot by slot, so that any prefix of the list is a balanced study."""
        most = max(map(self.slots_of, self.arms))
        return [(slot, arm) for slot in range(most) for arm in self.arms if slot < self.slots_of(arm)]

    @property
    def fresh_seeds(self) -> list[int]:
        """Seeds of initial weights and song order that no slot has."""
        return [self.seed * 1000 + 500 + number for number in range(FRESH_SEEDS)]

    @property
    def compares_letters(self) -> bool:
        """Whether the arms are those of the ablations instead of the paper's rows."""
        return FULL_SET in self.arms

    def config_of(self, arm: str, slot: int) -> TrainConfig:
        """The settings of one slot of one arm."""
        recipe = recipes.parse(arm)
        if slot == RECIPE_SLOT:
            shipped = dataclasses.replace(recipes.settings(arm, self.data), dropout=0.0, averaging=0.0)
            return dataclasses.replace(shipped, patience=PATIENCE, **self._limits(recipe, as_dict(shipped)))
        identity = {"recipe": arm, "data": self.data, "seed": self.seed * 1000 + slot}
        base = TrainConfig(**_fixed(self.kind, recipe) | identity)
        if arm not in self._spaces:  # parsing checks all that a space could draw, which is the same for every slot
            self._spaces[arm] = parse_space(_space(self.nuisances, recipe), base)
        drawn = {
            name: dimension.draw(position(self.seed, slot, name), slot) for name, dimension in self._spaces[arm].items()
        }
        if "l" in recipe.letters:
            drawn["leak_low"], drawn["leak_high"] = sorted((drawn["leak_low"], drawn["leak_high"]))
        if "r" in recipe.letters:
            drawn["activation"] = "rectifier"
        if "m" in recipe.letters:
            drawn["learning_rate"] *= 1 - drawn["momentum"]
        return dataclasses.replace(base, **drawn | self._limits(recipe, drawn))

    def _limits(self, recipe: recipes.Recipe, drawn: dict) -> dict:
        """The budget in updates, and in epochs, over which a cosine schedule falls to zero."""
        chunks = self.chunks[str(drawn.get("chunk_length", FIXED[self.kind].get("chunk_length")))]
        if recipe.method == "hf":
            updates = self.budget.hessian_free_updates
            return {"max_updates": updates, "max_epochs": math.ceil(updates / math.ceil(chunks / drawn["block"]))}
        return {"max_updates": self.budget.updates, "max_epochs": math.ceil(self.budget.updates / chunks)}


def define(
    data: str,
    kind: TargetKind,
    fingerprint: str,
    chunks: dict[int, int],
    floor: float,
    *,
    seed: int = COUNTED_SEED,
    ablations: bool = False,
) -> Definition:
    """Define the study of a data set, with all arms of its kind or those of the ablations."""
    return Definition(
        data=data,
        kind=kind,
        fingerprint=fingerprint,
        chunks={str(length): count for length, count in sorted(chunks.items())},
        floor=floor,
        seed=seed,
        arms=ABLATION_ARMS if ablations else arms_of(data, kind),
        budget=BUDGETS[data],
        nuisances=NUISANCES[kind],
    )


def check_data(data: str) -> None:
    """Refuse a data set without a budget."""
    if data not in BUDGETS:
        raise InputError(f"methods are not compared on {data!r}: expected one of {', '.join(BUDGETS)}")


def arms_of(data: str, kind: TargetKind) -> tuple[str, ...]:
    """The arms compared on a data set."""
    if kind != "frames":
        return TEXT_ARMS
    return MUSIC_ARMS + (HESSIAN_FREE_ARMS if BUDGETS[data].hessian_free_slots else ())


def chunk_lengths(kind: TargetKind) -> list[int]:
    """All chunk lengths that slots on a kind of data may have."""
    drawn = NUISANCES[kind].get("chunk_length", [])
    return sorted({*drawn, *([FIXED[kind]["chunk_length"]] if "chunk_length" in FIXED[kind] else [])})


def drawn_settings(definition: Definition, config: TrainConfig) -> dict:
    """The settings that a slot drew, for its line in the results."""
    names = _space(definition.nuisances, recipes.parse(config.recipe))
    return {name: value for name, value in as_dict(config).items() if name in names}


def _fixed(kind: TargetKind, recipe: recipes.Recipe) -> dict:
    """The settings that an arm does not draw; settings not named anywhere keep their defaults."""
    settings = {"clip": "none", "patience": PATIENCE} | FIXED[kind]
    if recipe.output:
        settings["output"] = recipe.output
    if recipe.method == "hf":
        settings |= HESSIAN_FREE_FIXED | (PRETRAINING_FIXED if recipe.output == "nade" else {})
    return settings


def _space(nuisances: dict, recipe: recipes.Recipe) -> dict:
    """The settings that an arm draws: the nuisance settings, and those specific to its letters, output and method."""
    space = dict(nuisances)
    for letter in sorted(recipe.letters):
        space |= LETTER_SETTINGS[letter]
    if recipe.output == "nade":
        space |= NADE_SETTINGS
    if recipe.method == "hf":
        space = {name: value for name, value in space.items() if name not in DESCENT_ONLY} | HESSIAN_FREE_SETTINGS
        space |= NADE_HESSIAN_FREE_SETTINGS if recipe.output == "nade" else {}
    return space
