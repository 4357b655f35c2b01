"""Does a gap between training and validation tell that a run overfits, and that more dropout would help it?

    python -m benchmarks.overfitting      # into results/overfitting.json; continues where it was stopped

The healthy and the overfitted runs on songs and text of the sets of cases whose outcomes are known, and runs on few
songs that are stopped early as usual. Each is measured and then trained again with dropout 0.5, the remedy of a finding
of overfitting. All figures are shares of the gain of validation over the rates.
"""

import statistics
import tempfile
from pathlib import Path

import msgspec

from benchmarks.diagnosis import STEPS, train
from benchmarks.diagnosis_cases import FIRST, SECOND, SECOND_SOURCES, THIRD, THIRD_SOURCES, Case, Sources
from longspan import runtime
from longspan.diagnostics.measures import measure
from longspan.files import write_atomic

RESULT = Path("results/overfitting.json")
DROPOUT = 0.5
LAGS = 2
FEW, FEW_SEED = (4, 12), 4000


class Gap(msgspec.Struct, frozen=True):
    """A run: validation's gain over the rates in nats, and shares of it.

    Attributes:
        gap: how far training is ahead of validation, at the best weights.
        lost: how far validation fell from its best epoch to the last ones.
        remedy: what the best epoch gains by dropout 0.5; None if the run has as much already.
    """

    about: str
    meant: str
    seed: int
    gain: float
    gap: float
    lost: float
    remedy: float | None


def cases() -> list[tuple[int, Case]]:
    """Songs and text of the sets that are known, and few songs."""
    known = [each for chosen in (FIRST, SECOND, THIRD) for each in chosen.seeded if _is_music_or_text(each[1])]
    few = [(FEW_SEED + songs, _few(of, songs)) for of in (SECOND_SOURCES, THIRD_SOURCES) for songs in FEW]
    return known + few


def _is_music_or_text(case: Case) -> bool:
    source = case.about.split(":")[0]
    return case.fault in ("", "overfitting") and source in ("chorales", "prose", "tunes", "news", "pieces", "reports")


def _few(of: Sources, songs: int) -> Case:
    return of.on_songs("few songs", f"{songs} of them", lambda seed: of.songs(seed, songs), dropout=0.0)


def measured(case: Case, seed: int, folder: Path) -> Gap:
    """Train a case without and with the remedy."""
    run, content = train(case, seed, folder / "run")
    seen = measure(run, content, lags=LAGS, steps=STEPS)
    gain, best = seen.standards.valid - seen.standards.rates, max(seen.course.valid)
    since = seen.course.valid[seen.course.best_epoch or 0 :]
    late = statistics.median(since[-max(3, len(since) // 5) :]) if since else best
    remedy = None
    if case.settings.get("dropout", 0.0) < DROPOUT:
        again, _ = train(case, seed, folder / "again", dropout=DROPOUT)
        remedy = (max(record["valid_log_likelihood"] for record in again.metrics()) - best) / gain
    gap = (seen.standards.train - seen.standards.valid) / gain
    return Gap(case.about, case.fault or "healthy", seed, gain, gap, (best - late) / gain, remedy)


def main() -> None:
    runtime.prepare(1)
    rows = msgspec.json.decode(RESULT.read_bytes(), type=list[Gap]) if RESULT.exists() else []
    for seed, case in cases():
        if any((row.about, row.seed) == (case.about, seed) for row in rows):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(case, seed, Path(folder)))
        print(rows[-1], flush=True)
        write_atomic(RESULT, msgspec.json.format(msgspec.json.encode(rows), indent=1).decode() + "\n")


if __name__ == "__main__":
    main()
