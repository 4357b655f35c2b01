"""Which methods bridge how long a span: the share of seeds that solve a synthetic task, by method and span.

Every method gets the same for every task and span: `TUNING_SLOTS` slots whose shared settings are drawn alike, the best
of which is trained again from `SEEDS` fresh seeds; each run may use the same processor time after its first epoch, in
which everything is compiled. A seed has solved the task if less than one in a hundred of 10,000 test sequences is
wrong.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import jax
import msgspec

from longspan import __version__, recipes
from longspan.arms.protocol import LETTER_SETTINGS, Shard
from longspan.arms.records import Settings, read_together
from longspan.arms.runner import append_line, processor_name
from longspan.bounds import Seconds, Share, Text, Whole
from longspan.config import TrainConfig, as_dict
from longspan.data.synthetic import TASKS, WRONG_SHARE
from longspan.data.tasks import LONGEST_SPAN, TaskData
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.files import explain_disk_errors
from longspan.search.space import parse_space, position
from longspan.training.listeners import Listener
from longspan.training.loop import train
from longspan.training.runs import Run

SPANS = (10, 30, 100, 200)
TUNING_SLOTS, SEEDS = 8, 5
SECONDS = 20.0
"""Processor seconds of one run."""
MOST_DIFFERENT = 100
"""Tasks, spans or methods of a folder of results: each is a table, a column or a row."""
DRAW_SEED = 2012
FIRST_FRESH_SEED = 100
"""Seeds of the runs that count start here; the slots that tune have smaller ones."""

SHARED = {
    "learning_rate": {"low": 1e-3, "high": 1.0, "log": True},
    "input_scale": {"low": 0.03, "high": 1.0, "log": True},
    "output_scale": {"low": 0.03, "high": 0.3, "log": True},
}
"""Drawn alike for all methods; the rate is the effective one, which momentum divides."""
USUAL_START = {"recurrent_init": ["normal", "orthogonal"], "recurrent_scale": {"low": 0.6, "high": 1.4}}
HESSIAN_FREE = {
    "initial_damping": {"low": 0.03, "high": 3.0, "log": True},
    "structural_damping": {"low": 0.03, "high": 3.0, "log": True},
}
LETTERS = LETTER_SETTINGS | {
    "c": {"clip": {"low": 0.1, "high": 10.0, "log": True}},
    "m": {"momentum": {"low": 0.8, "high": 0.99}},
}
FIXED = {
    "hidden_size": 50,
    "lanes": 20,
    "learning_rate_schedule": "constant",
    "patience": 1_000_000,
    "max_epochs": 1_000_000,
}
"""Only a solution or the budget ends a run."""


@dataclass(frozen=True)
class Method:
    """A recipe of the paper, with what may be added to it.

    Attributes:
        recipe: the letters.
        start: settings of the recurrent matrix that are drawn or fixed.
        added: further settings that are drawn or fixed.
    """

    recipe: str
    start: dict = dataclasses.field(default_factory=lambda: dict(USUAL_START))
    added: dict = dataclasses.field(default_factory=dict)

    @property
    def space(self) -> dict:
        """What is drawn, or fixed, for a slot."""
        recipe = recipes.parse(self.recipe)
        own: dict = {}
        for letter in sorted(recipe.letters):
            own |= LETTERS[letter]
        return SHARED | self.start | own | (HESSIAN_FREE if recipe.method == "hf" else {}) | self.added


METHODS = {
    **{recipe: Method(recipe) for recipe in ("sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm", "hf")},
    "sgd+crm, identity": Method("sgd+crm", {"recurrent_init": "identity", "recurrent_scale": 1.0}, {"l1": 0.0}),
    "sgd+cm, neutral": Method("sgd+cm", {"recurrent_init": "orthogonal", "recurrent_scale": "auto"}),
    "sgd+cm, omega": Method("sgd+cm", added={"omega": {"low": 0.01, "high": 10.0, "log": True}}),
    "sgd+clm, time scales": Method(
        "sgd+clm",
        added={"leaky_share": [0.5, 1.0], "leak_low": 0.5, "leak_high": 0.999, "leak_spread": "time-scales"},
    ),
}
"""The paper's rows, then what this package adds to them."""


