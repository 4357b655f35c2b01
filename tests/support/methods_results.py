"""Results of compared methods as `longspan compare-methods` would leave them, made up for tests."""

from pathlib import Path

import msgspec
import numpy as np

from longspan.arms.protocol import Definition, define
from longspan.arms.records import (
    DEFINITION,
    RESULTS,
    TIMINGS,
    WINNERS,
    SlotResult,
    SlotTiming,
    WinnerResult,
    write_lines,
)

JSB = define("jsb", "frames", "print", {100: 243}, -12.0)
GAINS = {"c": 0.2, "l": 0.0, "r": -0.1, "m": 0.05}


def score(arm: str, slot: int) -> float:
    """A score that falls with the slot's distance from the best rate, plus what each letter brings."""
    generator = np.random.default_rng(slot)
    return (
        -9.0 - generator.uniform(0, 2) + 3 * arm.startswith("nade:") + sum(GAINS.get(letter, 0) for letter in arm[-4:])
    )


def slot_results(definition: Definition, slots: int, arms: tuple[str, ...] = ()) -> list[SlotResult]:
    """Slots of every arm; slot 1 diverges where nothing clips."""
    made = []
    for slot, arm in definition.tasks():
        if slot >= slots or (arms and arm not in arms):
            continue
        failed = slot == 1 and "c" not in arm.partition("+")[2]
        valid = None if failed else score(arm, slot)
        settings = {} if arm.endswith("hf") else {"learning_rate": 10.0 ** (slot % 5 - 3)}
        status = "diverged" if failed else "done"
        marks = (definition.identity, "1.0", "avx2")
        made.append(SlotResult(definition.data, slot, arm, status, valid, valid, 1, 5, 500, "", settings, *marks))
    return made


def winner_results(definition: Definition, arm: str, slot: int, tests: list[float]) -> list[WinnerResult]:
    """The runs of a winner, one per fresh seed."""
    marks = (definition.identity, "1.1", "avx2")
    return [
        WinnerResult(definition.data, slot, arm, seed, "done", -8.0, -7.0, {"log_likelihood": test}, 500, *marks)
        for seed, test in zip(definition.fresh_seeds, tests, strict=False)
    ]


def methods_folder(folder: Path, definition: Definition = JSB, *, slots: int = 12) -> Path:
    """A folder of merged results: every arm up to some slots, and the winner of `sgd+c` if all are there."""
    results = slot_results(definition, slots)
    write_lines(folder / f"{definition.data}{RESULTS}", results)
    timings = [SlotTiming(each.data, each.slot, each.arm, each.definition, 10.0, "cpu") for each in results]
    write_lines(folder / f"{definition.data}{TIMINGS}", timings)
    best = max((each for each in results if each.arm == "sgd+c"), key=lambda each: each.valid or -99.0)
    write_lines(
        folder / f"{definition.data}{WINNERS}", winner_results(definition, "sgd+c", best.slot, [-8.5, -8.6, -8.7])
    )
    (folder / f"{definition.data}{DEFINITION}").write_bytes(msgspec.json.encode(definition))
    return folder
