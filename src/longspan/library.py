"""longspan in a few lines of Python: train a recipe on data, score it, go on with it later.

The command line is built from the same parts; this is the short way to them from a script or a notebook.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from longspan import data as data_room
from longspan import recipes
from longspan.data.kinds import Data, targets_of
from longspan.data.names import DEFAULT_SPAN
from longspan.data.tasks import TaskData
from longspan.errors import InputError
from longspan.evaluation import Scores, SplitEvaluator
from longspan.models.sequence import SequenceModel
from longspan.sampling.generate import generate
from longspan.training.loop import Listener
from longspan.training.loop import train as run_training
from longspan.training.runs import DataRecord, Run, next_run_path
from longspan.training.setup import trained_model


@dataclass(frozen=True)
class Trained:
    """A trained model with the run folder it came from."""

    run: Run
    model: SequenceModel

    def evaluate(self, split: str = "test", *, data: Data | None = None) -> Scores:
        """Scores on a split, as the paper counts them; the data are loaded by name where they are not given."""
        content = _load(self.run) if data is None else data
        return SplitEvaluator(content, split).scores(self.model)

    def sample(
        self,
        length: int,
        *,
        num: int = 1,
        seed: int = 0,
        temperature: float = 1.0,
        prime: np.ndarray | Sequence[int] | None = None,
    ) -> np.ndarray:
        """`num` sequences of frames or symbols that go on from `prime`, or from silence."""
        self.run.data.kind_to_sample()
        return generate(
            self.model,
            length=length,
            num=num,
            key=jax.random.key(seed),
            temperature=temperature,
            prime=None if prime is None else np.asarray(prime),
            end_token=self.run.data.end_token,
        )


def train(
    recipe: str | None = None,
    data: str | Data = "bach",
    *,
    run_dir: Path | str | None = None,
    listeners: Sequence[Listener] = (),
    **settings,
) -> Trained:
    """Train a recipe on data and return the weights with the best validation score.

    Args:
        recipe: the paper's letters, such as `sgd+clr` or `nade:sgd+crm`; by default the usual one for such data.
        data: a name, a path, or a data set made in Python.
        run_dir: where the run is kept; by default a new folder under `runs/`.
        listeners: told of every block and epoch, see `training.loop.Listener`.
        settings: any field of `TrainConfig`, over the recipe's values.

    Example:
        >>> import longspan
        >>> trained = longspan.train("sgd+c", "jsb", hidden_size=100)    # doctest: +SKIP
        >>> trained.evaluate("test").log_likelihood                      # doctest: +SKIP
    """
    content = data_room.load(data, span=settings.get("span", DEFAULT_SPAN)) if isinstance(data, str) else data
    settings |= {"span": content.span} if isinstance(content, TaskData) else {}
    targets = targets_of(content)
    shipped = recipes.settings(recipe or recipes.USUAL[targets], content.name, targets)
    config = dataclasses.replace(shipped, **settings)
    path = Path(run_dir) if run_dir is not None else next_run_path(Path("runs"), config)
    return _to_end(Run.create(path, config, DataRecord.of(content), {}), content, listeners)


def resume(path: Path | str, *, data: Data | None = None, listeners: Sequence[Listener] = ()) -> Trained:
    """Go on with a run exactly where it stopped."""
    run = Run.open(Path(path))
    return _to_end(run, _load(run) if data is None else data, listeners)


def open_run(path: Path | str) -> Trained:
    """The best weights of a run."""
    run = Run.open(Path(path))
    return Trained(run, trained_model(run))


def _load(run: Run) -> Data:
    return data_room.load(run.config.data, span=run.config.span)


def _to_end(run: Run, content: Data, listeners: Sequence[Listener]) -> Trained:
    with run.locked():
        outcome = run_training(run, content, listeners=listeners)
    if outcome.status == "diverged":
        raise InputError(f"the run diverged at {outcome.reason}")
    return Trained(run, outcome.model)
