"""Sampling with the recall memory: a model that returns to what it has said.

The next step is drawn from the same mixture that is scored: the network's candidates with the network's weight, copies
of the sample's own past with theirs. A temperature sharpens the mixture of symbols. Of frames it sharpens what the
network draws and what is recalled each by itself: what was heard would otherwise become ever likelier to be heard
again, until little else is.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from longspan.data.lookup import NONE, Found
from longspan.memory import gate
from longspan.models.model import SequenceModel
from longspan.models.outputs import OFF, ON
from longspan.models.parts import Candidates, Held
from longspan.sampling.generate import Proposal
from longspan.sampling.reading import Past, look_back


class Recalling(Proposal):
    """The mixture of a network and its recall memory.

    Args:
        weights: of the features of a candidate, in the order of `gate.FEATURES`.
        candidates: largest number of steps to recall.
    """

    weights: Float[Array, " feature"]
    candidates: int = eqx.field(static=True)

    def __call__(self, model, hidden, past, count, *, keys, held):
        drawn = model.output.candidates(hidden, count, keys=keys, held=held)
        copies, exist, mixed = self.recall(model, hidden, past)
        network = mixed.network[:, None]
        if copies.ndim == 2:  # all symbols are listed
            log_prob = jnp.logaddexp(network + drawn.log_prob, _weight_of(drawn.steps, copies, mixed.candidates))
            return Candidates(drawn.steps, log_prob, jnp.where(drawn.log_weight > -jnp.inf, log_prob, -jnp.inf))
        allowed = exist if held is None else exist & _fits(copies, held)
        pairs = (
            (drawn.steps, copies.astype(drawn.steps.dtype)),
            (drawn.log_prob, mixed.candidates),  # a temperature compares what the network draws, or what is recalled
            (network + drawn.log_weight - jnp.log(count), jnp.where(allowed, mixed.candidates, -jnp.inf)),
            (jnp.zeros_like(drawn.log_prob, bool), jnp.ones_like(exist)),
        )
        return Candidates(*(jnp.concatenate(pair, axis=1) for pair in pairs))

    def recall(
        self, model: SequenceModel, hidden: Float[Array, "lane hidden"], past: Past
    ) -> tuple[Shaped[Array, "lane candidate ..."], Array, gate.Mixed]:
        """What the past proposes to every lane, which of it exists, and the weights of network and copies."""
        found = jax.vmap(lambda steps: look_back(steps, past.length, self.candidates))(past.steps)
        exist = found.level > NONE
        lanes = jnp.arange(len(past.steps))[:, None]
        copies = past.steps[lanes, jnp.maximum(found.place, 0)]
        repeats = (found.latest == found.step - 1) & exist
        values = gate.features(Found(*found), _log_probs(model, hidden, copies), repeats)
        return copies, exist, gate.mix(values, exist, self.weights)


def _log_probs(model: SequenceModel, hidden: Float[Array, "lane hidden"], steps: Shaped[Array, "lane candidate ..."]):
    rows = jnp.moveaxis(steps, 1, 0)
    repeated, count = jnp.broadcast_to(hidden, (len(rows), *hidden.shape)), jnp.asarray(len(rows), jnp.int32)
    score = partial(model.output.log_prob, key=jax.random.key(0))
    if model.output.exact:
        return score(repeated, rows, count).T
    relative = model.output.relative_log_prob(repeated, rows)  # all have one partition function, the costly part
    return (relative + score(repeated[:1], rows[:1], jnp.asarray(1, jnp.int32)) - relative[:1]).T


def _weight_of(symbols, copies, log_weights):
    """Log-weight of each symbol among the copies; minus infinity where it is none of them."""
    same = symbols[:, :, None] == copies[:, None]
    return jax.nn.logsumexp(jnp.where(same, log_weights[:, None], -jnp.inf), axis=2)


def _fits(copies: Shaped[Array, "lane candidate key"], held: Held) -> Bool[Array, "lane candidate"]:
    """Which copies have the held keys as they have to be."""
    wrong = ((held == ON)[:, None] & (copies == 0)) | ((held == OFF)[:, None] & (copies > 0))
    return ~wrong.any(axis=2)
