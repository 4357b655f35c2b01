"""Memory of a worker that trains one slot after the other, each of another size and so compiled anew.

    python -m benchmarks.many_slots --slots 500

What a slot left behind would add up. Growth counts from the tenth slot on, when everything that is kept once is there.
The figures go to results/benchmarks/many_slots.json; `--sizes` only prints the bytes after every slot.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import longspan
from longspan.search import storage, trial
from longspan.search.space import define
from longspan.search.study import create_or_continue
from longspan.search.worker import Place, work
from tests.support.catalog import tiny_config, tiny_music

SPACE = {"hidden_size": {"low": 4, "high": 80}, "learning_rate": {"low": 0.01, "high": 0.1}}
SETTLED = 10
RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "many_slots.json"


def sizes_after(slots: int, folder: Path) -> list[int]:
    """Bytes of this process after each slot of a study."""
    found: list[int] = []
    attempt = trial.attempt

    def measured(*arguments) -> None:
        attempt(*arguments)
        found.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

    measuring = type("Measuring", (), {"attempt": staticmethod(measured), "conclude": staticmethod(trial.conclude)})
    definition = define("tiny", tiny_config("sgd+c", max_epochs=1), SPACE, "fingerprint")
    study = create_or_continue(storage.default_url(folder), definition, slots)
    work(study, tiny_music(), Place(folder, {}), worker="me", interrupted=lambda: False, trial=measuring)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--slots", type=int, default=500)
    parser.add_argument("--sizes", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="longspan-slots-") as place:
        sizes = sizes_after(options.slots, Path(place))
    if options.sizes:
        sys.stdout.write("".join(f"{size}\n" for size in sizes))
        return
    settled = sizes[SETTLED:]
    figures = {
        "slots": options.slots,
        "megabytes_settled": round(settled[0] / 1e6, 1),
        "megabytes_at_most": round(max(settled) / 1e6, 1),
        "megabytes_at_the_end": round(settled[-1] / 1e6, 1),
        "version": longspan.__version__,
    }
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
