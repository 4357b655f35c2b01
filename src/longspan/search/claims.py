"""The right of one worker to run one slot, kept by heartbeats and lost by silence."""

import contextlib
import threading
from collections.abc import Callable, Iterator


class ClaimLost(Exception):
    """The slot was given to another worker, because this one had not been heard of for too long."""


class Claim:
    """A slot that this worker, and no other, is to run."""

    def __init__(self, number: int, trial, record_heartbeat: Callable[[], None]):
        self.slot = number
        self.trial = trial
        self.reported: set[int] = set()
        self._record_heartbeat = record_heartbeat

    def report(self, metrics: list[dict]) -> None:
        """Show the validation scores so far to whoever watches the study."""
        from optuna.exceptions import UpdateFinishedTrialError

        for record in metrics:
            if record["epoch"] in self.reported:
                continue
            try:
                self.trial.report(record["valid_log_likelihood"], record["epoch"])
            except UpdateFinishedTrialError as error:
                raise ClaimLost from error
            self.reported.add(record["epoch"])

    @contextlib.contextmanager
    def kept_alive(self, seconds: float) -> Iterator[None]:
        """Send heartbeats from a thread while the block lasts."""
        from optuna.exceptions import StorageInternalError

        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(seconds):
                with contextlib.suppress(StorageInternalError):  # the storage may come back before the grace is over
                    self._record_heartbeat()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
