"""Class-factored against full softmax: a chunk of 40 words at growing vocabularies, one thread.

Words are drawn from Zipf's law. `rows` is how many rows of weights the classes of the chunk's words hold: the loss
follows it and not the vocabulary, and so does an update, the loss with its gradient and a step of descent in place.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from longspan.models.factored import ClassFactored, class_starts
from longspan.models.outputs import Softmax
from longspan.models.parts import Output, OutputByRows, split_constants

from .contest import Turn, seconds_per_update

HIDDEN, STEPS, RATE = 200, 40, 0.1


def contestants(output: Output, hidden, targets) -> dict[str, Turn]:
    """The loss, and an update of the weights with what the hidden states receive."""
    length, scale = jnp.asarray(STEPS), jnp.full((STEPS, 1), 1 / STEPS)
    params, constants = split_constants(output)

    def loss(params, hidden):
        model = eqx.combine(params, constants)
        if isinstance(model, OutputByRows):
            losses, rows = model.loss_by_rows(hidden, targets, length, scale)
        else:
            losses, rows = model.loss(hidden, targets, length, key=jax.random.key(0)), None
        return jnp.sum(scale * losses), rows

    def update(params, hidden):
        (_, rows), (slopes, by_hidden) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, hidden)
        tables = None if rows is None else rows.descend(output.tables(params), RATE)
        params = jax.tree.map(lambda leaf, slope: leaf - RATE * slope, params, slopes)
        return params if tables is None else eqx.tree_at(output.tables, params, tables), by_hidden

    find, descend = jax.jit(lambda hidden, params: loss(params, hidden)[0]), jax.jit(update, donate_argnums=0)
    updated = jax.tree.map(jnp.copy, params)

    def loss_turn() -> int:
        jax.block_until_ready(find(hidden, params))
        return 1

    def update_turn() -> int:
        nonlocal updated
        updated, by_hidden = descend(updated, hidden)
        jax.block_until_ready((updated, by_hidden))
        return 1

    return {"loss": loss_turn, "update": update_turn}


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
    rows = [["words", "output", "rows", "loss ms", "update ms"]]
    for found in figures["outputs"]:
        times = [f"{1e3 * seconds:.2f}" for seconds in found["seconds"].values()]
        rows.append([f"{found['words']:,}", found["output"], f"{found['rows']:,}", *times])
    return rows
