"""The training loop, to be read from top to bottom: blocks of chunks, a validation after each epoch, checkpoints.

Everything that decides the next update is in `TrainingState`, and a checkpoint is exactly that, so a run killed at
any moment goes on to the same bytes. What a person sees of it is left to the listener.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from longspan.config import TrainConfig
from longspan.data.sequences import Chunks, arrange, song_order
from longspan.evaluation import SplitEvaluator
from longspan.models.parameters import from_named, split_constants, to_named
from longspan.models.sequence import SequenceModel, build
from longspan.optim.first_order import FirstOrder, FirstOrderState, Info
from longspan.optim.nesterov import inverse_decay, ramp
from longspan.training import checkpoints
from longspan.training.objective import Carry, Context, Objective
from longspan.training.pretraining import pretrain
from longspan.training.runs import DataRecord, Run
from longspan.training.schedule import Decision, Schedule, decide


class Progress(msgspec.Struct, frozen=True):
    """The numbers beside the arrays of a checkpoint."""

    threshold: float | None
    """Gradient norm that is clipped to, None for no clipping; what `auto` came out as."""
    epoch: int = 0
    position: int = 0
    """Chunks done in this epoch."""
    step: int = 0
    loss_sum: float = 0.0
    steps_sum: int = 0
    norm_sum: float = 0.0
    clipped: int = 0
    schedule: Schedule = Schedule()
    metrics_size: int = 0
    stop: str | None = None

    def after(self, info: Info, chunks: Chunks, count: int) -> "Progress":
        """Progress after a block of `count` chunks."""
        return msgspec.structs.replace(
            self,
            position=self.position + count,
            step=self.step + count,
            loss_sum=self.loss_sum + _sum(info.observed[:count]),
            steps_sum=self.steps_sum + int(chunks.mask[:count].sum()),
            norm_sum=self.norm_sum + _sum(info.norm[:count]),
            clipped=self.clipped + int(info.clipped[:count].sum()),
        )


@dataclass
class TrainingState:
    """All that decides what happens next."""

    params: SequenceModel
    optimizer: FirstOrderState
    carry: Carry
    best: SequenceModel
    progress: Progress

    def arrays(self) -> dict[str, np.ndarray]:
        return to_named(self._tree())

    def with_arrays(self, arrays: dict[str, np.ndarray], progress: Progress) -> "TrainingState":
        return TrainingState(**from_named(self._tree(), arrays), progress=progress)

    def _tree(self) -> dict[str, Any]:
        return {"params": self.params, "optimizer": self.optimizer, "carry": self.carry, "best": self.best}


class Listener(Protocol):
    """Whoever shows a run to a person."""

    def on_pretraining(self, what: str) -> None: ...

    def on_block(self, progress: Progress, info: Info, count: int, total: int) -> None: ...

    def on_epoch(self, record: dict, seconds: float) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """How training ended: `done`, `interrupted` or `diverged`, and why."""

    status: str
    reason: str
    model: SequenceModel
    """The weights with the best validation score."""


class Diverged(Exception):
    """The loss or its gradient was not finite."""


class Interrupted(Exception):
    """Somebody asked to stop before there was anything to save."""


def train(
    run: Run,
    data,
    *,
    listener: Listener,
    interrupted: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 60.0,
) -> Outcome:
    """Train a run from where its folder stands, to its end or until `interrupted()`."""
    config = run.config
    model = initial_model(config, run.data, base_rates(data))
    valid = SplitEvaluator(data, "valid")
    source = ChunkSource(config, data)
    run.set_status("running")
    if not run.has_checkpoint:
        try:
            model = _pretrained(run, model, source, listener, interrupted)
        except Interrupted:
            run.set_status("interrupted", "asked to stop")
            return Outcome("interrupted", "asked to stop", model)
    params, constants = split_constants(model)
    context = Context(constants, jax.random.key(config.seed))
    state, optimizer = _fresh_or_resumed(run, params, model, source, context)
    last_saved = time.monotonic()
    started = time.monotonic()
    try:
        while state.progress.stop is None:
            chunks = source.epoch(state.progress.epoch)
            total = len(chunks.lengths)
            while state.progress.position < total:
                block, count = source.block(chunks, state.progress.position)
                state.params, state.optimizer, state.carry, info = optimizer.advance(
                    state.params, state.optimizer, state.carry, block, count, context
                )
                _refuse_non_finite(info, count, state.progress)
                state.progress = state.progress.after(info, block, count)
                listener.on_block(state.progress, info, count, total)
                if interrupted():
                    _save(run, state)
                    run.set_status("interrupted", "asked to stop")
                    return Outcome("interrupted", "asked to stop", eqx.combine(state.best, constants))
                if time.monotonic() - last_saved > checkpoint_seconds:
                    _save(run, state)
                    last_saved = time.monotonic()
            score = valid.log_likelihood(eqx.combine(state.params, constants))
            record = _finish_epoch(run, state, score, config, constants, exact=model.output.exact)
            _save(run, state)
            last_saved = time.monotonic()
            listener.on_epoch(record, time.monotonic() - started)
            run.append_timing({"epoch": record["epoch"], "seconds": time.monotonic() - started})
    except Diverged as error:
        run.set_status("diverged", str(error))
        return Outcome("diverged", str(error), eqx.combine(state.best, constants))
    run.set_status("done", state.progress.stop or "")
    return Outcome("done", state.progress.stop or "", eqx.combine(state.best, constants))


def initial_model(config: TrainConfig, data: DataRecord, rates: np.ndarray) -> SequenceModel:
    """The model a run starts from: a pure function of its config and how often each target occurs."""
    return build(config, data.size, rates, key=jax.random.key(config.seed))


def trained_model(run: Run) -> SequenceModel:
    """The best weights of a run, without its data."""
    like = jax.eval_shape(lambda: initial_model(run.config, run.data, np.full(run.data.size, 0.5)))
    return from_named(like, run.read_model())


def base_rates(data) -> np.ndarray:
    """How often each key is on, or each symbol occurs, in the training split."""
    if data.kind == "music":
        return np.concatenate(data.splits["train"]).mean(axis=0)
    counts = np.bincount(data.splits["train"], minlength=len(data.vocabulary))
    return counts / counts.sum()


class ChunkSource:
    """The training split as chunks, in the order of an epoch."""

    def __init__(self, config: TrainConfig, data):
        self.config = config
        self.content = data.splits["train"]
        self.fixed = arrange(self.content, config.chunk_length, config.lanes) if data.kind == "text" else None

    def epoch(self, number: int) -> Chunks:
        """All chunks of an epoch: songs in an order that only seed and epoch decide; a text has only one order."""
        if self.fixed is not None:
            return self.fixed
        order = song_order(len(self.content), self.config.seed, number)
        return arrange(self.content, self.config.chunk_length, self.config.lanes, order)

    def block(self, chunks: Chunks, position: int) -> tuple[Chunks, int]:
        """A full block from `position` on and how many of its chunks count; the rest is filler of the same shape."""
        count = min(self.config.block, len(chunks.lengths) - position)
        index = np.resize(np.arange(position, position + count), self.config.block)
        return Chunks(*(leaf[index] for leaf in chunks)), count


def make_optimizer(config: TrainConfig, threshold: float | None) -> FirstOrder:
    """The first-order optimizer a config describes."""
    rate = config.learning_rate
    if config.learning_rate_schedule == "inverse":
        rate = inverse_decay(config.learning_rate, config.decay_steps)
    momentum = ramp(config.momentum) if config.momentum_schedule == "ramp" else config.momentum
    return FirstOrder(Objective.of(config), rate, momentum, math.inf if threshold is None else threshold)


def average_norm(params: SequenceModel, model: SequenceModel, source: ChunkSource, context: Context) -> float:
    """Mean gradient norm over one pass of the data at fixed weights: the paper's rule for the clip threshold."""
    observer = FirstOrder(Objective.of(source.config), 0.0, 0.0, math.inf)
    carry = Carry(model.start(source.config.lanes), jnp.zeros((), jnp.int32))
    params = jax.tree.map(jnp.copy, params)  # the optimizer consumes what it is given
    state = observer.init(params)
    chunks = source.epoch(0)
    total = 0.0
    for position in range(0, len(chunks.lengths), source.config.block):
        block, count = source.block(chunks, position)
        params, state, carry, info = observer.advance(params, state, carry, block, count, context)
        total += _sum(info.norm[:count])
    return total / len(chunks.lengths)


