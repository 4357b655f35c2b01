"""The training loop, readable from top to bottom: blocks of chunks, a validation after each epoch, checkpoints.

Everything that determines the next update is in `TrainingState`, which is exactly what a checkpoint stores, so a run
killed at any moment resumes to the same bytes. Display is left to listeners.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import msgspec
import numpy as np

from longspan.config import TrainConfig
from longspan.data.dataset import Dataset
from longspan.errors import Diverged, InputError
from longspan.evaluation import SplitEvaluator
from longspan.files import discard
from longspan.models.model import SequenceModel, trained_part, whole
from longspan.optim.blocks import BlockOptimizer, Info
from longspan.optim.conjugate_gradient import Interrupted
from longspan.optim.transforms import running_mean
from longspan.probes.units import Watch
from longspan.training.listeners import Listener
from longspan.training.objective import Context, Objective
from longspan.training.optimizers import Purpose, optimizer_of
from longspan.training.pretraining import pretrain
from longspan.training.runs import Run
from longspan.training.seals import (
    discard_newer_checkpoints,
    newest_checkpoint,
    newest_checkpoint_number,
    write_checkpoint,
)
from longspan.training.setup import (
    ChunkSource,
    OutOfMemory,
    check_memory,
    clip_threshold,
    explain_lack_of_memory,
    first_carry,
    first_model,
    model_shape,
)
from longspan.training.state import Decision, Progress, TrainingState, cooled, copied, decide, to_named

LAST_EPOCH = "reached {} epochs"


@dataclass(frozen=True)
class Outcome:
    """How training ended, why, and the weights with the best validation score."""

    status: Literal["done", "interrupted", "diverged"]
    reason: str
    model: SequenceModel


class Judged(NamedTuple):
    """Validation of an epoch: log-likelihood, errors, and the errors below which the data count as solved."""

    score: float
    errors: dict[str, float]
    solved_below: dict[str, float]
    watched: dict[str, Any]
    """What the config asks to be watched."""

    @property
    def solved(self) -> str | None:
        """The reason to stop if the data are solved; None if they are not."""
        for name, limit in self.solved_below.items():
            if self.errors.get(name, math.inf) < limit:
                return f"solved: {self.errors[name]:.1%} of the validation sequences are wrong"
        return None


class _Saver:
    """Writes checkpoints and remembers when the last one was written."""

    def __init__(self, run: Run, seconds: float):
        self.folder, self.seconds, self.saved = run.path / "checkpoints", seconds, time.monotonic()

    def save(self, state: TrainingState) -> None:
        write_checkpoint(self.folder, state.progress.step, state.arrays(), state.progress)
        self.saved = time.monotonic()

    def save_if_due(self, state: TrainingState) -> None:
        if time.monotonic() - self.saved > self.seconds:
            self.save(state)


def train(
    run: Run,
    data: Dataset,
    *,
    listeners: Sequence[Listener] = (),
    interrupted: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 60.0,
) -> Outcome:
    """Train a run from the state in its folder, to its end or until `interrupted()`.

    Args:
        run: the run folder, whose config determines everything.
        data: the data set that the config names.
        listeners: called after every block and every epoch.
        interrupted: called after every block and during long updates; returns whether to save and stop.
        checkpoint_seconds: longest time between two checkpoints; one is also written after every epoch.
    """
    check_memory(run.config, run.data, model_shape(run))
    try:
        with explain_lack_of_memory():
            return _train(run, data, listeners, interrupted, checkpoint_seconds)
    except OutOfMemory as error:
        run.set_status("interrupted", str(error))
        raise


def continue_in(run: Run, environment: dict, *, max_epochs: int | None = None, accept: bool = False) -> None:
    """Prepare a locked run for more training in an environment, and with another maximum of epochs if one is given.

    What is refused has changed nothing: other environments unless they are accepted, and fewer epochs than were made.
    """
    config = run.config if max_epochs is None else dataclasses.replace(run.config, max_epochs=max_epochs)
    newest = None if max_epochs is None else newest_checkpoint(run.path / "checkpoints", Progress)
    if newest is not None:
        made, goes_on = newest.progress.epoch, newest.progress.stop is None
        least = made + goes_on
        if config.max_epochs < least:
            raise InputError(
                f"{run.path} has made {made} epochs{' and is to go on' if goes_on else ''}: expected max_epochs of at "
                f"least {least}, got {max_epochs}",
                fields=["max_epochs"],
            )
    run.continue_in(environment, accept=accept)
    if max_epochs is not None:
        run.config = config
        run.write_config()


@contextmanager
def removed_unless_begun(run: Run) -> Iterator[None]:
    """Remove the folder of a new run if something, such as a cell of the user's own, fails before any update is saved.

    Nothing is lost with it, and it would stand in the way of the next attempt. Runs that diverged, or that were told to
    stop, say so in their status and stay; so do those that a full disk or the like ended, because they can be resumed.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
            raise
        if run.status == "running" and newest_checkpoint_number(run.path / "checkpoints") <= 0:
            discard(run.path)
        raise


