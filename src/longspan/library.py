"""The Python interface: train a recipe on a data set, score the result, resume it later.

The command line is built from the same parts.
"""

import dataclasses
import difflib
import functools
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import jax
import numpy as np
from optax import GradientTransformation

from longspan import data as data_room
from longspan import recipes, runtime
from longspan.config import FIELDS, Settings, TrainConfig
from longspan.data.benchmarks import DEFAULT_SPAN
from longspan.data.checking import check_dataset
from longspan.data.dataset import Dataset, array_of, usual_memory, whole
from longspan.data.vocabulary import Vocabulary
from longspan.diagnostics.diagnosis import Diagnosis, diagnose_run
from longspan.diagnostics.measures import LAGS
from longspan.errors import Diverged, InputError
from longspan.evaluation import Scores, SplitEvaluator, check_split
from longspan.files import write_atomic
from longspan.memory import Memory, Recollection, check_memory, memory_of, proposal_of, reader_of, remember
from longspan.models.model import SequenceModel
from longspan.playing.packing import Packed, Precision, measure, pack
from longspan.playing.page import render
from longspan.progress import TrainingDisplay
from longspan.recipe_tables import USUAL
from longspan.runtime import time_limit
from longspan.sampling.generate import generate
from longspan.sampling.prime import name_some, text_prime
from longspan.training.listeners import Listener
from longspan.training.loop import continue_in, removed_unless_begun
from longspan.training.loop import train as run_training
from longspan.training.planning import plan, train_in
from longspan.training.runs import Given, Run, create_run
from longspan.training.setup import check_parts, trained_model, weights_to_start_from