def _fresh_or_resumed(
    run: Run, params: SequenceModel, model: SequenceModel, source: ChunkSource, context: Context
) -> tuple[TrainingState, FirstOrder]:
    folder = run.path / "checkpoints"
    if run.has_checkpoint:
        arrays, progress, _ = checkpoints.read_newest(folder, Progress)
        checkpoints.discard_newer(folder, progress.step)
        run.truncate_metrics(progress.metrics_size)
    else:
        threshold = _threshold(run.config, params, model, source, context)
        arrays, progress = None, Progress(threshold)
        run.truncate_metrics(0)
    optimizer = make_optimizer(run.config, progress.threshold)
    carry = Carry(model.start(run.config.lanes), jnp.zeros((), jnp.int32))
    best = jax.tree.map(jnp.copy, params)  # the optimizer consumes params
    state = TrainingState(params, optimizer.init(params), carry, best, progress)
    if arrays is None:
        _save(run, state)  # so that resuming never repeats a pretraining
    else:
        state = state.with_arrays(arrays, progress)
        if progress.stop is not None and _may_go_on(run.config, progress):
            state.progress = msgspec.structs.replace(progress, stop=None)
    return state, optimizer


def _pretrained(
    run: Run, model: SequenceModel, source: "ChunkSource", listener: Listener, interrupted
) -> SequenceModel:
    def on_epoch(what: str) -> None:
        listener.on_pretraining(what)
        if interrupted():
            raise Interrupted

    return pretrain(run.config, model, source.content, source, on_epoch)


