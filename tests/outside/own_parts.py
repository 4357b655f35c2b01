"""Parts of a user's own, as they would stand in the user's module: a cell, an output, an optimizer and data.

`docs/extending.md` shows the same code.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import longspan
from longspan.data import DataRecord, Dataset, arrange_pairs, fingerprint_of
from longspan.models import Cell, ExactOutput, register_cell, register_output
from longspan.training.optimizers import optax_optimizer


# begin cell
class GatedCell(Cell):
    """A gated recurrent unit (Cho et al., 2014), one matrix for its three parts."""

    input_weights: jax.Array
    recurrent: jax.Array
    bias: jax.Array

    def initial_state(self):
        return jnp.zeros(self.recurrent.shape[0])

    def step(self, state, inputs):
        driven = inputs.astype(jnp.float32) @ self.input_weights + self.bias
        update, reset, new = jnp.split(driven, 3)
        update_part, reset_part, new_part = jnp.split(state @ self.recurrent, 3)
        update, reset = jax.nn.sigmoid(update + update_part), jax.nn.sigmoid(reset + reset_part)
        return update * state + (1 - update) * jnp.tanh(new + reset * new_part)

    def output(self, state):
        return state


@register_cell("gated")
def gated_cell(config, inputs, *, key):
    size, keys = config.hidden_size, jax.random.split(key)
    draw = jax.nn.initializers.glorot_normal()
    return GatedCell(draw(keys[0], (inputs, 3 * size)), draw(keys[1], (size, 3 * size)), jnp.zeros(3 * size))


# end cell


# begin output
class Mixture(ExactOutput):
    """Two Gaussians with a width of their own for every number."""

    weights: jax.Array
    bias: jax.Array

    def logits(self, hidden, targets, length):
        return (hidden @ self.weights + self.bias).reshape(*hidden.shape[:-1], 2, 3, -1)

    def loss_of(self, logits, targets):
        share, mean, width = logits[..., 0, :], logits[..., 1, :], jnp.exp(logits[..., 2, :])
        parts = jax.nn.log_softmax(share, axis=-2) + jax.scipy.stats.norm.logpdf(targets[..., None, :], mean, width)
        return -jnp.sum(jax.nn.logsumexp(parts, axis=-2), axis=-1)

    def sample(self, hidden, *, key):
        logits, keys = self.logits(hidden, None, None), jax.random.split(key)
        chosen = jax.random.categorical(keys[0], logits[..., 0, :], axis=-2)[..., None, None, :]
        mean, width = jnp.moveaxis(jnp.take_along_axis(logits, chosen, axis=-3)[..., 0, 1:, :], -2, 0)
        return mean + jnp.exp(width) * jax.random.normal(keys[1], mean.shape)

    def likeliest(self, hidden):
        logits = self.logits(hidden, None, None)
        return jnp.sum(jax.nn.softmax(logits[..., 0, :], axis=-2) * logits[..., 1, :], axis=-2)


@register_output("mixture", predicts="numbers")
def mixture(config, hidden_size, rates, *, key):
    size = 6 * len(rates)
    return Mixture(config.output_scale * jax.random.normal(key, (hidden_size, size)), jnp.zeros(size))


# end output


# begin optimizer
@optax_optimizer("yogi")
def yogi(config, learning_rate):
    return optax.yogi(learning_rate)


# end optimizer


# begin data
class Waves(Dataset):
    """Noisy sine waves, of which the next value is to be predicted."""

    name = "waves"

    def __init__(self, seed=0):
        noise = np.random.default_rng(seed).normal(0, 0.05, (3, 900)).astype(np.float32)
        waves = np.sin(np.arange(900) / np.array([[3], [4], [5]])).astype(np.float32) + noise
        self.splits = dict(zip(("train", "valid", "test"), waves, strict=True))

    @property
    def record(self):
        content = np.stack(list(self.splits.values()))
        return DataRecord("numbers", fingerprint_of(content), size=1, next_step=True)

    def chunks(self, split, chunk_length, lanes):
        wave = self.splits[split][:, None]
        return arrange_pairs([wave[:-1]], [wave[1:]], chunk_length=chunk_length, lanes=lanes)


longspan.register_dataset("waves", Waves)
# end data