MOST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Trained:
    """A trained model, its run folder and, if it is already loaded, its data set."""

    run: Run
    model: SequenceModel
    data: Dataset | None = None

    def evaluate(self, split: str = "test", *, data: Dataset | None = None) -> Scores:
        """Score the model on a split with the paper's metrics.

        `data` defaults to the data set it was trained on, loaded by name if necessary; any other is refused.
        """
        check_split(split)
        return SplitEvaluator(self._data(data), split).scores(self.model)

    def remember(self, memory: str | None = None, *, data: Dataset | None = None) -> Memory:
        """Fit a memory of the song or text to the model, on the validation split, and keep it in the run folder.

        Args:
            memory: `recall`, `cache` (text), `dynamic`, `recall+dynamic`, `cache+dynamic` or one of your own; by
                default what suits the data.
            data: as for `evaluate`.
        """
        content = self._data(data)
        return remember(self.run, memory or usual_memory(content.target_kind), self.model, content)

    def recollect(self, split: str = "test", *, data: Dataset | None = None) -> Recollection:
        """Score the model together with the memory that `remember` fitted, and say which steps were recalled."""
        check_split(split)
        return memory_of(self.run).recollect(self.model, self._data(data), split)

    def diagnose(self, split: str = "valid", *, lags: int = LAGS, data: Dataset | None = None) -> Diagnosis:
        """Measure how far the model remembers and how it was trained, and name what is wrong with it.

        The result is kept in the run folder, where `longspan report` finds it.
        """
        content = self._data(data)
        diagnosis = diagnose_run(self.run, content, split=split, lags=lags, in_python=not _found_by_name(self.run))
        diagnosis.keep(self.run)
        return diagnosis

    def _data(self, given: Dataset | None) -> Dataset:
        return _data_of(self.run, self.data if given is None else given)

    def sample(
        self,
        length: int,
        *,
        num: int = 1,
        seed: int = 0,
        temperature: float = 1.0,
        prime: np.ndarray | Sequence[int] | str | None = None,
        held: np.ndarray | None = None,
        avoid_silence: bool = False,
        unknown: bool = False,
        memory: bool = True,
    ) -> np.ndarray:
        """Draw `num` sequences of frames, symbols or numbers that continue `prime`; without one they start anew.

        Numbers, those of the prime too, are in the units of the data. The prime of a text may be a string; its samples
        are numbers of symbols, which `text` returns as strings. The unknown token of a text is drawn only if `unknown`;
        otherwise the odds between all other symbols stay the same. A run with a memory is sampled with it, unless
        `memory` is off. `temperature`, `held` and `avoid_silence` are explained at
        `longspan.sampling.generate.generate`.
        """
        record = self.run.data
        seed = whole(seed, "seed", 0, MOST_SEED)
        if record.kind_to_sample() == "text" and held is None and not unknown:
            held = Vocabulary.of(record).without_unknown()
        drawn = generate(
            self.model,
            length=length,
            num=num,
            key=jax.random.key(seed),
            temperature=temperature,
            prime=None if prime is None else record.as_seen(self._prime(prime)),
            end_token=record.end_token,
            held=held,
            avoid_silence=avoid_silence,
            proposal=proposal_of(self.run) if memory else None,
            reader=reader_of(self.run),
        )
        return record.in_units(drawn)

    def text(
        self,
        length: int,
        *,
        num: int = 1,
        seed: int = 0,
        temperature: float = 1.0,
        prime: str = "",
        unknown: bool = False,
        memory: bool = True,
    ) -> list[str]:
        """Draw `num` texts of `length` symbols that continue `prime` and begin with it; arguments as for `sample`.

        Example:
            >>> print(trained.text(200, prime="Und es ")[0])    # doctest: +SKIP
        """
        if self.run.data.kind != "text":
            raise InputError(f"these data are {self.run.data.kind}, not text: sample() draws from a model of them")
        if not isinstance(prime, str):
            raise InputError(f"expected a str as prime, got {type(prime).__name__}: sample() takes numbers of symbols")
        start = self._prime(prime) if prime else np.zeros(0, np.int32)
        drawn = self.sample(
            length,
            num=num,
            seed=seed,
            temperature=temperature,
            prime=start if prime else None,
            unknown=unknown,
            memory=memory,
        )
        # Decoded together: whether a blank stands between words depends on both.
        return [Vocabulary.of(self.run.data).decode([*start.tolist(), *sample.tolist()]) for sample in drawn]

    def _prime(self, prime: np.ndarray | Sequence[int] | str) -> np.ndarray:
        """A prime as an array; text as the numbers of its symbols."""
        if not isinstance(prime, str):
            return array_of(prime, "the prime")
        record = self.run.data
        if record.kind != "text":
            raise InputError(f"expected an array of steps as prime, got a str: these data are {record.kind}, not text")
        tokens, missing = text_prime(prime, Vocabulary.of(record))
        if missing:
            told = f"the prime has {record.unit}s that the model does not know: {name_some(missing)}"
            warnings.warn(told, stacklevel=3)
        return tokens

    def play(self, path: Path | str, *, precision: Precision = "int8", data: Dataset | None = None) -> Packed:
        """Write one HTML page in which the model itself plays music or continues text: `longspan play`.

        Args:
            path: the file to write.
            precision: how weights are written: `int8`, or `f16`, which is twice as large and rounds less.
            data: as for `evaluate`; what rounding costs is measured on their validation split.
        """
        packed = pack(self.run, precision).measured(measure(self.run, precision, self._data(data)))
        write_atomic(_path(path, "path"), render(packed))
        return packed

    def baselines(self, split: str = "test", *, data: Dataset | None = None) -> dict[str, dict[str, float]]:
        """Scores of simple predictors on a split, to compare those of `evaluate` with."""
        check_split(split)
        return dict(self._data(data).baselines(split).rows())


