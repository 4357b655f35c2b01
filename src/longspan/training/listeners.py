"""Callbacks of a training run: the base class of all listeners, and TensorBoard."""

from longspan.errors import InputError
from longspan.files import folder_inside, refuse_link
from longspan.optim.blocks import Info
from longspan.training.runs import Run
from longspan.training.state import Progress


class Listener:
    """Base class of listeners; override any of its methods."""

    def on_pretraining(self, what: str) -> None:
        """Called after each pass of pretraining, with a description of it."""

    def on_block(self, progress: Progress, info: Info, count: int, total: int) -> None:
        """Called after each block of `count` chunks, in an epoch of `total` chunks."""

    def on_epoch(self, record: dict, seconds: float) -> None:
        """Called after each validated epoch; `seconds` is the time since this process began to train."""


class TensorBoardListener(Listener):
    """Writes the metrics of every epoch to `<run>/tensorboard`; a resumed run overwrites what it repeats."""

    def __init__(self, run: Run):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise InputError("event files need tensorboardX: pip install 'longspan[tensorboard]'") from error
        folder = folder_inside(run.path, "tensorboard")
        for file in folder.iterdir():
            refuse_link(file)
        self.writer = SummaryWriter(str(folder), purge_step=len(run.metrics()) + 1, flush_secs=5)

    def on_epoch(self, record: dict, seconds: float) -> None:
        for name, value in record.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, record["epoch"])
        self.writer.add_scalar("seconds", seconds, record["epoch"])
