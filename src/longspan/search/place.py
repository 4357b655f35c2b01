"""Where a worker keeps the runs of a study, and what it tells about its machine."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """The folder of a study on one machine.

    study.db       the storage, unless it is a server
    trials/        one run folder per slot
    workers/       what workers said when something went wrong
    result.json    what the study came to
    """

    folder: Path
    environment: dict

    def run_path(self, slot: int) -> Path:
        return self.folder / "trials" / f"slot-{slot:04d}"