class Attempt(msgspec.Struct, frozen=True):
    """How one run ended: a slot that tunes, or a fresh seed with the settings of the best slot."""

    task: Text
    span: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_SPAN)]
    method: Text
    stage: Literal["tuning", "seed"]
    number: Whole
    solved: bool
    error_rate: Share
    """Share of wrong sequences: of validation in tuning, of the test split for a seed."""
    seconds: Seconds
    epochs: Whole
    status: Text
    settings: Settings
    version: Text
    processor: Text
    limit: Seconds = SECONDS
    """Processor seconds that the run might use; lines without it are of the usual limit."""

    @property
    def key(self) -> tuple:
        return self.task, self.span, self.method, self.stage, self.number


class BridgingFolder:
    """The results of a study, a line per run; any number of processes may add to a folder, each to its own file."""

    def __init__(self, folder: Path, shard: Shard):
        self.folder = folder
        self.file = folder / f"bridging-{shard.number}of{shard.count}.jsonl"
        with explain_disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, attempt: Attempt) -> None:
        append_line(self.file, msgspec.json.encode(attempt) + b"\n")


def read_attempts(place: Path) -> list[Attempt]:
    """All results in a folder or file, each run once, sorted."""
    files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
    found: dict[tuple, Attempt] = {}
    for attempt in read_together(files, Attempt):
        found.setdefault(attempt.key, attempt)
    for place_in_key, what in enumerate(("task", "span", "method")):
        different = len({key[place_in_key] for key in found})
        if different > MOST_DIFFERENT:
            raise InputError(f"{place} has results of {different} {what}s, more than the {MOST_DIFFERENT} of a table")
    return [found[key] for key in sorted(found)]


def config_of(method: str, task: str, span: int, slot: int) -> TrainConfig:
    """The settings of a slot that tunes a method."""
    recipe = recipes.parse(METHODS[method].recipe)
    base = dataclasses.replace(
        recipes.settings(METHODS[method].recipe, task), span=span, seed=slot, dropout=0.0, averaging=0.0, **FIXED
    )
    space = {name: value for name, value in METHODS[method].space.items() if isinstance(value, dict | list)}
    fixed = {name: value for name, value in METHODS[method].space.items() if name not in space}
    drawn = {
        name: dimension.draw(position(DRAW_SEED, slot, name), slot)
        for name, dimension in parse_space(space, base).items()
    }
    if drawn.get("leak_low", 0) > drawn.get("leak_high", 1):
        drawn["leak_low"], drawn["leak_high"] = drawn["leak_high"], drawn["leak_low"]
    if "m" in recipe.letters:
        drawn["learning_rate"] *= 1 - drawn["momentum"]
    return dataclasses.replace(base, **fixed | drawn)


def run_study(
    folder: BridgingFolder,
    tasks: list[str],
    *,
    spans: tuple[int, ...] = SPANS,
    methods: tuple[str, ...] = (),
    shard: Shard | None = None,
    slots: int = TUNING_SLOTS,
    seeds: int = SEEDS,
    seconds: float = SECONDS,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Attempt]:
    """Run what has no result yet, by method, task and span; yield each run as it ends."""
    cells = [(task, span, method) for span in spans for task in tasks for method in _known(methods)]
    for number, cell in enumerate(cells):
        if shard is not None and not shard.has(number):
            continue
        data = TaskData(cell[0], cell[1])
        ended = {attempt.key: attempt for attempt in read_attempts(folder.folder)}
        _refuse_other_limits(folder.folder, ended, seconds)
        for key in _keys_of(cell, slots, seeds):
            if key in ended:
                continue
            attempt = _attempt(_config_for(key, list(ended.values())), data, key, seconds, interrupted)
            if attempt is None:
                return
            ended[key] = attempt
            folder.add(attempt)
            yield attempt


def _refuse_other_limits(folder: Path, ended: dict[tuple, Attempt], seconds: float) -> None:
    """Methods are compared at equal time only."""
    others = sorted({attempt.limit for attempt in ended.values()} - {seconds})
    if others:
        raise InputError(
            f"{folder} has runs of {others[0]:g} s, asked for {seconds:g} s: give another folder, or the same seconds",
            fields=["seconds"],
        )


