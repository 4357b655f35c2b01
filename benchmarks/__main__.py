"""Runs benchmarks, prints their tables and saves their figures.

    python -m benchmarks                          # all of them, some minutes each
    python -m benchmarks training_step words      # some
    python -m benchmarks --threads 2 training_step

Every contestant gets the same number of threads. Figures go to results/benchmarks/NAME.json, or NAME-2-threads.json;
`python -m benchmarks.picture` draws the README's picture from them.
"""

import argparse
import importlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

NAMES = (
    "training_step",
    "gated_step",
    "nade_step",
    "words",
    "words_race",
    "sparse_walks",
    "gauss_newton",
    "epochs",
    "nade_likelihood",
    "factored_softmax",
    "scaling",
    "processes",
    "memory",
    "large_data",
    "past",
    "startup",
)


PEERS = ("rnnlm", "faster-rnnlm")
"""Programs of others, which `words` and `words_race` run if they are told where they are."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(NAMES)}; all by default")
    parser.add_argument("--threads", type=int, default=1, help="threads of every contestant (1)")
    parser.add_argument(
        "--clock", choices=("wall", "processor"), default="wall", help="processor for a machine that others use too"
    )
    for program in PEERS:
        parser.add_argument(f"--{program}", metavar="PATH", help=f"the program {program}, for `words`; else not run")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks"), help="folder of the figures")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(NAMES))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}: expected some of {', '.join(NAMES)}")
    set_threads(arguments.threads)
    os.environ["BENCHMARK_CLOCK"] = arguments.clock
    given = {program: vars(arguments)[program.replace("-", "_")] for program in PEERS}
    os.environ |= {variable(program): path for program, path in given.items() if path}
    for name in arguments.names or NAMES:
        run(name, arguments.threads, arguments.output)


def variable(program: str) -> str:
    """The variable of the environment that holds the path of a peer's program."""
    return "BENCHMARK_" + program.upper().replace("-", "_")


def set_threads(count: int) -> None:
    """Threads of XLA and the kernels, which read the environment when JAX is imported, and of PyTorch."""
    os.environ |= {"NPROC": str(count), "LONGSPAN_THREADS": str(count), "OMP_NUM_THREADS": str(count)}


def run(name: str, threads: int, output: Path) -> None:
    """Measure, save and show one benchmark."""
    from rich.console import Console
    from rich.table import Table

    from longspan import runtime

    from . import bounds

    module = importlib.import_module(f"benchmarks.{name}")
    load = os.getloadavg()[0]
    figures = module.measure()
    versions = {"torch": runtime.version("torch"), **runtime.describe(threads)}
    document = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "load": load,
        "clock": os.environ["BENCHMARK_CLOCK"],
        "machine": versions,
        "processor": bounds.processor(),
        **figures,
    }
    output.mkdir(parents=True, exist_ok=True)
    stem = name if threads == 1 else f"{name}-{threads}-threads"
    (output / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")
    header, *rows = module.table(figures) if hasattr(module, "table") else _plain(figures)
    shown = Table(*header, title=f"{name}: {(module.__doc__ or '').splitlines()[0]}", title_justify="left")
    for row in rows:
        shown.add_row(*row)
    Console(width=140).print(shown)


def _plain(figures: dict) -> list[list[str]]:
    numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    return [["figure", "value"], *([name, f"{value:.3g}"] for name, value in numbers.items())]


if __name__ == "__main__":
    main()
