"""The child process of `scores`: reads ABC and Humdrum by music21, one file for each line of standard input.

Nothing bounds what music21 takes, so the process limits its own memory before it imports it, and its computing time for
each file; the parent does not wait for ever.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

from longspan.limits import CHILD_BYTES, CHILD_SECONDS, SCORE_NOTES

FORMATS = {".abc": "abc", ".krn": "humdrum"}


def main() -> None:
    _limit_memory()
    from music21 import converter

    answers = open(1, "w", closefd=False)  # noqa: SIM115
    for line in sys.stdin:
        _limit_time()
        path = Path(json.loads(line))
        try:
            parsed = converter.parseData(path.read_text("utf-8", "replace"), format=FORMATS[path.suffix.lower()])
            songs = [_notes(score) for score in getattr(parsed, "scores", None) or [parsed]]
            answer = {"songs": songs}
        # Whatever goes wrong in there is a fault of the file.
        except Exception as error:
            answer = {"error": f"music21 cannot read it ({type(error).__name__}: {error})"[:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _limit_memory() -> None:
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (CHILD_BYTES, CHILD_BYTES))


def _limit_time() -> None:
    """Have the system end this process if it computes for too long from now on."""
    with suppress(ImportError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + CHILD_SECONDS, resource.RLIM_INFINITY))


def _notes(score) -> list[tuple[float, float, int]]:
    """Start, end and pitch of every note; repeats are unfolded where music21 can, ties joined, grace notes left out."""
    with suppress(Exception):
        score = score.expandRepeats()
    found = []
    for element in score.stripTies().flatten().notes:
        length = float(element.duration.quarterLength)
        if length > 0 and "ChordSymbol" not in element.classes:
            start = float(element.offset)
            found += [(start, start + length, int(pitch.midi)) for pitch in element.pitches]
        if len(found) > SCORE_NOTES:
            raise ValueError(f"more than {SCORE_NOTES} notes")
    return found


if __name__ == "__main__":
    main()
