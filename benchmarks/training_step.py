"""One update of a tanh network: forward, loss, backward, clip, Nesterov; for each regime of batch and units.

Music has 88 keys and chunks of 100 frames, characters 50 symbols and chunks of 150. All start from the same weights,
and are timed only after they arrived at the same ones: the largest difference after a turn of updates, as a share of
the largest change, is printed. PyTorch runs with its better number of threads up to the one given.

    python -m benchmarks.training_step 1x200 64x500     # some regimes, printed and not saved
"""

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from longspan import recipes

from . import bounds, ours, plain_jax
from .contest import Contestant, Task, disagreements, ratios, seconds_per_update, threads

MUSIC = [(1, 100), (1, 200), (1, 400), (8, 200), (16, 200), (64, 200), (256, 200)]
CHARACTERS = [(1, 500), (16, 500), (64, 500)]
COMPILED = [(1, 200), (16, 200), (1, 500), (64, 500)]
"""Where PyTorch is compiled, which takes minutes."""
SYMBOLS = 50
REFERENCE = "JAX scan"
TOLERANCE = 2e-3
ROUNDED = "longspan in bfloat16"
"""Reads a rounded recurrent matrix in the walks, so its updates are another network's, to within a wider tolerance."""
ROUNDED_TOLERANCE = 2e-2


def contestants(batch: int, units: int, only: Sequence[str] = ()) -> tuple[Task, dict[str, Contestant]]:
    """The same work for everybody, on the same numbers; 500 units read characters, others music."""
    characters = units == 500
    length = 150 if characters else 100
    chunks = 32 if batch == 1 else 8 if batch < 64 else 4
    config = dataclasses.replace(
        recipes.settings("sgd+cm", "random", "characters" if characters else "frames"),
        activation="tanh",
        input_scale=0.1,
        recurrent_init="orthogonal",
        recurrent_scale=0.95,
        dropout=0.0,
        loss="mean",
        learning_rate=0.05,
        learning_rate_schedule="constant",
        momentum=0.9,
        momentum_schedule="constant",
        clip=0.5,
        hidden_size=units,
        lanes=batch,
        block=chunks,
        chunk_length=length,
    )
    steps = chunks * length
    data = ours.random_text(SYMBOLS, batch * steps) if characters else ours.random_songs(batch, steps)
    source = ours.ChunkSource(config, data).epoch(0)
    weights = ours.weights_of(ours.initial_model(config, data.record, data.base_rates()))
    task = Task(source.inputs, source.targets, weights, config.learning_rate, config.momentum, float(config.clip))
    made = {
        "longspan": lambda: ours.training(config, data),
        ROUNDED: lambda: ours.training(dataclasses.replace(config, precision="bfloat16"), data),
        "longspan in XLA": lambda: ours.training(config, data, "xla"),
        "JAX scan": lambda: plain_jax.training(task),
        "JAX custom rule": lambda: plain_jax.training(task, by_rule=True),
        **_in_pytorch(task, compiled=(batch, units) in COMPILED),
    }
    if batch > 1:
        del made[ROUNDED]  # for one lane alone
    return task, {name: make() for name, make in made.items() if not only or name in only}


def _in_pytorch(task: Task, compiled: bool) -> dict[str, Callable[[], Contestant]]:
    """Makers of contestants by name and, if there may be several, number of threads."""

    def maker(kind: str, count: int) -> Callable[[], Contestant]:
        def make() -> Contestant:
            from . import pytorch  # imported late: it would be most of a process's memory

            return getattr(pytorch, kind)(task, count)

        return make

    kinds = {"PyTorch eager": "eager", "PyTorch by hand": "by_hand"} | (
        {"PyTorch compiled": "compiled"} if compiled else {}
    )
    if threads() == 1:
        return {name: maker(kind, 1) for name, kind in kinds.items()}
    return {f"{name}@{count}": maker(kind, count) for name, kind in kinds.items() for count in (1, threads())}


def better(seconds: Mapping[str, float]) -> dict[str, float]:
    """The better number of threads of each contestant."""
    found: dict[str, float] = {}
    for name, value in seconds.items():
        plain = name.partition("@")[0]
        found[plain] = min(value, found.get(plain, value))
    return found


def least_seconds(batch: int, units: int) -> float:
    """What the bounds of one core leave for an update: two walks and the products of output and gradients.

    A step of a walk reads the recurrent matrix, and multiplies with it; the longer of the two counts. The input is
    sparse and costs nothing here, nor do losses, activations and the step of descent.
    """
    length, outputs = (150, SYMBOLS) if units == 500 else (100, 88)
    flops = 1e-9 / bounds.gigaflops()
    step = max(4e-9 * units * units / bounds.gigabytes(4 * units * units), 2 * batch * units * units * flops)
    return 2 * length * step + 2 * length * batch * units * (units + 3 * outputs) * flops


def regime(batch: int, units: int) -> dict:
    """One regime: seconds, ratios, the share of the bound that ours reaches, and how far the results are apart."""
    task, everybody = contestants(batch, units)
    apart = disagreements(task, everybody, REFERENCE)
    rounded = {name: apart.pop(name) for name in [ROUNDED] if name in apart}
    wrong = {name: share for name, share in apart.items() if not share <= TOLERANCE}
    wrong |= {name: share for name, share in rounded.items() if not share <= ROUNDED_TOLERANCE}
    if wrong:
        raise SystemExit(f"{batch}x{units}: not the same update as {REFERENCE}'s (at most {TOLERANCE}): {wrong}")
    every = seconds_per_update(everybody)
    seconds = better(every)
    return {
        "data": "characters" if task.symbols else "music",
        "batch": batch,
        "units": units,
        "apart": max(apart.values()),
        "tolerance": TOLERANCE,
        **({"rounded_apart": rounded[ROUNDED]} if rounded else {}),
        "seconds": every,
        "ratios": ratios(seconds),
        "bound_seconds": least_seconds(batch, units) / threads(),
        "share_of_bound": least_seconds(batch, units) / threads() / seconds["longspan"],
    }


def measure(sizes: Sequence[tuple[int, int]] = (*MUSIC, *CHARACTERS)) -> dict:
    """Seconds of one update by regime and contestant."""
    return {"bounds": bounds.measured(), "regimes": [regime(*size) for size in sizes]}


def table(figures: dict) -> list[list[str]]:
    """Milliseconds of ours and how many times as long the others take."""
    others = list(dict.fromkeys(name for regime in figures["regimes"] for name in regime["ratios"]))
    rows = [["batch", "units", "longspan ms", *others, "of bound", "apart"]]
    for regime in figures["regimes"]:
        cells = [f"{regime['ratios'][name]:.2f}x" if name in regime["ratios"] else "-" for name in others]
        own = f"{1e3 * regime['seconds']['longspan']:.3f}"
        share = f"{100 * regime['share_of_bound']:.0f} %"
        rows.append([str(regime["batch"]), str(regime["units"]), own, *cells, share, f"{regime['apart']:.0e}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("regimes", nargs="+", metavar="BATCHxUNITS")
    sizes = [regime.split("x") for regime in parser.parse_args().regimes]
    for row in table(measure([(int(batch), int(units)) for batch, units in sizes])):
        print("  ".join(f"{cell:>12}" for cell in row))


if __name__ == "__main__":
    main()
