"""Generate samples from a model with any cell and output: each frame or token it draws is its next input.

Every sample has its own stream of random numbers, so the third of five samples is also the third of a hundred, except
for rare draws that change with the rounding of a differently sized matrix product.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree, Shaped

from longspan.models.sequence import SequenceModel


def generate(
    model: SequenceModel,
    *,
    length: int,
    num: int,
    key: PRNGKeyArray,
    temperature: float = 1.0,
    prime: Shaped[np.ndarray, "prime ..."] | None = None,
    end_token: int | None = None,
) -> Shaped[np.ndarray, "sample time ..."]:
    """Draw samples, each step from the model's distribution given all steps before it.

    Without a prime a sample begins like a song or text of the training data: after silence, or after an end token.

    Args:
        model: any cell with any output.
        length: number of steps to draw, not counting the prime.
        num: number of samples.
        key: random key; the same key gives the same samples.
        temperature: 1 samples from the model's distribution, lower values favor likely steps, 0 always takes the
            likeliest.
        prime: frames (time x keys) or tokens that every sample continues; not part of the result.
        end_token: the token that ends a line; needed for text, ignored for music.

    Example:
        >>> from longspan.config import TrainConfig
        >>> from longspan.models.sequence import build
        >>> model = build(TrainConfig(hidden_size=4), 88, np.full(88, 0.05), key=jax.random.key(0))
        >>> generate(model, length=16, num=2, key=jax.random.key(1)).shape
        (2, 16, 88)
    """
    if length < 1 or num < 1:
        raise ValueError(f"length and num must be at least 1, got {length} and {num}")
    inputs = _inputs(model, prime, end_token)
    state = _state_before_last(model, inputs)
    return np.asarray(_continue(model, state, inputs[-1], key, length, num, float(temperature)))


def state_after(model: SequenceModel, inputs: Shaped[Array, "time ..."]) -> PyTree:
    """The state of one sequence after the model has read `inputs` from the start."""
    resets = jnp.zeros((len(inputs), 1), bool)
    state, _ = model.run(model.start(1), inputs[:, None], resets, jnp.asarray(len(inputs), jnp.int32))
    return jax.tree.map(lambda leaf: leaf[0], state)


def _inputs(model: SequenceModel, prime, end_token: int | None) -> Shaped[Array, "time ..."]:
    """The inputs that the model reads before it draws: that before the first step of a sequence, then the prime."""
    step = jax.eval_shape(lambda: _draw(model, model.cell.initial_state(), jax.random.key(0), 1.0))
    first = jnp.zeros((1, *step.shape), step.dtype)
    if step.shape == ():
        if end_token is None:
            raise ValueError("a model of text needs the end token, which precedes the first token")
        first = first + end_token
    if prime is None:
        return first
    if np.shape(prime)[1:] != step.shape:
        raise ValueError(f"expected a prime of shape (time, {', '.join(map(str, step.shape))}), got {np.shape(prime)}")
    return jnp.concatenate([first, jnp.asarray(prime, step.dtype)])


def _state_before_last(model: SequenceModel, inputs: Shaped[Array, "time ..."]) -> PyTree:
    return model.cell.initial_state() if len(inputs) == 1 else _read(model, inputs[:-1])


_read = jax.jit(state_after)


@partial(jax.jit, static_argnames=("length", "num", "temperature"))
def _continue(model, state, last, key, length, num, temperature):
    """Draw `length` steps in `num` lanes that start from the same state with `last` as their next input."""

    def sample(lane):
        lane_key = jax.random.fold_in(key, lane)

        def step(carry, number):
            state, inputs = carry
            state = model.cell.step(state, inputs)
            drawn = _draw(model, state, jax.random.fold_in(lane_key, number), temperature)
            return (state, drawn), drawn

        return jax.lax.scan(step, (state, last), jnp.arange(length))[1]

    return jax.vmap(sample)(jnp.arange(num))


def _draw(model: SequenceModel, state: PyTree, key: PRNGKeyArray, temperature: float) -> Shaped[Array, "..."]:
    return model.output.sample(model.cell.output(state), key=key, temperature=temperature)
