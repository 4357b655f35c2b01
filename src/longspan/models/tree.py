"""Softmax over a Huffman tree of words: a word is a path of decisions, and the frequent words have short paths.

With as many nodes as words, less one, a word of a vocabulary of ten thousand costs about ten rows of weights, where
classes cost a hundred. It is the fastest output for words, and predicts them less well than classes do for the same
number of updates: words that share most of their decisions are alike in frequency, not in meaning.
"""

import heapq

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.models import draws
from longspan.models.outputs import RAREST_SYMBOL, SymbolOutput, above_zero, bernoulli_loss
from longspan.models.parts import Constant, OutputByRows, Rates, register_output
from longspan.ops import tree
from longspan.ops.linear import add_bias

CERTAIN = 1e4
"""A logit that leaves no doubt, whose loss and slope are exactly zero: that of decisions which a short path lacks."""


DEEPEST = 34
"""No path is longer: a word at this depth is rarer than one in 15 million (the 36th Fibonacci number), and rates are
taken to be at least `RAREST_SYMBOL`."""


class HuffmanTree(SymbolOutput, OutputByRows):
    r"""One word out of a vocabulary, by the decisions :math:`s_n = \pm 1` at the nodes `n` of its path.

    .. math:: \log p(w \mid h) = \sum_{n \in \mathrm{path}(w)} \log \sigma\big(s_n (w_n \cdot h + b_n)\big)

    The probabilities of all words add up to one whatever the weights are. A loss touches the rows of the path alone;
    `log_probs`, and so samples, evaluate every node.

    Reference: Morin and Bengio, *Hierarchical probabilistic neural network language model*, 2005; Mikolov et al.,
    *Efficient estimation of word representations in vector space*, 2013.
    """

    weights: Float[Array, "node hidden"]
    bias: Float[Array, " node"]
    paths: Constant
    """For each word the decisions of its path, from the root: twice the node, plus one for the branch of positive
    logits; minus one after the last."""

    @staticmethod
    def initial(hidden_size: int, rates: Rates, scale: float, *, key: PRNGKeyArray) -> "HuffmanTree":
        """Weights drawn from a normal distribution of standard deviation `scale`; biases that predict the rates."""
        weights = draws.normal(key, (len(rates) - 1, hidden_size), scale)
        if isinstance(key, jax.core.Tracer):  # mostly for the sake of shapes, for which no tree need be planted
            shapes = (
                jax.ShapeDtypeStruct(_shape(len(rates)), jnp.int32),
                jax.ShapeDtypeStruct(weights.shape[:1], jnp.float32),
            )
            paths, bias = jax.pure_callback(lambda: _planted(rates), shapes)
        else:
            paths, bias = _planted(rates)
        return HuffmanTree(weights, jnp.asarray(bias), Constant(jnp.asarray(paths)))

    def logits(self, hidden, targets, length):
        """Those of the decisions on the path of each target."""
        flat, nodes = hidden.reshape(-1, hidden.shape[-1]), self._nodes(targets, length)
        return tree.path_logits(flat, self.weights, self.bias, nodes).reshape(*targets.shape, -1)

    def loss_of(self, logits, targets):
        paths = self.paths.value[targets]
        return bernoulli_loss(jnp.where(paths >= 0, logits, CERTAIN), (paths & 1).astype(jnp.uint8))

    def loss_by_rows(self, hidden, targets, length, scale):
        flat, nodes = hidden.reshape(-1, hidden.shape[-1]), self._nodes(targets, length)
        weights, bias = jax.lax.stop_gradient((self.weights, self.bias))
        logits = tree.path_logits(flat, weights, bias, nodes)
        slopes = jax.nn.sigmoid(logits) - (self.paths.value[targets] & 1).reshape(nodes.shape).astype(logits.dtype)
        cotangent = jnp.where(nodes >= 0, slopes * scale.ravel()[:, None], 0)
        rows = tree.PathGradient(*jax.lax.stop_gradient((flat, nodes, cotangent)))
        return self.loss_of(logits.reshape(*targets.shape, -1), targets), rows

    @staticmethod
    def tables(output):
        return output.weights, output.bias

    def log_probs(self, hidden):
        logits = add_bias(hidden @ self.weights.T, self.bias)

        def add_decision(total, decision):
            chosen = logits[..., jnp.maximum(decision >> 1, 0)]
            found = jax.nn.log_sigmoid(jnp.where(decision & 1 == 1, chosen, -chosen))
            return total + jnp.where(decision >= 0, found, 0), None

        words, _ = self.paths.value.shape
        nothing = jnp.zeros((*hidden.shape[:-1], words), logits.dtype)
        return jax.lax.scan(add_decision, nothing, self.paths.value.T)[0]

    def _nodes(self, targets, length):
        """The nodes of each target's path; none for padding."""
        nodes = self.paths.value[targets.ravel()] >> 1
        inside = jnp.repeat(jnp.arange(len(targets)) < length, targets.shape[1])
        return jnp.where(inside[:, None], nodes, -1)