def _keys_of(cell: tuple[str, int, str], slots: int, seeds: int) -> list[tuple]:
    """The runs of a method at a span: the slots that tune it, then its seeds."""
    tuning = [(*cell, "tuning", number) for number in range(slots)]
    return tuning + [(*cell, "seed", number) for number in range(seeds)]


def _config_for(key: tuple, ended: list[Attempt]) -> TrainConfig:
    task, span, method, stage, number = key
    if stage == "tuning":
        return config_of(method, task, span, number)
    best = best_slot(ended, task, span, method)
    return dataclasses.replace(config_of(method, task, span, best.number), seed=FIRST_FRESH_SEED + number)


def best_slot(attempts: list[Attempt], task: str, span: int, method: str) -> Attempt:
    """The slot that solved validation first, or came closest to it."""
    slots = [each for each in attempts if each.key[:4] == (task, span, method, "tuning")]
    return min(slots, key=lambda each: (not each.solved, each.seconds if each.solved else each.error_rate, each.number))


@dataclass(frozen=True)
class Bridged:
    """What a method reached at a span: seeds that solved the task, of how many, and their median seconds."""

    task: Text
    span: Whole
    method: Text
    solved: int
    seeds: int
    slots_solved: int
    seconds: float | None


def summarize(attempts: list[Attempt]) -> list[Bridged]:
    """The share of seeds that solved each task, for every method and span that has any."""
    order = {method: number for number, method in enumerate(METHODS)}
    cells: dict[tuple, list[Attempt]] = {}
    for each in attempts:
        cells.setdefault(each.key[:3], []).append(each)
    found = []
    for task, span, method in sorted(cells, key=lambda cell: (cell[0], order.get(cell[2], math.inf), cell[2], cell[1])):
        own = cells[task, span, method]
        seeds = [each for each in own if each.stage == "seed"]
        if not seeds:
            continue
        times = sorted(each.seconds for each in seeds if each.solved)
        slots = sum(each.solved for each in own if each.stage == "tuning")
        median = times[len(times) // 2] if times else None
        found.append(Bridged(task, span, method, len(times), len(seeds), slots, median))
    return found


def _known(methods: tuple[str, ...]) -> tuple[str, ...]:
    for method in methods:
        if method not in METHODS:
            raise InputError(f"unknown method {method!r}: expected some of {'; '.join(METHODS)}", fields=["methods"])
    return methods or tuple(METHODS)


def check_tasks(tasks: tuple[str, ...]) -> None:
    """Refuse names that are no synthetic tasks."""
    for task in tasks:
        if task not in TASKS:
            raise InputError(f"unknown task {task!r}: expected some of {', '.join(TASKS)}")


class _Clock(Listener):
    """Processor time since the first epoch, in which everything is compiled, and the number of epochs since then."""

    def __init__(self):
        self.began: float | None = None
        self.epochs = 0

    def on_epoch(self, record: dict, seconds: float) -> None:
        del record, seconds
        self.epochs += 1
        if self.began is None:
            self.began = time.process_time()

    @property
    def seconds(self) -> float:
        return 0.0 if self.began is None else time.process_time() - self.began


def _attempt(
    config: TrainConfig, data: TaskData, key: tuple, seconds: float, interrupted: Callable[[], bool]
) -> Attempt | None:
    """Train until solved or for that much time; None if stopped from outside."""
    clock = _Clock()
    with TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config, data.record, {})
        outcome = train(run, data, listeners=[clock], interrupted=lambda: clock.seconds > seconds or interrupted())
    spent = clock.seconds
    if interrupted():
        return None
    split = "valid" if key[3] == "tuning" else "test"
    error_rate = (
        1.0 if outcome.status == "diverged" else SplitEvaluator(data, split).errors(outcome.model)["error_rate"]
    )
    jax.clear_caches()  # the next run has other settings, compiled into its functions
    return Attempt(
        *key,
        solved=error_rate < WRONG_SHARE,
        error_rate=round(error_rate, 5),
        seconds=round(spent, 2),
        epochs=clock.epochs,
        status=outcome.status,
        settings={name: as_dict(config)[name] for name in METHODS[key[2]].space},
        version=__version__,
        processor=processor_name(),
        limit=seconds,
    )
