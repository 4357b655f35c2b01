"""How training went, from the records of a run."""

import msgspec

from longspan.bounds import Figure, Share, Size, Text, check_lengths
from longspan.training.runs import Run


class Course(msgspec.Struct, frozen=True):
    """The course of training.

    Attributes:
        status, reason: how it ended.
        train: log-likelihood in training of every epoch, with the weights of the moment; None where it is not known.
        valid: validation log-likelihood of every epoch.
        rates: learning rate of every epoch, averaged over its updates.
        clipped: fraction of clipped updates of every epoch; None where nothing clips.
        norms: mean gradient norm of every epoch, before clipping.
        gradients: gradient by lag after every epoch, if the run was told to watch it.
        dead: fraction of units that never move after every epoch, likewise.
    """

    status: Text
    reason: Text
    train: list[Figure | None]
    valid: list[Figure]
    rates: list[Size | None]
    clipped: list[Share | None]
    norms: list[Size | None]
    gradients: list[dict[Text, Size | None]] = []
    dead: list[Share | None] = []

    def __post_init__(self) -> None:
        check_lengths(train=self.train, valid=self.valid)

    @property
    def best_epoch(self) -> int | None:
        """Number of the epoch with the best validation score, from 1."""
        return None if not self.valid else max(range(len(self.valid)), key=self.valid.__getitem__) + 1

    @property
    def late_clipped(self) -> float | None:
        """Mean fraction of clipped updates in the second half of training."""
        return _late_mean(self.clipped)

    @property
    def late_norm(self) -> float | None:
        """Mean gradient norm in the second half of training."""
        return _late_mean(self.norms)


def _late_mean(values: list[float | None]) -> float | None:
    late = [value for value in values[len(values) // 2 :] if value is not None]
    return sum(late) / len(late) if late else None


def course_of(run: Run) -> Course:
    """Read the course of a run."""
    records = run.metrics()

    def column(name: str) -> list:
        return [record.get(name) for record in records]

    return Course(
        status=run.status,
        reason=run.reason,
        train=column("train_log_likelihood"),
        valid=column("valid_log_likelihood"),
        rates=column("learning_rate"),
        clipped=column("clipped"),
        norms=column("gradient_norm"),
        gradients=[record["gradient_by_lag"] for record in records if "gradient_by_lag" in record],
        dead=[record["dead_units"] for record in records if "dead_units" in record],
    )