def _train(
    run: Run,
    data: Dataset,
    listeners: Sequence[Listener],
    interrupted: Callable[[], bool],
    checkpoint_seconds: float,
) -> Outcome:
    config = run.config
    model = first_model(run, data.base_rates())
    source = ChunkSource(config, data)
    run.remove_leftovers()
    run.set_status("running")
    if not run.has_checkpoint and (config.pretrain_recurrent or config.pretrain_frames):
        try:
            model = _pretrained(run, model, source, listeners, interrupted)
        except Interrupted:
            run.set_status("interrupted", "asked to stop")
            return Outcome("interrupted", "asked to stop", model)
    params, constants = trained_part(model)
    context = Context(constants, jax.random.key(config.seed))
    valid = SplitEvaluator(data, "valid")
    watch = Watch(data, config.watch_lags) if config.watch_lags else None
    saver = _Saver(run, checkpoint_seconds)
    state, optimizer = _fresh_or_resumed(run, model, params, source, context, saver, interrupted)

    def outcome(status: Literal["done", "interrupted", "diverged"], reason: str) -> Outcome:
        run.set_status(status, reason)
        return Outcome(status, reason, whole(state.best, constants))

    def after_block(info: Info, count: int, total: int) -> None:
        for listener in listeners:
            listener.on_block(state.progress, info, count, total)
        if interrupted():
            raise Interrupted
        saver.save_if_due(state)

    began, processor_began = time.monotonic(), time.process_time()
    try:
        while state.progress.stop is None:
            _descend_epoch(state, optimizer, source, context, after_block)
            trained = whole(state.judged, constants)
            score, errors = valid.log_likelihood(trained), valid.errors(trained)
            judged = Judged(score, errors, data.solved_below, watch(trained) if watch else {})
            record = _finish_epoch(run, state, optimizer, judged, constants)
            saver.save(state)
            seconds = time.monotonic() - began
            spent = {"seconds": seconds, "processor_seconds": time.process_time() - processor_began}
            run.append_timing({"epoch": record["epoch"], **spent})
            for listener in listeners:
                listener.on_epoch(record, seconds)
    except Interrupted:  # an unfinished update has changed nothing
        saver.save(state)
        return outcome("interrupted", "asked to stop")
    except Diverged as error:
        return outcome("diverged", f"{error}; {optimizer_of(run).advice}")
    return outcome("done", state.progress.stop)


def _descend_epoch(
    state: TrainingState,
    optimizer: BlockOptimizer,
    source: ChunkSource,
    context: Context,
    after_block: Callable[[Info, int, int], None],
) -> None:
    """Run the remaining blocks of the epoch; `after_block` may stop it between blocks."""
    chunks = source.epoch(state.progress.epoch)
    left = _chunks_left(source.config, state.progress, optimizer.update_is_a_block)
    total = min(len(chunks.lengths), state.progress.position + left)
    while state.progress.position < total:
        block, count = source.block(chunks, state.progress.position)
        count = min(count, total - state.progress.position)
        if source.config.cooldown > 0:
            scale = state.progress.schedule.scale * cooled(state.progress.step, source.config)
            state.optimizer = optimizer.rescaled(state.optimizer, scale)
        state.params, state.optimizer, state.carry, info = optimizer.advance(
            state.params, state.optimizer, state.carry, block, count, context
        )
        _refuse_non_finite(info, state.progress)
        state.progress = state.progress.after(info, block, count)
        if state.mean is not None:
            made, since = state.progress.step, int(info.updates)
            reach = source.config.averaging
            state.mean = running_mean(state.mean, state.params, made=made, since=since, reach=reach)
        after_block(info, count, total)
    if not state.progress.steps_sum:  # of a checkpoint that was not written by a run
        raise InputError(
            f"a checkpoint ends epoch {state.progress.epoch + 1} at chunk {state.progress.position}, but no step of it "
            "counted: restore an earlier one or start again"
        )


def _chunks_left(config: TrainConfig, progress: Progress, update_is_a_block: bool) -> int:
    """Number of chunks until `max_updates` is reached."""
    if config.max_updates == 0:
        return sys.maxsize
    return (config.max_updates - progress.step) * (config.block if update_is_a_block else 1)


