"""TensorBoard event files of a run, for those who watch their runs there (extra `tensorboard`)."""

from longspan.errors import InputError
from longspan.training.runs import Run

FIGURES = ("train_log_likelihood", "valid_log_likelihood", "gradient_norm", "clipped", "learning_rate")


class TensorBoardListener:
    """Writes the figures of every epoch to `<run>/tensorboard`; a resumed run overwrites what it repeats."""

    def __init__(self, run: Run):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise InputError("--tensorboard needs tensorboardX: pip install 'longspan[tensorboard]'") from error
        self.writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=len(run.metrics()) + 1)

    def on_block(self, progress, info, count: int, total: int) -> None:
        """Blocks are too many to plot."""

    def on_epoch(self, record: dict, seconds: float) -> None:
        for name in FIGURES:
            self.writer.add_scalar(name, record[name], record["epoch"])
        self.writer.add_scalar("seconds", seconds, record["epoch"])
        self.writer.flush()
