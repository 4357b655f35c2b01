"""Generate samples from a model with any cell and output: each frame or token it draws is its next input.

A step is chosen among candidates. Where every symbol is one, a temperature sharpens their distribution. Of frames there
are too many, so some are drawn from the model, and the temperature decides among those that are alike: with as many
notes, and as many of them new, as a frame drawn at temperature 1, and recalled by a memory if that was. Sharpening each
key alone, or unlike frames, silences most music, because most keys are off most of the time, or lets it stand still. So
*which* notes sound becomes safer; how many there are, how often they change and how often the past returns stays as the
model wants it.

Every sample has its own stream of random numbers, so the third of five samples is also the third of a hundred, and one
primed with its own beginning continues as it did, except for rare draws that change with the rounding of a differently
sized matrix product.
"""

import math
from abc import abstractmethod
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from longspan.data.music import KEYS
from longspan.errors import InputError
from longspan.models.model import SequenceModel
from longspan.models.parts import Candidates, Held
from longspan.sampling.reading import LastStep, Past, Reader

LANES = 256
"""Samples, or attempts at them, drawn together; more are drawn in turns, so that their candidates fit into memory."""
MOST_DRAWN = 400_000_000
"""Values of all steps of all samples together: two million frames of a piano with onsets are 352 million."""
PARTICLES = 16
"""Parallel attempts at a sample that has to fit what is held at later steps, too."""


class Proposal(eqx.Module):
    """The distribution of the next step: proposes candidates, given the hidden state and the past."""

    @abstractmethod
    def __call__(
        self,
        model: SequenceModel,
        hidden: Float[Array, "lane hidden"],
        past: Past,
        count: int,
        *,
        keys: Key[Array, " lane"],
        held: Held | None,
    ) -> Candidates:
        """Candidates for the next step of every lane, see `Output.candidates`."""


class FromModel(Proposal):
    """The model's own distribution, for which the hidden state is all there is to know about the past."""

    def __call__(self, model, hidden, past, count, *, keys, held):
        del past
        return model.output.candidates(hidden, count, keys=keys, held=held)


