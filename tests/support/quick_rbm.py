"""An RBM with few and short chains, whose estimates are good all the same as long as it is small: `quick-rbm`."""

import dataclasses

from longspan.models.parts import register_output
from longspan.models.rbm import Annealing, Budget, Chains, Rbm, rbm_output

QUICK = Chains(2, 2, Annealing(100, 1), Annealing(100, 2), Annealing(300, 20), Budget(400, 20, 2000))
ONE_STEP = QUICK._replace(budget=QUICK.budget._replace(glance_steps=1))


def with_chains(output: Rbm, chains: Chains = QUICK) -> Rbm:
    return dataclasses.replace(output, chains=chains)


@register_output("quick-rbm", predicts="keys")
def quick_rbm(config, hidden_size, rates, *, key):
    return with_chains(rbm_output(config, hidden_size, rates, key=key))


@register_output("glancing-rbm", predicts="keys")
def glancing_rbm(config, hidden_size, rates, *, key):
    """After an epoch it looks at one step of the validation split."""
    return with_chains(rbm_output(config, hidden_size, rates, key=key), ONE_STEP)
