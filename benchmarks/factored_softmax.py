"""Class-factored against full softmax: a chunk of 40 words at growing vocabularies, one thread.

Words are drawn from Zipf's law. `rows` is how many rows of weights the classes of the chunk's words hold: the loss
follows it and not the vocabulary. The gradient of the weights is formed whole here, as for other optimizers than
plain descent, so it cannot cost less than a pass over them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from longspan.models.factored import ClassFactored, class_starts
from longspan.models.outputs import Output, Softmax
from longspan.models.parameters import split_constants

from .contest import Turn, seconds_per_update

HIDDEN, STEPS = 200, 40


def contestants(output: Output, hidden, targets) -> dict[str, Turn]:
    """The loss, and the loss with its gradient."""
    params, constants = split_constants(output)

    def total(hidden, params):
        model = eqx.combine(params, constants)
        return jnp.sum(model.loss(hidden, targets, jnp.asarray(STEPS), key=jax.random.key(0)))

    def turn(function) -> Turn:
        def one() -> int:
            jax.block_until_ready(function(hidden, params))
            return 1

        return one

    return {"loss": turn(jax.jit(total)), "with gradient": turn(jax.jit(jax.value_and_grad(total, argnums=(0, 1))))}


def rows_touched(targets, starts) -> int:
    """Rows of all classes that occur."""
    classes = np.unique(np.searchsorted(starts, targets, side="right") - 1)
    return int(np.diff(starts)[classes].sum())


def measure() -> dict:
    """Seconds by vocabulary and by how it is cut."""
    rng = np.random.default_rng(0)
    hidden = jnp.asarray(rng.normal(size=(STEPS, 1, HIDDEN)), jnp.float32)
    found = []
    for words in (10_000, 50_000, 200_000):
        rates = 1 / np.arange(1, words + 1)
        rates /= rates.sum()
        targets = jnp.asarray(rng.choice(words, (STEPS, 1), p=rates), jnp.int32)
        full = Softmax.initial(HIDDEN, jnp.asarray(np.log(rates), jnp.float32), 0.1, key=jax.random.key(0))
        outputs: list[tuple[str, int, Output]] = [("full softmax", words, full)]
        for classes, rule in ((30, "frequency"), (round(words**0.5), "frequency"), (round(words**0.5), "square-root")):
            starts = class_starts(rates, classes, rule)
            factored = ClassFactored.initial(HIDDEN, rates, starts, 0.1, key=jax.random.key(0))
            outputs.append((f"{classes} classes, {rule}", rows_touched(targets, starts), factored))
        for name, rows, output in outputs:
            seconds = seconds_per_update(contestants(output, hidden, targets), rounds=5)
            found.append({"words": words, "output": name, "rows": rows, "seconds": seconds})
    return {"outputs": found}


def table(figures: dict) -> list[list[str]]:
    """Milliseconds."""
    rows = [["words", "output", "rows", "loss ms", "with gradient ms"]]
    for found in figures["outputs"]:
        times = [f"{1e3 * seconds:.2f}" for seconds in found["seconds"].values()]
        rows.append([f"{found['words']:,}", found["output"], f"{found['rows']:,}", *times])
    return rows
