"""The training loop, to be read from top to bottom: blocks of chunks, a validation after each epoch, checkpoints.

Everything that decides the next update is in `TrainingState`, and a checkpoint is exactly that, so a run killed at
any moment goes on to the same bytes. What a person sees of it is left to listeners.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from longspan.data.kinds import Data
from longspan.data.synthetic import WRONG_SHARE
from longspan.evaluation import SplitEvaluator
from longspan.models.parameters import split_constants, to_named
from longspan.models.sequence import SequenceModel
from longspan.optim.averaging import running_mean
from longspan.optim.conjugate_gradient import Interrupted
from longspan.optim.interface import BlockOptimizer, Info
from longspan.training import checkpoints
from longspan.training.objective import Context, Objective
from longspan.training.pretraining import pretrain
from longspan.training.runs import Run
from longspan.training.schedule import Decision, decide
from longspan.training.setup import ADVICE, clip_threshold, first_carry, initial_model, make_optimizer
from longspan.training.source import ChunkSource, base_rates
from longspan.training.state import Progress, TrainingState

LAST_EPOCH = "reached {} epochs"


class Listener:
    """Whoever watches a run; each of these may be left as it is."""

    def on_pretraining(self, what: str) -> None:
        """A pass of a pretraining is done."""

    def on_block(self, progress: Progress, info: Info, count: int, total: int) -> None:
        """A block of `count` chunks is done, of an epoch of `total`."""

    def on_epoch(self, record: dict, seconds: float) -> None:
        """An epoch is done and validated; `seconds` since this process began to train."""


@dataclass(frozen=True)
class Outcome:
    """How training ended, why, and the weights with the best validation score."""

    status: Literal["done", "interrupted", "diverged"]
    reason: str
    model: SequenceModel


class Diverged(Exception):
    """The loss, its gradient or the validation score was not finite."""


class _Saver:
    """Writes checkpoints, and knows when the last one was written."""

    def __init__(self, run: Run, seconds: float):
        self.folder, self.seconds, self.saved = run.path / "checkpoints", seconds, time.monotonic()

    def save(self, state: TrainingState) -> None:
        checkpoints.write(self.folder, state.progress.step, state.arrays(), state.progress)
        self.saved = time.monotonic()

    def save_if_due(self, state: TrainingState) -> None:
        if time.monotonic() - self.saved > self.seconds:
            self.save(state)


def train(
    run: Run,
    data: Data,
    *,
    listeners: Sequence[Listener] = (),
    interrupted: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 60.0,
) -> Outcome:
    """Train a run from where its folder stands, to its end or until `interrupted()`.

    Args:
        run: the folder; its config decides everything.
        data: the data set the config names.
        listeners: told of every block and every epoch.
        interrupted: asked after every block, and within long updates, whether to save and stop.
        checkpoint_seconds: longest time between two checkpoints; one is also written after every epoch.
    """
    config = run.config
    model = initial_model(config, run.data, base_rates(data))
    source = ChunkSource(config, data)
    run.set_status("running")
    if not run.has_checkpoint:
        try:
            model = _pretrained(run, model, source, listeners, interrupted)
        except Interrupted:
            run.set_status("interrupted", "asked to stop")
            return Outcome("interrupted", "asked to stop", model)
    params, constants = split_constants(model)
    context = Context(constants, jax.random.key(config.seed))
    valid = SplitEvaluator(data, "valid")
    saver = _Saver(run, checkpoint_seconds)
    state, optimizer = _fresh_or_resumed(run, model, params, source, context, saver, interrupted)

    def outcome(status: Literal["done", "interrupted", "diverged"], reason: str) -> Outcome:
        run.set_status(status, reason)
        return Outcome(status, reason, eqx.combine(state.best, constants))

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
            trained = eqx.combine(state.judged, constants)
            score, errors = valid.log_likelihood(trained), valid.errors(trained)
            record = _finish_epoch(run, state, optimizer, score, errors, constants)
            saver.save(state)
            seconds = time.monotonic() - began
            spent = {"seconds": seconds, "processor_seconds": time.process_time() - processor_began}
            run.append_timing({"epoch": record["epoch"], **spent})
            for listener in listeners:
                listener.on_epoch(record, seconds)
    except Interrupted:  # an update that was not finished has changed nothing
        saver.save(state)
        return outcome("interrupted", "asked to stop")
    except Diverged as error:
        return outcome("diverged", f"{error}; {ADVICE[config.optimizer]}")
    return outcome("done", state.progress.stop)


def _descend_epoch(
    state: TrainingState,
    optimizer: BlockOptimizer,
    source: ChunkSource,
    context: Context,
    after_block: Callable[[Info, int, int], None],
) -> None:
    """The blocks of the epoch that are still to do; `after_block` may stop it between two of them."""
    chunks = source.epoch(state.progress.epoch)
    total = len(chunks.lengths)
    while state.progress.position < total:
        block, count = source.block(chunks, state.progress.position)
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
    newest = checkpoints.read_newest(run.path / "checkpoints", Progress)
    if newest is None:
        progress = Progress(clip_threshold(run.config, params, carry, source, context))
    else:
        progress = newest.progress
        checkpoints.discard_newer(run.path / "checkpoints", progress.step)
    run.truncate_metrics(progress.metrics_size)
    objective = Objective.of(run.config, source.counted_steps)
    optimizer = make_optimizer(run.config, objective, progress.threshold, interrupted)
    best = jax.tree.map(jnp.copy, params)  # the optimizer consumes params
    mean = best if run.config.averaging > 0 else None
    state = TrainingState(params, optimizer.init(params), carry, best, progress, mean)
    if newest is None:
        saver.save(state)  # so that resuming never repeats a pretraining
    else:
        state = state.with_arrays(newest.arrays)
    if progress.stop == LAST_EPOCH.format(progress.epoch) and progress.epoch < run.config.max_epochs:
        # A run that ended at its last epoch and has since been allowed more goes on.
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

    return pretrain(run.config, model, source.content, source, on_epoch)


def _finish_epoch(
    run: Run, state: TrainingState, optimizer: BlockOptimizer, score: float, errors: dict[str, float], constants
) -> dict:
    """Judge the epoch, keep or restore weights, and write what it came to."""
    progress, config, exact = state.progress, run.config, state.params.output.exact
    if not math.isfinite(score):
        raise Diverged(f"the validation score after epoch {progress.epoch + 1} is {score}")
    decision = decide(progress.schedule, score, progress.epoch + 1, config)
    if errors and errors["error_rate"] < WRONG_SHARE:
        reason = f"solved: {errors['error_rate']:.1%} of the validation sequences are wrong"
        decision = msgspec.structs.replace(decision, is_best=True, restore_best=False, stop=reason)
    record = {
        "epoch": progress.epoch + 1,
        "step": progress.step,
        # What an output without an exact likelihood descends is something else than its likelihood.
        "train_log_likelihood": progress.train_log_likelihood if exact else None,
        "valid_log_likelihood": score,
        **{f"valid_{name}": value for name, value in errors.items()},
        "exact": exact,
        "best": decision.is_best,
        **progress.figures(),
    }
    _carry_out(decision, state, optimizer)
    if decision.is_best:
        run.write_model(to_named(eqx.combine(state.best, constants)))
    stop = decision.stop
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
        state.best = jax.tree.map(jnp.copy, state.judged)
    state.optimizer = optimizer.rescaled(state.optimizer, decision.schedule.scale)
    if decision.restore_best:
        state.params = jax.tree.map(jnp.copy, state.best)
        state.mean = None if state.mean is None else state.best
        state.optimizer = optimizer.restarted(state.optimizer)


def _refuse_non_finite(info: Info, progress: Progress) -> None:
    figures = {name: np.asarray(values, float) for name, values in info.of_updates().items()}
    finite = np.all([np.isfinite(values) for values in figures.values()], axis=0)
    if not finite.all():
        first = int(np.argmin(finite))
        said = ", ".join(f"{name.replace('_', ' ')} {values[first]:g}" for name, values in figures.items())
        raise Diverged(f"update {progress.step + first + 1} (epoch {progress.epoch + 1}): {said}")