def generate(
    model: SequenceModel,
    *,
    length: int,
    num: int,
    key: PRNGKeyArray,
    temperature: float = 1.0,
    prime: Shaped[np.ndarray, "prime ..."] | None = None,
    end_token: int | None = None,
    held: Int[np.ndarray, "#time target"] | None = None,
    avoid_silence: bool = False,
    proposal: Proposal | None = None,
    reader: Reader | None = None,
) -> Shaped[np.ndarray, "sample time ..."]:
    """Draw samples, each step from the model's distribution given all steps before it.

    Without a prime a sample begins like a song or text of the training data: after silence, or after an end token.

    Args:
        model: any cell with any output.
        length: number of steps to draw, not counting the prime.
        num: number of samples.
        key: random key; the same key gives the same samples.
        temperature: 1 samples from the model's distribution, lower values favor likely steps, 0 takes the likeliest
            symbol, or the likeliest of the drawn frames that are alike: how many notes a frame has, and how many of
            them are new, is always drawn as at 1.
        prime: frames (time x keys) or tokens that every sample continues; not part of the result.
        end_token: the token that ends a line; needed for text, ignored for music.
        held: for every step, or once for all, which keys are `ON`, `OFF` or `FREE` (`models.outputs`); symbols may be
            `OFF` or `FREE`. The others are drawn from their distribution given the held ones; if those change from
            step to step, also given the later ones, by a particle filter.
        avoid_silence: never draw a frame without notes; if all candidates are silent, the last frame is held.
        proposal: the distribution to draw from; by default the model's own.
        reader: what the model reads before each step; by default the last step.

    Example:
        >>> from longspan.config import TrainConfig
        >>> from longspan.models.model import build
        >>> model = build(TrainConfig(hidden_size=4), 88, np.full(88, 0.05), key=jax.random.key(0))
        >>> generate(model, length=16, num=2, key=jax.random.key(1)).shape
        (2, 16, 88)
    """
    _check_numbers(length, num, temperature)
    inputs = _inputs(model, prime, end_token)
    _check_size(length, num, inputs.shape[1:])
    output = model.output
    plain = temperature == 1 and held is None and not avoid_silence
    particles = 1 if held is None or len(held) == 1 else PARTICLES
    lanes = min(num, max(1, LANES // particles))
    reader = reader or LastStep()
    draw = partial(
        _continue,
        model,
        proposal or FromModel(),
        reader,
        _state_before_last(model, reader, inputs),
        inputs,
        _held_by_step(held, length),
        key,
        jnp.asarray(temperature, jnp.float32),
        candidates=1 if plain else output.candidates_drawn if held is None else output.candidates_if_held,
        particles=particles,
        greedy=temperature == 0,
        avoid_silence=avoid_silence,
        length=length,
        lanes=lanes,
    )
    drawn = [np.asarray(draw(first=jnp.asarray(first, jnp.int32))) for first in range(0, num, lanes)]
    return np.concatenate(drawn)[:num]


def state_after(model: SequenceModel, inputs: Shaped[Array, "time ..."]) -> PyTree:
    """The state of one sequence after the model has read `inputs` from the start."""
    resets = jnp.zeros((len(inputs), 1), bool)
    state, _ = model.run(model.start(1), inputs[:, None], resets, jnp.asarray(len(inputs), jnp.int32))
    return jax.tree.map(lambda leaf: leaf[0], state)


def _check_numbers(length: int, num: int, temperature: float) -> None:
    for name, value in (("length", length), ("num", num)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1: got {value!r}", fields=[name])
    if not isinstance(temperature, int | float | np.number) or not 0 <= temperature < math.inf:
        raise InputError(f"temperature must be finite and at least 0: got {temperature!r}", fields=["temperature"])


def _check_size(length: int, num: int, step: tuple[int, ...]) -> None:
    """Refuse more than memory holds: how wide a step is says the model, which may be somebody else's."""
    if (drawn := int(length) * int(num) * math.prod(step)) > MOST_DRAWN:
        raise InputError(
            f"{num} samples of {length} steps of {math.prod(step)} values are {drawn} in all, more than the "
            f"{MOST_DRAWN} allowed: draw fewer or shorter ones"
        )


def _inputs(model: SequenceModel, prime, end_token: int | None) -> Shaped[Array, "time ..."]:
    """The inputs that the model reads before it draws: that before the first step of a sequence, then the prime."""
    draw = partial(model.output.sample, key=jax.random.key(0))
    step = jax.eval_shape(lambda: draw(model.cell.output(model.cell.initial_state())))
    first = jnp.zeros((1, *step.shape), step.dtype)
    if step.shape == ():
        if end_token is None:
            raise InputError("a model of text needs the end token, which precedes the first token")
        first = first + end_token
    if prime is None:
        return first
    if np.shape(prime)[1:] != step.shape:
        raise InputError(f"expected a prime of shape (time, {', '.join(map(str, step.shape))}), got {np.shape(prime)}")
    return jnp.concatenate([first, jnp.asarray(prime, step.dtype)])


def _held_by_step(held, length: int) -> Int[Array, "time target"] | None:
    if held is None:
        return None
    if len(held) not in (1, length):
        raise InputError(f"expected held keys for 1 or {length} steps, got {len(held)}")
    return jnp.broadcast_to(jnp.asarray(held, jnp.int8), (length, np.shape(held)[1]))


def _state_before_last(model: SequenceModel, reader: Reader, inputs: Shaped[Array, "time ..."]) -> PyTree:
    return model.cell.initial_state() if len(inputs) == 1 else _read(model, reader.prime(inputs))


_read = jax.jit(state_after)


@partial(jax.jit, static_argnames=("candidates", "particles", "greedy", "avoid_silence", "length", "lanes"))
def _continue(
    model,
    proposal,
    reader,
    state,
    inputs,
    held,
    key,
    temperature,
    first,
    *,
    candidates,
    particles,
    greedy,
    avoid_silence,
    length,
    lanes,
):
    """Draw `length` steps of the samples from number `first`, all of which start from the same state and inputs."""
    read = len(inputs) - 1
    sample_keys = jax.vmap(lambda sample: jax.random.fold_in(key, sample))(first + jnp.arange(lanes))
    lane_keys = jax.vmap(lambda one: jax.random.split(one, particles))(sample_keys).reshape(-1)
    choose = partial(_choose, temperature=temperature, greedy=greedy)

    def step(carry, held):
        state, last, past = carry
        state = jax.vmap(model.cell.step)(state, reader(last, past))
        keys = jax.vmap(lambda one: jax.random.split(jax.random.fold_in(one, past.length), 3))(lane_keys)
        lane_held = None if held is None else jnp.broadcast_to(held, (len(lane_keys), *held.shape))
        hidden = jax.vmap(model.cell.output)(state)
        found = proposal(model, hidden, past, candidates, keys=keys[:, 0], held=lane_held)
        if avoid_silence:
            found = _without_silence(found, last)
        drawn = jax.vmap(choose)(found, last, keys[:, 1])
        steps = jax.lax.dynamic_update_slice_in_dim(past.steps, drawn[:, None], past.length, axis=1)
        carry = state, drawn, Past(steps, past.length + 1)
        if particles > 1:
            carry = _survivors(carry, found.log_weight, keys[::particles, 2], particles)
        return carry, None

    start = (
        jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(lane_keys), *leaf.shape)), state),
        jnp.broadcast_to(inputs[-1], (len(lane_keys), *inputs.shape[1:])),
        _past(inputs[1:], length, len(lane_keys)),
    )
    (_, _, past), _ = jax.lax.scan(step, start, held, length)
    # The order of survivors follows that of their parents, so the one that is kept has to be drawn.
    kept = jax.vmap(lambda one: jax.random.randint(jax.random.fold_in(one, length), (), 0, particles))(sample_keys)
    return past.steps[particles * jnp.arange(lanes) + kept, read:]