def train(
    recipe: str | None = None,
    data: str | Dataset = "bach",
    *,
    model: SequenceModel | None = None,
    optimizer: GradientTransformation | str | None = None,
    config: TrainConfig | None = None,
    start: Path | str | None = None,
    run_dir: Path | str | None = None,
    listeners: Sequence[Listener] = (),
    progress: bool = False,
    budget: float | None = None,
    max_seconds: float | None = None,
    **settings: Unpack[Settings],
) -> Trained:
    """Train on data and return the weights with the best validation score.

    Args:
        recipe: the paper's letters, such as `sgd+clr` or `nade:sgd+crm`; by default the usual one for such data.
        data: a name, a path, or a `Dataset` made in Python.
        model: your own model, trained from its current weights; by default one is built from the config.
        optimizer: an Optax transformation, used unchanged, or the name of an optimizer; by default the recipe's.
        config: a complete configuration, instead of a recipe.
        start: folder of a trained run whose best weights, and by default settings, to begin with.
        run_dir: the run folder; by default a new one under `runs/`.
        listeners: called after every block and epoch, see `longspan.training.listeners.Listener`.
        progress: show a live progress line and one line per epoch, as the command line does.
        budget: seconds that training may take; the number of updates and the fall of the learning rate are planned so
            that it ends well by then. It is a plan, not a limit: a machine that slows down late makes it late.
        max_seconds: save and stop after this time; the run's status is then `interrupted` and `resume` continues it.
        settings: any field of `TrainConfig`; overrides the recipe's value.

    Raises:
        InputError: if the arguments do not fit together; no folder is left behind.
        Diverged: if training produced non-finite numbers.

    Example:
        >>> import longspan
        >>> trained = longspan.train("sgd+c", "jsb", hidden_size=100)    # doctest: +SKIP
        >>> trained.evaluate("test").log_likelihood                      # doctest: +SKIP
    """
    began = time.monotonic()
    content = data_room.load(data, span=settings.get("span", DEFAULT_SPAN)) if isinstance(data, str) else _made(data)
    named = optimizer if isinstance(optimizer, str) else None
    source = None if start is None else Run.open(_path(start, "start"))
    path = None if run_dir is None else _path(run_dir, "run_dir")
    if source is not None and recipe is None and config is None:
        config = source.config
    chosen = _config(recipe, content, config, {**settings, **content.implied_settings}, named)
    content = content.with_cues(chosen.cues, chosen.cue_dropout)
    weights = None if source is None else weights_to_start_from(source, chosen, content.record)
    given = Given(model, None if isinstance(optimizer, str) else optimizer, weights)
    check_parts(chosen, content.record, given)
    if chosen.memory != "none":
        check_memory(chosen.memory, content.record)
    for name, seconds in (("budget", budget), ("max_seconds", max_seconds)):
        time_limit(seconds, name)  # refuses what is no time
    _check_listeners(listeners)
    environment = runtime.prepare(chosen.threads, chosen.replicas)
    if budget is not None:
        chosen = plan(chosen, content, given, budget - (time.monotonic() - began))
        budget -= time.monotonic() - began
    run = create_run(path, chosen, content.record, environment, given)
    with removed_unless_begun(run), run.locked():
        return _to_end(run, content, listeners, progress, max_seconds, budget)


def resume(
    path: Path | str,
    *,
    data: Dataset | None = None,
    model: SequenceModel | None = None,
    optimizer: GradientTransformation | None = None,
    listeners: Sequence[Listener] = (),
    progress: bool = False,
    max_epochs: int | None = None,
    max_seconds: float | None = None,
    accept_environment: bool = False,
) -> Trained:
    """Continue a run exactly where it stopped.

    `max_epochs` is a new maximum number of epochs: a larger one continues a run that reached its last epoch. A model or
    optimizer passed to `train` must be passed again. Data that differ from those the run started with are refused, and
    so are other versions, kernels or threads, with which the run would not end in the same bytes, unless
    `accept_environment`.
    """
    run = Run.open(_path(path, "path"), Given(model, optimizer))
    content = _data_of(run, data)
    time_limit(max_seconds)  # refuses what is no time
    _check_listeners(listeners)
    environment = runtime.prepare(run.config.threads, run.config.replicas)
    with run.locked():
        continue_in(run, environment, max_epochs=max_epochs, accept=accept_environment)
        return _to_end(run, content, listeners, progress, max_seconds)


