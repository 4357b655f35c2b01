"""What a cell and an output must provide, and how they are found by name.

A part is made by a function of a config: `(config, input_size, *, key) -> Cell` or `(config, hidden_size, rates, *,
key) -> Output`. Registered under a name, it can be used in a config, on the command line and in a run folder. A cell
may have settings of its own, a frozen dataclass, which `cell` in a config gives after its name (`longspan.registry`)
and which come to its function after `input_size`.

Samples are made from `Candidates`: steps with their probabilities, from which `sampling` chooses one. A distribution of
symbols lists them all; one of frames, of which there are 2^88, draws some.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from longspan.config import Predicted, TrainConfig
from longspan.errors import InputError
from longspan.ops.recurrence import Precision
from longspan.registry import Registry

Factory = TypeVar("Factory", bound=Callable)
Tree = TypeVar("Tree")

Rates: TypeAlias = Float[np.ndarray, " target"]
Hidden = Float[Array, "time lane hidden"]
Targets = Shaped[Array, "time lane ..."]
Held: TypeAlias = Int[Array, "lane target"]


class Constant(eqx.Module):
    """An array that is saved with the model but never differentiated, such as the leak factors."""

    value: Array


def split_constants(model: Tree) -> tuple[Tree, Tree]:
    """Split a model into its trained part and the rest; `eqx.combine` joins them again."""
    return eqx.partition(model, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, Constant))


class Trace(NamedTuple):
    """The hidden vectors of a chunk, and the inner values whose changes structural damping penalizes.

    `weights` is the weight of a change of each inner value.
    """

    hidden: Float[Array, "time lane hidden"]
    inner: Float[Array, "time lane unit"]
    weights: Float[Array, "time lane unit"]


class PulledBack(NamedTuple):
    """Gradients on their way back through the states of a chunk, as `time lane ...` trees like the state.

    `arriving` is the gradient at the state after each step; `handed` is what that step hands to the state before it.
    Only `handed` has a derivative, and only in the parameters of the step itself.
    """

    arriving: PyTree
    handed: PyTree


class Cell(eqx.Module):
    """A state-to-state map; `run` applies it over a chunk and may be overridden by something faster.

    A cell that draws random numbers says so by `takes_key`. Its `step` then has a third argument, a key or None, and so
    has its `run` a fifth, one key for each lane or None. Training hands keys in; scores, samples and diagnoses are
    those of the cell without noise.
    """

    @property
    def takes_key(self) -> bool:
        """Whether `step` and `run` take keys."""
        return False

    @abstractmethod
    def initial_state(self) -> PyTree:
        """The state at the start of a song."""

    @abstractmethod
    def step(self, state: PyTree, inputs: Shaped[Array, "..."]) -> PyTree:
        """The next state of one example."""

    @abstractmethod
    def output(self, state: PyTree) -> Float[Array, " hidden"]:
        """The hidden vector passed to the output model."""

    def run(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
        keys: Key[Array, " lane"] | None = None,
    ) -> tuple[PyTree, Float[Array, "time lane hidden"]]:
        """Run every lane through a chunk; return the last state and the hidden vectors of all steps."""
        del length  # padding follows the last step of a stream, so its results are never used
        return walk(self, self.step, state, inputs, resets, keys)

    def run_penalized(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
        weight: Float[Array, "time lane"],
    ) -> tuple[PyTree, Float[Array, "time lane hidden"], Float[Array, ""]]:
        """`run`, and the sum of absolute hidden values, weighted by step (section 3.4)."""
        state, hidden = self.run(state, inputs, resets, length)
        return state, hidden, jnp.sum(weight * jnp.sum(jnp.abs(hidden), axis=-1))

    def at_precision(self, precision: Precision) -> "Cell":
        """The cell whose walks read its recurrent weights in that precision; itself where it knows only one."""
        del precision
        return self

    def trace(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
    ) -> Trace:
        """`run` with its inner values, by default the hidden vectors themselves."""
        _, hidden = self.run(state, inputs, resets, length)
        return Trace(hidden, hidden, jnp.ones_like(hidden))

    def pull_back(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
        sent: Float[Array, "time lane hidden"],
    ) -> PulledBack:
        """Carry the gradients `sent` to the hidden vectors of a chunk back through its states.

        At a step that starts from a reset state, `handed` has no effect.
        """
        del length  # nothing is sent from padding
        frozen, fresh = jax.lax.stop_gradient(self), jax.lax.stop_gradient(self.initial_state())

        def forward(state, now):
            inputs, reset = now
            before = jax.tree.map(lambda old, new: jnp.where(reset, new, old), state, fresh)
            after = frozen.step(before, inputs)
            return after, (before, after)

        def backward(handed, now):
            inputs, reset, before, after, sent = now
            own = jax.vjp(frozen.output, after)[1](sent)[0]
            arriving = jax.tree.map(jnp.add, own, handed)
            handed = _handed(frozen, before, inputs, arriving)
            return jax.tree.map(lambda leaf: jnp.where(reset, 0, leaf), handed), arriving

        _, (before, after) = jax.lax.scan(jax.vmap(forward), state, (inputs, resets))
        nothing = jax.tree.map(jnp.zeros_like, state)
        walked = (inputs, resets, before, after, sent)
        _, arriving = jax.lax.scan(jax.vmap(backward), nothing, walked, reverse=True)
        return PulledBack(arriving, jax.vmap(jax.vmap(partial(_handed, self)))(before, inputs, arriving))


def _handed(cell: Cell, before: PyTree, inputs: Shaped[Array, "..."], arriving: PyTree) -> PyTree:
    """The gradient at the state before a step, given the one at the state after it."""
    return jax.vjp(lambda state: cell.step(state, inputs), before)[1](arriving)[0]


def walk(
    cell: Cell,
    step: Callable[..., PyTree],
    state: PyTree,
    inputs: PyTree,
    resets: Bool[Array, "time lane"],
    keys: Key[Array, " lane"] | None = None,
) -> tuple[PyTree, Float[Array, "time lane hidden"]]:
    """Last state and hidden vectors of all steps, by a scan over time of `step`, mapped over lanes."""
    fresh = cell.initial_state()

    def step_lane(state, inputs, reset, *key):
        start = jax.tree.map(lambda old, new: jnp.where(reset, new, old), state, fresh)
        state = step(start, inputs, *key)
        return state, cell.output(state)

    def step_all(state, now):
        number, inputs, reset = now
        drawn = () if keys is None else (jax.vmap(jax.random.fold_in, (0, None))(keys, number),)
        return jax.vmap(step_lane)(state, inputs, reset, *drawn)

    return jax.lax.scan(step_all, state, (jnp.arange(len(resets)), inputs, resets))


class _WithKeys(Cell):
    """A cell that takes keys, with those it is to take."""

    cell: Cell
    keys: Key[Array, " lane"]

    def initial_state(self):
        return self.cell.initial_state()

    def step(self, state, inputs):
        return self.cell.step(state, inputs)

    def output(self, state):
        return self.cell.output(state)

    def run(self, state, inputs, resets, length, keys=None):
        return self.cell.run(state, inputs, resets, length, self.keys if keys is None else keys)


def with_keys(cell: Cell, keys: Callable[[], Key[Array, " lane"]]) -> Cell:
    """The cell with the randomness of a chunk, one key for each lane; itself if it draws nothing."""
    return _WithKeys(cell, keys()) if cell.takes_key else cell


class Candidates(NamedTuple):
    """Possible next steps of each lane.

    Attributes:
        steps: frames or symbols.
        log_prob: their log-probabilities, up to a constant of the lane, and of those that are recalled up to another.
        log_weight: a step chosen with probability proportional to `exp(log_weight)` follows the distribution; zero for
            steps that were drawn from it.
        recalled: which of them are copies of the past; None where no memory proposes any.
    """

    steps: Shaped[Array, "lane candidate ..."]
    log_prob: Float[Array, "lane candidate"]
    log_weight: Float[Array, "lane candidate"]
    recalled: Bool[Array, "lane candidate"] | None = None


class Output(eqx.Module):
    """A conditional distribution over targets.

    `exact` tells whether `log_prob` is the likelihood itself or an estimate, so that reports can say which.
    `holds_keys` tells whether `sample` takes `held`; `candidates_drawn` is the number of steps to draw where one is
    to be chosen among several: more are sharpened further by a temperature, and leave less variety. Where keys are
    held there are `candidates_if_held`, because those that fit badly hardly count.
    """

    exact: ClassVar[bool] = True
    holds_keys: ClassVar[bool] = False
    candidates_drawn: ClassVar[int] = 8
    candidates_if_held: ClassVar[int] = 32

    @abstractmethod
    def log_prob(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, "time lane"]:
        """Log-likelihood of each step's target in nats, as reported; `key` is for outputs that estimate it."""

    @abstractmethod
    def loss(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, "time lane"]:
        """The loss to be minimized, per step; `key` is for outputs whose gradient is stochastic."""

    @abstractmethod
    def sample(self, hidden: Float[Array, "... hidden"], *, key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """Draw a target for every hidden vector."""

    def likeliest(self, hidden: Float[Array, "... hidden"]) -> Shaped[Array, "..."]:
        """The likeliest target for every hidden vector; outputs of symbols and numbers are judged by it."""
        raise NotImplementedError(f"{type(self).__name__} has no `likeliest`, which symbols and numbers need")

    def candidates(
        self, hidden: Float[Array, "lane hidden"], count: int, *, keys: Key[Array, " lane"], held: Held | None = None
    ) -> Candidates:
        """Possible next steps.

        Args:
            hidden: one vector per lane.
            count: number of steps to draw, for outputs that do not list them all.
            keys: one random key per lane.
            held: which keys or symbols are not free.
        """
        if held is not None and not self.holds_keys:
            raise InputError(f"a model with the output {type(self).__name__} cannot keep or forbid keys: use nade")
        rows = jnp.broadcast_to(hidden, (count, *hidden.shape))

        def draw(rows, key, held):
            options = {} if held is None else {"held": held}
            return self.sample(rows, key=key, **options)

        steps = jax.vmap(draw, in_axes=(1, 0, 0), out_axes=1)(rows, keys, held)
        log_prob = self.relative_log_prob(rows, steps)
        log_weight = jnp.zeros_like(log_prob) if held is None else self.held_log_weight(rows, steps, held)
        return Candidates(jnp.moveaxis(steps, 0, 1), log_prob.T, log_weight.T)

    def relative_log_prob(self, hidden: Hidden, targets: Targets) -> Float[Array, "time lane"]:
        """Log-likelihood up to a constant that depends on the hidden vector alone."""
        return self.log_prob(hidden, targets, jnp.asarray(len(targets), jnp.int32), key=jax.random.key(0))

    def held_log_weight(self, hidden: Hidden, targets: Targets, held: Held) -> Float[Array, "time lane"]:
        """Log-weights of frames drawn with held keys; zero if `sample` draws from the conditional distribution."""
        del hidden, held
        return jnp.zeros(targets.shape[:2])


class ExactOutput(Output):
    """An output whose likelihood is a convex function of logits, which may depend on the target."""

    @abstractmethod
    def logits(self, hidden: Hidden, targets: Targets, length: Int[Array, ""]) -> PyTree:
        """The pre-activations in which the loss is convex."""

    @abstractmethod
    def loss_of(self, logits: PyTree, targets: Targets) -> Float[Array, "time lane"]:
        """Negative log-likelihood of each step in nats, from the logits."""

    def loss(self, hidden, targets, length, *, key=None):
        del key
        return self.loss_of(self.logits(hidden, targets, length), targets)

    def log_prob(self, hidden, targets, length, *, key=None):
        del key
        return -self.loss(hidden, targets, length)


class OutputByRows(ExactOutput):
    """An exact output that uses only a few rows of its largest parameters, its tables, in a chunk."""

    @staticmethod
    @abstractmethod
    def tables(output: PyTree) -> tuple[Array, ...]:
        """The tables among the parameters of the output."""

    @abstractmethod
    def loss_by_rows(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], scale: Float[Array, "time lane"]
    ) -> tuple[Float[Array, "time lane"], Any]:
        """`loss`, without a derivative in the tables, and the tables' gradient of `sum(scale * loss)` by rows."""