def _past(prime: Shaped[Array, "time ..."], length: int, lanes: int) -> Past:
    empty = jnp.zeros((length, *prime.shape[1:]), prime.dtype)
    steps = jnp.concatenate([prime, empty])
    return Past(jnp.broadcast_to(steps, (lanes, *steps.shape)), jnp.asarray(len(prime), jnp.int32))


def _choose(
    found: Candidates, last: Shaped[Array, "..."], key: PRNGKeyArray, *, temperature, greedy: bool
) -> Shaped[Array, "..."]:
    """Choose one candidate of a lane.

    A first choice at temperature 1 decides the number of notes and of new ones, and whether the past is recalled; a
    second one among the frames that are like it decides which notes. All symbols are alike, so that only the second
    choice matters, and it is exact.
    """
    if len(found.log_prob) == 1:
        return found.steps[0]
    key_number, key_choice = jax.random.split(key)
    pilot = jax.random.categorical(key_number, found.log_weight)
    allowed = _alike(found, pilot, last) & (found.log_weight > -jnp.inf)
    if greedy:
        return found.steps[jnp.argmax(jnp.where(allowed, found.log_prob, -jnp.inf))]
    sharpened = found.log_weight + (1 / temperature - 1) * found.log_prob
    return found.steps[jax.random.categorical(key_choice, jnp.where(allowed, sharpened, -jnp.inf))]


def _alike(found: Candidates, pilot: Int[Array, ""], last: Shaped[Array, "..."]) -> Bool[Array, " candidate"]:
    """Which frames have as many notes as the pilot, as many that did not sound in the last one, and its origin.

    Symbols and numbers are all alike.
    """
    if found.steps.dtype != jnp.uint8:
        return jnp.ones(len(found.steps), bool)
    notes, new = (jnp.sum(found.steps & mask[None], axis=-1) for mask in (jnp.ones_like(last), 1 - last))
    alike = (notes == notes[pilot]) & (new == new[pilot])
    return alike if found.recalled is None else alike & (found.recalled == found.recalled[pilot])


def _without_silence(found: Candidates, last: Shaped[Array, "lane key"]) -> Candidates:
    """The candidates with notes, by weight; where there are none, all of them become the last frame."""
    sounds = jnp.any(found.steps[..., :KEYS], axis=-1)  # beyond the keys are those struck again
    possible = jnp.any(sounds, axis=1, keepdims=True)
    steps = jnp.where(possible[..., None], found.steps, last[:, None])
    return found._replace(steps=steps, log_weight=jnp.where(sounds | ~possible, found.log_weight, -jnp.inf))


def _survivors(
    carry: PyTree, log_weight: Float[Array, "lane candidate"], keys: Key[Array, " sample"], particles: int
) -> PyTree:
    """Replace the attempts at each sample by copies of those to which the held keys were likely.

    The mean weight of an attempt's candidates estimates the probability of what was held, given its past. Survivors are
    drawn systematically, so that none is lost where all are alike.
    """
    evidence = jax.nn.logsumexp(log_weight, axis=1).reshape(-1, particles)
    shares = jnp.cumsum(jax.nn.softmax(evidence, axis=1), axis=1)
    offsets = jax.vmap(jax.random.uniform)(keys)[:, None]
    places = (jnp.arange(particles, dtype=offsets.dtype)[None] + offsets) / particles
    parents = jax.vmap(jnp.searchsorted)(shares, places).clip(0, particles - 1)
    parents = (parents + particles * jnp.arange(len(parents))[:, None]).reshape(-1)
    state, last, past = carry
    state, last, steps = jax.tree.map(lambda leaf: leaf[parents], (state, last, past.steps))
    return state, last, past._replace(steps=steps)
