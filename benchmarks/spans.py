"""What the past is worth to trained runs: their test scores with memory, and what a repeat costs the network alone.

    python -m benchmarks.spans RUN...      # into results/memory/DATA.json and results/repeats/DATA.json, by seed

Scores with memory are those that `longspan train` or `longspan remember` left in the run. The price of a repeat, and
how far back the past is used, are measured on the whole test split, for music. A network is a recipe and the settings
that differ from it; of a run with memory it is the network below it, so that the letter w is left out. `longspan
reproduce --render-only` and `longspan report results` show means over seeds.
"""

import argparse
import json
from pathlib import Path

from longspan import recipes
from longspan.config import as_dict
from longspan.data import load
from longspan.errors import InputError
from longspan.files import write_atomic
from longspan.probes.gradients import gradient_by_lag
from longspan.probes.memory import history, repeats
from longspan.probes.steps import log_probs, steps_of, walk
from longspan.training.runs import Run
from longspan.training.setup import trained_model

MEMORY, REPEATS = Path("results/memory"), Path("results/repeats")
ALL = 10**9
LAGS = 100
HISTORY = 4096
"""Steps at which the past is cut off."""
OF_A_RUN = {"seed", "threads", "memory", "recipe"}
"""Settings that make no other network."""


def network_of(run: Run) -> tuple[str, dict]:
    """The recipe of a network without its memory, and its settings that differ from that recipe."""
    recipe = recipes.parse(run.config.recipe)
    letters = recipe.letters - {"w"} | ({"t"} if run.config.cues == "recall" else set())
    name = str(recipe._replace(letters=frozenset(letters)))
    usual = as_dict(recipes.settings(name, run.config.data))
    given = {key: value for key, value in as_dict(run.config).items() if key not in OF_A_RUN}
    return name, {key: value for key, value in given.items() if value != usual[key]}


def figures(run: Run) -> dict:
    """Everything that is measured of a run."""
    data = load(run.config.data).with_cues(run.config.cues)
    model, steps = trained_model(run), steps_of(data, "test", ALL)
    walked = walk(model, steps)
    found = repeats(model, data, steps, walked)
    if found is None:
        raise InputError(f"{run.path}: its test split repeats nothing")
    past = history(model, steps, walked, most=HISTORY)
    scores = log_probs(model, walked.hidden, steps.targets)[steps.mask]
    return {
        "valid": max(record["valid_log_likelihood"] for record in run.metrics()),
        "test": float(scores.mean()),
        "price_of_a_repeat": found.price,
        "without_memory": found.reference_price,
        "repeats": found.share,
        "history_used": past.used,
        "lost_without_past": past.whole - past.scores[0],
        "lost_beyond_8": past.whole - past.scores[past.lengths.index(8)],
        "gradient_half_life": gradient_by_lag(model, steps, walked, lags=LAGS).half_life,
        "epochs": len(run.metrics()),
        "longspan": run.environment()["versions"]["longspan"],
    }


def record_price(run: Run) -> None:
    """Measure a run, in place of an earlier measure of the same network and seed."""
    name, changes = network_of(run)
    row = {"network": name, "changes": changes, "seed": run.config.seed} | figures(run)
    document = _document(REPEATS, run, "runs")
    others = [each for each in document["runs"] if _which(each) != _which(row)]
    document["runs"] = sorted([*others, row], key=_which)
    _write(REPEATS, run, document)


def _which(row: dict) -> tuple:
    return row["network"], json.dumps(row["changes"], sort_keys=True), row["seed"]


def record_memory(run: Run) -> None:
    """Take the scores of a run with memory, in place of earlier ones of the same recipe and seed."""
    result = run.result() or {}
    found = result["with_memory"]
    row = {
        "seed": run.config.seed,
        "recipe": run.config.recipe,
        "memory": found["memory"],
        "recalled": found["recalled"],
        "processor_seconds": run.timings()[-1]["processor_seconds"],
        "valid": max(record["valid_log_likelihood"] for record in run.metrics()),
        "valid_with_memory": (run.memory() or {}).get("fit", {}).get("held_out"),
        "test": {name: result["test"][name] for name in found["test"]},
        "test_with_memory": found["test"],
    }
    document = _document(MEMORY, run, "seeds")
    others = [each for each in document["seeds"] if _whose(each) != _whose(row)]
    document["seeds"] = sorted([*others, row], key=_whose)
    _write(MEMORY, run, document)


def _whose(row: dict) -> tuple[str, int]:
    return row["recipe"], row["seed"]


def _document(folder: Path, run: Run, rows: str) -> dict:
    file = folder / f"{run.config.data}.json"
    return json.loads(file.read_text()) if file.exists() else {"data": run.config.data, rows: []}


def _write(folder: Path, run: Run, document: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / f"{run.config.data}.json", json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    for path in parser.parse_args().runs:
        run = Run.open(path)
        if "with_memory" in (run.result() or {}):
            record_memory(run)
        if load(run.config.data).record.kind == "music":
            record_price(run)
        print(path, flush=True)


if __name__ == "__main__":
    main()