def open_run(path: Path | str, *, model: SequenceModel | None = None, data: Dataset | None = None) -> Trained:
    """Load the best weights of a run.

    If the run was trained with your own `model`, pass one of the same structure again, to be filled with the weights.
    """
    run = Run.open(_path(path, "path"), Given(model))
    if data is not None:
        run.check_data(data)
    runtime.prepare(run.config.threads)
    return Trained(run, trained_model(run), data)


def diagnose(
    run: Trained | Path | str, split: str = "valid", *, lags: int = LAGS, data: Dataset | None = None
) -> Diagnosis:
    """Measure how far a model remembers and how it was trained, and name what is wrong: `longspan diagnose`.

    Args:
        run: a trained model, or the path of a run folder.
        split: the split on whose sequences the model is run.
        lags: how many steps back gradients are followed.
        data: the data the run was trained on, if they cannot be loaded by name.
    """
    return (run if isinstance(run, Trained) else open_run(run)).diagnose(split, lags=lags, data=data)


def _config(
    recipe: str | None, content: Dataset, config: TrainConfig | None, settings: dict, optimizer: str | None
) -> TrainConfig:
    if recipe is not None and config is not None:
        raise InputError("a recipe and a config were given: expected one of them", fields=["recipe", "config"])
    if config is not None and not isinstance(config, TrainConfig):
        raise InputError(f"expected a TrainConfig as config, got {type(config).__name__}", fields=["config"])
    unknown = sorted(set(settings) - FIELDS)
    if unknown:
        close = difflib.get_close_matches(unknown[0], FIELDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(f"unknown setting {unknown[0]!r}: expected a field of TrainConfig{hint}")
    if config is not None:
        return dataclasses.replace(config, data=content.name, **settings)
    kind = content.target_kind
    chosen: recipes.Choices = {
        "optimizer": optimizer,
        "momentum": settings.get("momentum"),
        "cell": settings.get("cell"),
    }
    shipped = recipes.settings(recipe or USUAL[kind], content.name, kind, **chosen)
    return dataclasses.replace(shipped, **settings)


def _data_of(run: Run, given: Dataset | None) -> Dataset:
    if given is None and not _found_by_name(run):
        raise InputError(f"{run.config.data!r} cannot be loaded by name: pass the data set itself", fields=["data"])
    content = data_room.load(run.config.data, span=run.config.span) if given is None else _made(given)
    run.check_data(content)
    return content.with_cues(run.config.cues, run.config.cue_dropout)


def _made(data: Dataset) -> Dataset:
    if not isinstance(data, Dataset):
        raise InputError(
            f"expected the name of a data set or a longspan.Dataset, got {type(data).__name__}", fields=["data"]
        )
    return check_dataset(data)


def _path(given: Path | str, name: str) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"expected a path as {name}, got {given!r}", fields=[name])
    return Path(given)


def _check_listeners(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        if not isinstance(listener, Listener):
            raise InputError(f"expected longspan.training.listeners.Listener objects as listeners, got {listener!r}")


def _found_by_name(run: Run) -> bool:
    try:
        return bool(data_room.library.target_kind(run.config.data))
    except InputError:
        return False


def _to_end(
    run: Run,
    content: Dataset,
    listeners: Sequence[Listener],
    progress: bool,
    max_seconds: float | None,
    budget: float | None = None,
) -> Trained:
    time_up = time_limit(max_seconds)
    with ExitStack() as shown:
        display = [shown.enter_context(TrainingDisplay(run))] if progress else []
        to_end = run_training if budget is None else functools.partial(train_in, budget)
        outcome = to_end(run, content, listeners=[*display, *listeners], interrupted=time_up)
    if outcome.status == "diverged":
        raise Diverged(f"the run diverged at {outcome.reason}")
    name = run.config.memory if run.config.memory != "none" else run.memory_name
    if outcome.status == "done" and name is not None:
        remember(run, name, outcome.model, content)
    return Trained(run, outcome.model, content)
