"""How good the defaults are on data of one's own: the default recipe beside a search of 20 slots, on held-out corpora.

    python -m benchmarks.defaults FOLDER masses airs     # into results/defaults.json; continues where it was stopped
    python -m benchmarks.defaults FOLDER --show          # the table of docs/defaults.md

The corpora are those of `corpora.py`, prepared in FOLDER as a user would import them. The first slot of a search is the
default itself, the others draw what `longspan search` draws; validation chooses the best. Scores are of networks alone.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.corpora import CORPORA, HELD_OUT, corpus, prepare
from longspan.files import write_atomic
from longspan.metrics import number
from longspan.recipe_tables import USUAL
from longspan.reporting.markup import markdown_table

RESULT = Path("results/defaults.json")
SLOTS = 20


class Compared(msgspec.Struct, frozen=True):
    """The default and the best of a search on one corpus, as log-likelihoods in nats per frame or symbol."""

    corpus: str
    held_out: bool
    """Whether the corpus was left alone while defaults were chosen."""
    recipe: str
    training_steps: int
    slots: int
    default_valid: float
    best_valid: float
    default_test: float
    best_test: float
    best_slot: int
    """The slot that validation chose; 0 is the default."""
    version: str


def compare(folder: Path, name: str) -> Compared:
    """Run the search on a corpus, and score the default beside its winner."""
    data = corpus(folder, name)
    recipe = USUAL[data.target_kind].removesuffix("+w")
    study = folder / "studies" / name
    place = ["--data-dir", str(folder)]
    sizes = ["--trials", str(SLOTS), "--workers", "1", "--study-dir", str(study)]
    found = longspan("search", recipe, "--data", name, *place, *sizes)
    default = longspan("evaluate", str(study / "trials" / "slot-0000"), *place)
    winner = next(trial for trial in found["trials"] if trial["slot"] == found["winner"])
    return Compared(
        corpus=name,
        held_out=name in HELD_OUT,
        recipe=recipe,
        training_steps=data.split_figures("train")[1],
        slots=found["slots"],
        default_valid=found["trials"][0]["outcome"]["valid_log_likelihood"],
        best_valid=winner["outcome"]["valid_log_likelihood"],
        default_test=default["log_likelihood"],
        best_test=winner["tested"]["test"]["log_likelihood"],
        best_slot=found["winner"],
        version=found["environment"]["versions"]["longspan"],
    )


def longspan(*arguments: str) -> dict:
    """What a command prints as JSON."""
    command = [sys.executable, "-m", "longspan", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def table(rows: list[Compared]) -> str:
    """The comparison as Markdown."""
    header = ["corpus", "training steps", "default, valid", "best of 20, valid", "default, test", "best of 20, test"]
    shown = [
        [row.corpus + ("" if row.held_out else " (tuned on)"), f"{row.training_steps:,}"]
        + [number(each, 3) for each in (row.default_valid, row.best_valid, row.default_test, row.best_test)]
        for row in sorted(rows, key=lambda row: (not row.held_out, row.corpus))
    ]
    return markdown_table(header, shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(CORPORA)}; by default those held out")
    parser.add_argument("--show", action="store_true", help="only print the table")
    options = parser.parse_args()
    rows = msgspec.json.decode(RESULT.read_bytes(), type=list[Compared]) if RESULT.exists() else []
    if options.show:
        sys.stdout.write(table(rows))
        return
    for name in options.names or HELD_OUT:
        if any(row.corpus == name for row in rows):
            continue
        if not (options.folder / "imported" / f"{name}.npz").exists():
            prepare(options.folder, name)
        rows.append(compare(options.folder, name))
        write_atomic(RESULT, msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
        sys.stdout.write(table(rows[-1:]))


if __name__ == "__main__":
    main()
