"""NADE conditional on the hidden state: an exact joint distribution of a frame's keys (section 3.3 of the paper).

Keys are in ascending order, each predicted from the hidden state and the keys below it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from longspan.config import TrainConfig
from longspan.models.outputs import KeyOutput, Rates, log_odds, noise_of_keys
from longspan.models.parts import register_output
from longspan.ops import nade
from longspan.ops.matmul import affine


class Nade(KeyOutput):
    r"""Neural autoregressive distribution estimator whose biases are affine in the hidden state `h`.

    .. math::
        p(x_i = 1 \mid x_{<i}, h) = \sigma\big(b_i(h) + V_{\cdot i} \cdot \sigma(c(h) + x_{<i} W_{<i})\big)

    Reference: Larochelle and Murray, *The Neural Autoregressive Distribution Estimator*, 2011.
    """

    visible_weights: Float[Array, "hidden key"]
    visible_bias: Float[Array, " key"]
    hidden_weights: Float[Array, "hidden unit"]
    hidden_bias: Float[Array, " unit"]
    weights: Float[Array, "key unit"]
    readout: Float[Array, "unit key"]

    @staticmethod
    def initial(
        hidden_size: int, units: int, visible_bias: Float[Array, " key"], scale: float, *, key: PRNGKeyArray
    ) -> "Nade":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        keys = len(visible_bias)
        shapes = [(hidden_size, keys), (hidden_size, units), (keys, units), (units, keys)]
        draws = (
            scale * jax.random.normal(one, shape) for one, shape in zip(jax.random.split(key, 4), shapes, strict=True)
        )
        visible_weights, hidden_weights, weights, readout = draws
        return Nade(visible_weights, visible_bias, hidden_weights, jnp.zeros(units), weights, readout)

    def logits(self, hidden, targets, length):
        visible_bias = affine(hidden, self.visible_weights, self.visible_bias, length)
        hidden_bias = affine(hidden, self.hidden_weights, self.hidden_bias, length)
        return nade.logits(visible_bias, hidden_bias, self.weights, self.readout, targets, length)

    def sample(self, hidden, *, key, held=None):
        """Ancestral sampling, with one round per note instead of one per key.

        Key i is on if its logit exceeds logistic noise. The hidden units change only when a key is on, so each round
        finds the next note of every frame from one matrix product.
        """
        leading = hidden.shape[:-1]
        visible_bias, pre_activation = self.biases(hidden.reshape(-1, hidden.shape[-1]))
        noise = noise_of_keys(visible_bias.shape, key, held)
        keys = jnp.arange(visible_bias.shape[1])

        def next_note(progress):
            pre_activation, last, frames, _ = progress
            logits = visible_bias + jax.nn.sigmoid(pre_activation) @ self.readout
            candidates = (logits > noise) & (keys > last[:, None])
            note = jnp.argmax(candidates, axis=1)
            found = jnp.any(candidates, axis=1)
            pre_activation = pre_activation + jnp.where(found[:, None], self.weights[note], 0)
            frames = frames | (found[:, None] & (keys == note[:, None]))
            return pre_activation, jnp.where(found, note, len(keys)), frames, jnp.any(found)

        start = (
            pre_activation,
            jnp.full(len(visible_bias), -1),
            jnp.zeros(visible_bias.shape, bool),
            jnp.ones((), bool),
        )
        _, _, frames, _ = jax.lax.while_loop(lambda progress: progress[-1], next_note, start)
        return frames.astype(jnp.uint8).reshape(*leading, -1)

    def biases(self, hidden: Float[Array, "... hidden"]) -> tuple[Float[Array, "... key"], Float[Array, "... unit"]]:
        """Visible and hidden biases given the hidden state."""
        return hidden @ self.visible_weights + self.visible_bias, hidden @ self.hidden_weights + self.hidden_bias


@register_output("nade", predicts="keys")
def nade_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> Nade:
    """A NADE over the keys of a frame."""
    return Nade.initial(hidden_size, config.nade_size, log_odds(rates), config.output_scale, key=key)