def _may_go_on(config: TrainConfig, progress: Progress) -> bool:
    """Whether a run that ended at its last epoch has since been allowed more."""
    return progress.schedule.stale < config.patience and progress.epoch < config.max_epochs


def _threshold(config, params, model, source, context) -> float | None:
    if config.clip == "none":
        return None
    if config.clip == "auto":
        return average_norm(params, model, source, context)
    return float(config.clip)


def _finish_epoch(run: Run, state: TrainingState, score: float, config: TrainConfig, constants, *, exact: bool) -> dict:
    """Judge the epoch, keep or restore weights, and write what it came to."""
    progress = state.progress
    if not math.isfinite(score):
        raise Diverged(f"the validation score after epoch {progress.epoch + 1} is {score}; {ADVICE}")
    decision = decide(progress.schedule, score, progress.epoch + 1, config)
    record = _record(progress, score, config, decision, exact=exact)
    _apply(decision, state)
    if decision.is_best:
        run.write_model(to_named(eqx.combine(state.best, constants)))
    stop = decision.stop
    if stop is None and progress.epoch + 1 >= config.max_epochs:
        stop = f"reached {config.max_epochs} epochs"
    state.progress = Progress(
        threshold=progress.threshold,
        epoch=progress.epoch + 1,
        step=progress.step,
        schedule=decision.schedule,
        metrics_size=run.append_metrics(record),
        stop=stop,
    )
    return record


def _record(progress: Progress, score: float, config: TrainConfig, decision: Decision, *, exact: bool) -> dict:
    """What an epoch came to; an output whose likelihood is not exact descends something else than it."""
    return {
        "epoch": progress.epoch + 1,
        "step": progress.step,
        "train_log_likelihood": -progress.loss_sum / progress.steps_sum if exact else None,
        "valid_log_likelihood": score,
        "exact": exact,
        "best": decision.is_best,
        "gradient_norm": progress.norm_sum / progress.position,
        "clipped": progress.clipped / progress.position,
        "learning_rate": config.learning_rate * progress.schedule.scale,
    }


def _apply(decision: Decision, state: TrainingState) -> None:
    if decision.is_best:
        state.best = jax.tree.map(jnp.copy, state.params)
    scale = jnp.asarray(decision.schedule.scale, jnp.float32)
    nesterov = state.optimizer.nesterov._replace(scale=scale)
    if decision.restore_best:
        state.params = jax.tree.map(jnp.copy, state.best)
        nesterov = nesterov._replace(velocity=jax.tree.map(jnp.zeros_like, nesterov.velocity))
    state.optimizer = state.optimizer._replace(nesterov=nesterov)


ADVICE = "lower --learning-rate, clip harder (--clip 1) or start smaller (--recurrent-scale 0.5)"


def _refuse_non_finite(info: Info, count: int, progress: Progress) -> None:
    finite = np.isfinite(info.loss[:count]) & np.isfinite(info.norm[:count])
    if not finite.all():
        first = int(np.argmin(finite))
        raise Diverged(
            f"update {progress.step + first + 1} (epoch {progress.epoch + 1}): loss {float(info.loss[first]):g}, "
            f"gradient norm {float(info.norm[first]):g}; {ADVICE}"
        )


def _save(run: Run, state: TrainingState) -> None:
    checkpoints.write(run.path / "checkpoints", state.progress.step, state.arrays(), state.progress)


def _sum(values) -> float:
    return float(np.asarray(values, np.float64).sum())
