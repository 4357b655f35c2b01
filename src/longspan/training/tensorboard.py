"""TensorBoard event files of a run, for those who watch their runs there (extra `tensorboard`)."""

from longspan.errors import InputError
from longspan.training.loop import Listener
from longspan.training.runs import Run


class TensorBoardListener(Listener):
    """Writes the figures of every epoch to `<run>/tensorboard`; a resumed run overwrites what it repeats."""

    def __init__(self, run: Run):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise InputError("--tensorboard needs tensorboardX: pip install 'longspan[tensorboard]'") from error
        folder = str(run.path / "tensorboard")
        self.writer = SummaryWriter(folder, purge_step=len(run.metrics()) + 1, flush_secs=5)

    def on_epoch(self, record: dict, seconds: float) -> None:
        for name, value in record.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, record["epoch"])
        self.writer.add_scalar("seconds", seconds, record["epoch"])
