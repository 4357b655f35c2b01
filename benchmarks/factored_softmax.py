"""Class-factored against full softmax: milliseconds for a chunk of words, at growing vocabularies, in one run.

    python benchmarks/factored_softmax.py

Words are drawn from Zipf's law. `rows` is how many rows of weights the classes of the chunk's words hold: `loss`, the
forward pass, follows it and not the vocabulary. `+ gradient` adds the gradient of hidden states and weights; that of
the weights is dense here, so it cannot cost less than a pass over them.
"""

import os

os.environ.setdefault("NPROC", "1")  # one thread for both: the comparison is about work, not about cores

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from longspan.models.factored import ClassFactored, class_starts
from longspan.models.outputs import Output, Softmax
from longspan.models.parameters import split_constants

HIDDEN, STEPS, REPEATS = 200, 40, 7


def milliseconds(function, *arguments) -> float:
    """Best of some repeats, after one call that compiles."""
    jax.block_until_ready(function(*arguments))
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        spent.append(time.perf_counter() - began)
    return 1e3 * min(spent)


def measure(output: Output, hidden, targets) -> list[float]:
    """Time of the loss, and of the loss with its gradient."""
    params, constants = split_constants(output)

    def total(hidden, params):
        model = eqx.combine(params, constants)
        return jnp.sum(model.loss(hidden, targets, jnp.asarray(STEPS), key=jax.random.key(0)))

    return [
        milliseconds(jax.jit(total), hidden, params),
        milliseconds(jax.jit(jax.value_and_grad(total, argnums=(0, 1))), hidden, params),
    ]


def rows_touched(targets, starts) -> int:
    classes = np.unique(np.searchsorted(starts, targets, side="right") - 1)
    return int(np.diff(starts)[classes].sum())


def main() -> None:
    rng = np.random.default_rng(0)
    hidden = jnp.asarray(rng.normal(size=(STEPS, 1, HIDDEN)), jnp.float32)
    print(f"{STEPS} words, {HIDDEN} hidden units, one thread; milliseconds, best of {REPEATS}")
    print(f"{'words':>8} {'output':<26} {'rows':>8} {'loss':>8} {'+ gradient':>11}")
    for words in (10_000, 50_000, 200_000):
        rates = 1 / np.arange(1, words + 1)
        rates /= rates.sum()
        targets = jnp.asarray(rng.choice(words, (STEPS, 1), p=rates), jnp.int32)
        full = Softmax.initial(HIDDEN, jnp.asarray(np.log(rates), jnp.float32), 0.1, key=jax.random.key(0))
        show(words, "full softmax", words, measure(full, hidden, targets))
        for classes, rule in ((30, "frequency"), (round(words**0.5), "frequency"), (round(words**0.5), "square-root")):
            starts = class_starts(rates, classes, rule)
            factored = ClassFactored.initial(HIDDEN, rates, starts, 0.1, key=jax.random.key(0))
            name = f"{classes} classes, {rule}"
            show(words, name, rows_touched(targets, starts), measure(factored, hidden, targets))


def show(words: int, name: str, rows: int, figures: list[float]) -> None:
    loss, gradient = figures
    print(f"{words:>8,} {name:<26} {rows:>8,} {loss:>8.2f} {gradient:>11.2f}", flush=True)


if __name__ == "__main__":
    main()