def _fresh_or_resumed(
    run: Run,
    model: SequenceModel,
    params: SequenceModel,
    source: ChunkSource,
    context: Context,
    saver: _Saver,
    interrupted: Callable[[], bool],
) -> tuple[TrainingState, BlockOptimizer]:
    carry = first_carry(model, run.config)
    newest = newest_checkpoint(run.path / "checkpoints", Progress)
    if newest is None:
        progress = Progress(clip_threshold(run.config, params, carry, source, context))
    else:
        progress = newest.progress
        discard_newer_checkpoints(run.path / "checkpoints", progress.step)
    run.truncate_metrics(progress.metrics_size)
    objective = Objective.of(run.config, source.counted_steps)
    optimizer = optimizer_of(run).make(Purpose.of(run.config, objective, progress.threshold, interrupted))
    best = copied(params)  # the optimizer consumes params
    mean = best if run.config.averaging > 0 else None
    state = TrainingState(params, optimizer.init(params), carry, best, progress, mean)
    if newest is None:
        saver.save(state)  # so that resuming never repeats the pretraining
    else:
        state = state.with_arrays(newest.arrays)
        if progress.schedule.best is not None and not run.has_good_model:
            run.write_model(to_named(whole(state.best, context.constants)))
    if progress.stop == LAST_EPOCH.format(progress.epoch) and progress.epoch < run.config.max_epochs:
        # A run that ended at its last epoch continues if max_epochs has been raised since.
        state.progress = msgspec.structs.replace(progress, stop=None)
    return state, optimizer


def _pretrained(
    run: Run,
    model: SequenceModel,
    source: ChunkSource,
    listeners: Sequence[Listener],
    interrupted: Callable[[], bool],
) -> SequenceModel:
    def on_epoch(what: str) -> None:
        for listener in listeners:
            listener.on_pretraining(what)
        if interrupted():
            raise Interrupted

    return pretrain(run.config, model, source, on_epoch)


def _finish_epoch(run: Run, state: TrainingState, optimizer: BlockOptimizer, judged: Judged, constants) -> dict:
    """Judge the epoch, keep or restore weights, and write its metrics; return the record."""
    progress, config, exact = state.progress, run.config, state.params.output.exact
    score = judged.score
    hopeless = run.data.hopeless
    if not math.isfinite(score) or (hopeless is not None and score < hopeless):
        raise Diverged(f"epoch {progress.epoch + 1}: its validation score is {score:.4g}")
    decision = decide(progress.schedule, score, progress.epoch + 1, config)
    if judged.solved:
        decision = msgspec.structs.replace(decision, is_best=True, restore_best=False, stop=judged.solved)
    record = {
        "epoch": progress.epoch + 1,
        "step": progress.step,
        # An output without an exact likelihood is trained on a different objective.
        "train_log_likelihood": progress.train_log_likelihood - run.data.log_volume if exact else None,
        "valid_log_likelihood": score,
        **{f"valid_{name}": value for name, value in judged.errors.items()},
        "exact": exact,
        "best": decision.is_best,
        **progress.figures(),
        **judged.watched,
    }
    _carry_out(decision, state, optimizer)
    if decision.is_best:
        run.write_model(to_named(whole(state.best, constants)))
    stop = decision.stop
    if stop is None and progress.step == config.max_updates:
        stop = f"reached {config.max_updates} updates"
    if stop is None and progress.epoch + 1 >= config.max_epochs:
        stop = LAST_EPOCH.format(config.max_epochs)
    state.progress = Progress(
        threshold=progress.threshold,
        epoch=progress.epoch + 1,
        step=progress.step,
        schedule=decision.schedule,
        metrics_size=run.append_metrics(record),
        stop=stop,
    )
    return record


def _carry_out(decision: Decision, state: TrainingState, optimizer: BlockOptimizer) -> None:
    if decision.is_best:
        state.best = copied(state.judged)
    state.optimizer = optimizer.rescaled(state.optimizer, decision.schedule.scale)
    if decision.restore_best:
        state.params = copied(state.best)
        state.mean = None if state.mean is None else state.best
        state.optimizer = optimizer.restarted(state.optimizer)


def _refuse_non_finite(info: Info, progress: Progress) -> None:
    figures = {name: np.asarray(values, float) for name, values in info.of_updates().items()}
    finite = np.all([np.isfinite(values) for values in figures.values()], axis=0)
    if not finite.all():
        first = int(np.argmin(finite))
        said = ", ".join(f"{name.replace('_', ' ')} {values[first]:g}" for name, values in figures.items())
        raise Diverged(f"update {progress.step + first + 1} (epoch {progress.epoch + 1}): {said}")