class CellPart(NamedTuple):
    """A registered cell: `make(config, input_size, *, key)`, with its settings in third place if it has any."""

    make: Callable[..., Any]
    settings: type | None = None


@runtime_checkable
class OutputFactory(Protocol):
    """Makes an initial output."""

    def __call__(
        self, config: TrainConfig, hidden_size: int, rates: Float[np.ndarray, " target"], *, key: PRNGKeyArray
    ) -> Any:
        """Make an output for `hidden_size` hidden units.

        `rates` are the frequencies of keys or symbols in training, or the means of numbers: what the output should
        predict before training.
        """
        ...


class OutputPart(NamedTuple):
    """A registered output."""

    make: OutputFactory
    predicts: Predicted


CELLS: Registry[CellPart] = Registry("cell", "longspan.models")
OUTPUTS: Registry[OutputPart] = Registry("output", "longspan.models")


def register_cell(name: str, *, settings: type | None = None) -> Callable[[Factory], Factory]:
    """A decorator that registers a function `(config, input_size, *, key) -> Cell` under a name.

    Args:
        name: the name used in configs.
        settings: a frozen dataclass of settings of this cell alone, with defaults; the function is then
            `(config, input_size, settings, *, key) -> Cell`.

    Example:
        >>> @register_cell("my-cell")
        ... def my_cell(config, input_size, *, key):
        ...     ...
    """

    def register(make: Factory) -> Factory:
        CELLS.register(name)(CellPart(make, settings))
        return make

    return register


def register_output(name: str, *, predicts: Predicted) -> Callable[[Factory], Factory]:
    """A decorator that registers a function `(config, hidden_size, rates, *, key) -> Output` under a name.

    Args:
        name: the name used in configs.
        predicts: `keys` that are on or off, one of several `symbols`, or `numbers`.
    """

    def register(make: Factory) -> Factory:
        OUTPUTS.register(name)(OutputPart(make, predicts))
        return make

    return register
