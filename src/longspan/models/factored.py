"""Class-factored softmax over words (section 4.2 of the paper): first the class of a word, then the word within it.

Classes are contiguous ranges of the vocabulary, which is sorted by frequency. They differ in size by orders of
magnitude, so nothing is padded to the largest. The softmax within a class is computed by a kernel.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from longspan.config import TrainConfig
from longspan.models import draws
from longspan.models.outputs import SymbolOutput, above_zero
from longspan.models.parts import Constant, OutputByRows, Rates, register_output
from longspan.ops import factored
from longspan.ops import outputs as output_ops
from longspan.ops.linear import add_bias, affine


class ClassFactored(SymbolOutput, OutputByRows):
    r"""One word out of a vocabulary, by class `c` and member `w`.

    .. math:: \log p(w \mid h) = \log \mathrm{softmax}_c(h A + a) + \log \mathrm{softmax}_{w \in c}(B h + b)

    `loss` and `log_prob` use the kernel and touch only the classes that occur; `sample`, and `logits` and `loss_of`,
    which Gauss-Newton products need, evaluate every word.

    Reference: Goodman, *Classes for fast maximum entropy training*, 2001; Mikolov et al., 2011.
    """

    vector_axis = 0
    class_weights: Float[Array, "hidden class"]
    class_bias: Float[Array, " class"]
    weights: Float[Array, "word hidden"]
    bias: Float[Array, " word"]
    starts: Constant
    """First word of each class, then the number of words; equal neighbors denote a class without words."""

    @staticmethod
    def initial(
        hidden_size: int,
        rates: Float[np.ndarray, " word"],
        starts: Int[np.ndarray, " class_and_one"],
        scale: float,
        *,
        key: PRNGKeyArray,
    ) -> "ClassFactored":
        """Weights drawn from a normal distribution of standard deviation `scale`; biases that predict the rates."""
        key_classes, key_words = jax.random.split(key)
        totals = np.concatenate([[0], np.cumsum(rates)])[starts]
        class_rates = np.maximum(np.diff(totals), rates.min())
        return ClassFactored(
            class_weights=draws.normal(key_classes, (hidden_size, len(class_rates)), scale),
            class_bias=jnp.asarray(np.log(class_rates), jnp.float32),
            weights=draws.normal(key_words, (len(rates), hidden_size), scale),
            bias=jnp.asarray(np.log(rates), jnp.float32),
            starts=Constant(jnp.asarray(starts, jnp.int32)),
        )

    def loss(self, hidden, targets, length, *, key=None):
        del key
        flat, ranges = hidden.reshape(-1, hidden.shape[-1]), self._ranges(targets, length)
        member = factored.log_prob(flat, self.weights, self.bias, *ranges)
        return self._class_loss(hidden, targets, length) - member.reshape(targets.shape)

    def loss_by_rows(self, hidden, targets, length, scale):
        flat, ranges = hidden.reshape(-1, hidden.shape[-1]), self._ranges(targets, length)
        member, rows = factored.log_prob_and_gradient(flat, self.weights, self.bias, *ranges, scale.ravel())
        return self._class_loss(hidden, targets, length) - member.reshape(targets.shape), rows

    @staticmethod
    def tables(output):
        return output.weights, output.bias

    def logits(self, hidden, targets, length):
        del targets, length
        return self._class_logits(hidden), add_bias(hidden @ self.weights.T, self.bias)

    def loss_of(self, logits, targets):
        class_logits, word_logits = logits
        classes = self.classes_of(targets)
        words = jnp.broadcast_to(jnp.arange(word_logits.shape[-1]), word_logits.shape)
        start, stop = self.starts.value[classes][..., None], self.starts.value[classes + 1][..., None]
        member_logits = jnp.where((start <= words) & (words < stop), word_logits, -jnp.inf)
        return _negative_log_softmax(class_logits, classes) + _negative_log_softmax(member_logits, targets)

    def log_probs(self, hidden):
        classes = self.classes_of(jnp.arange(len(self.bias)))
        logits = jnp.moveaxis(add_bias(hidden @ self.weights.T, self.bias), -1, 0)
        count = len(self.class_bias)
        largest = jax.ops.segment_max(logits, classes, count, indices_are_sorted=True)
        shifted = logits - largest[classes]
        total = jax.ops.segment_sum(jnp.exp(shifted), classes, count, indices_are_sorted=True)
        member = jnp.moveaxis(shifted - jnp.log(total)[classes], 0, -1)
        return jax.nn.log_softmax(self._class_logits(hidden), axis=-1)[..., classes] + member

    def classes_of(self, words: Int[Array, "..."]) -> Int[Array, "..."]:
        """The class of each word."""
        return jnp.searchsorted(self.starts.value, words, side="right", method="compare_all") - 1

    def _ranges(self, targets, length):
        """For each step, its word and the range of words of its class, which is empty for padding."""
        classes = self.classes_of(targets)
        start, stop = self.starts.value[classes], self.starts.value[classes + 1]
        inside = (jnp.arange(len(targets)) < length)[:, None]
        return targets.ravel(), start.ravel(), jnp.where(inside, stop, start).ravel()

    def _class_loss(self, hidden, targets, length):
        logits = affine(hidden, self.class_weights, self.class_bias, length)
        return output_ops.softmax_loss(
            self._of_classes(logits), self.classes_of(targets), jnp.ones(targets.shape, bool)
        )

    def _class_logits(self, hidden):
        return self._of_classes(add_bias(hidden @ self.class_weights, self.class_bias))

    def _of_classes(self, logits):
        """The logits, with minus infinity for classes without words."""
        return jnp.where(jnp.diff(self.starts.value) > 0, logits, -jnp.inf)


def class_starts(rates: Float[np.ndarray, " word"], classes: int, rule: str) -> Int[np.ndarray, " class_and_one"]:
    """Cut a vocabulary, most frequent words first, into classes of about equal mass.

    Mass is accumulated word by word; words belong to class `a` until the mass exceeds `(a + 1) / classes` of the total.
    So the most frequent words form classes of their own, and the last class is the largest.

    Args:
        rates: frequency of each word, in any unit.
        classes: number of classes; some stay empty if there are not enough words.
        rule: the mass of a word: `frequency`, its rate; `square-root`, the square root of its rate, which makes class
            sizes more even.

    Returns:
        The first word of each class, then the number of words.

    Example:
        >>> class_starts(np.array([4.0, 2, 1, 1]), 2, "frequency").tolist()
        [0, 2, 4]
    """
    mass = np.sqrt(rates) if rule == "square-root" else np.asarray(rates, np.float64)
    upto = np.cumsum(mass / mass.sum())
    starts = [0]
    for word, accumulated in enumerate(upto[:-1], start=1):
        if len(starts) < classes and accumulated > len(starts) / classes:
            starts.append(word)
    return np.array(starts + [len(rates)] * (classes + 1 - len(starts)), np.int32)


def _negative_log_softmax(logits, picked):
    chosen = jnp.take_along_axis(logits, picked[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


@register_output("factored", predicts="symbols")
def factored_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> ClassFactored:
    """A class-factored softmax."""
    rates = above_zero(rates)
    starts = class_starts(rates, config.classes, config.class_rule)
    return ClassFactored.initial(hidden_size, rates, starts, config.output_scale, key=key)