def _planted(rates: Rates) -> tuple[Int[np.ndarray, "word depth"], Float[np.ndarray, " node"]]:
    """The paths of all words, and biases of the nodes that predict the rates."""
    paths = huffman_paths(rates)
    return paths, node_log_odds(paths, rates).astype(np.float32)


def _shape(words: int) -> tuple[int, int]:
    """As many columns as a path can be long, whatever the rates."""
    if words < 2:
        raise InputError(f"a tree of words needs a vocabulary of at least two, got {words}: choose softmax")
    return words, min(words - 1, DEEPEST)


def huffman_paths(rates: Float[np.ndarray, " word"]) -> Int[np.ndarray, "word depth"]:
    """The paths of words in a tree whose mean path, weighted by the rates, is the shortest; node 0 is the root.

    Returns:
        For each word its decisions from the root on, twice the node plus the branch; minus one after the last. There
        are as many columns as a path can be long, whatever the rates: a saved model has the shape that its vocabulary
        tells.

    Example:
        >>> huffman_paths(np.array([4.0, 2.0, 1.0])).tolist()
        [[1, -1], [0, 3], [0, 2]]
    """
    words = len(rates)
    paths = np.full(_shape(words), -1, np.int32)
    rates = np.maximum(rates, RAREST_SYMBOL * np.sum(rates))
    heap = [(float(rate), number) for number, rate in enumerate(rates)]
    heapq.heapify(heap)
    above = np.zeros(2 * words - 1, np.int64)  # the decision that leads to a word, or to an inner node behind the words
    for node in range(words - 2, -1, -1):
        (rarer, first), (commoner, second) = heapq.heappop(heap), heapq.heappop(heap)
        above[first], above[second] = 2 * node, 2 * node + 1
        heapq.heappush(heap, (rarer + commoner, words + node))
    backwards, here = [], np.arange(words)
    while np.any(here != words):
        backwards.append(np.where(here != words, above[here], -1))
        here = np.where(here != words, words + (above[here] >> 1), here)
    paths[:, : len(backwards)] = _from_the_root(np.stack(backwards, axis=1))
    return paths


def _from_the_root(backwards: Int[np.ndarray, "word depth"]) -> Int[np.ndarray, "word depth"]:
    """Paths in reverse, with what is missing at the end as before."""
    lengths = np.sum(backwards >= 0, axis=1, keepdims=True)
    place = lengths - 1 - np.arange(backwards.shape[1])
    return np.where(place >= 0, np.take_along_axis(backwards, np.maximum(place, 0), axis=1), -1)


def node_log_odds(paths: Int[np.ndarray, "word depth"], rates: Rates) -> Float[np.ndarray, " node"]:
    """Logits of all nodes at which words have their rates."""
    there = paths >= 0
    spread = np.broadcast_to(np.asarray(rates, np.float64)[:, None], paths.shape)
    mass = np.bincount(paths[there], weights=spread[there], minlength=2 * (len(rates) - 1)).reshape(-1, 2)
    return np.log(mass[:, 1]) - np.log(mass[:, 0])


@register_output("tree", predicts="symbols")
def tree_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> HuffmanTree:
    """Decisions along a Huffman tree."""
    return HuffmanTree.initial(hidden_size, above_zero(rates), config.output_scale, key=key)
