"""Initial weights as NumPy arranges them: drawing, scaling and orthogonalizing a matrix of a new size compiles nothing.

JAX compiles a program for every shape, and those that draw the weights of a model would take longer to compile than the
one that trains it. But its random numbers are numbered: the first ones of a longer vector are those of a shorter one.
So vectors of a few lengths are drawn and cut. The numbers are the same, to the bit, as those of `jax.random`, which
takes over where a model is only traced, for the sake of its shapes.
"""

import math
from collections.abc import Callable

import jax
import jax.core
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

Number = float | np.floating


def zeros(*shape: int) -> Float[Array, "..."]:
    """Zeros of any shape, put onto the device as they are; `jnp.asarray` would compile a program for it."""
    return jax.device_put(np.zeros(shape, _float()))


def normal(key: PRNGKeyArray, shape: tuple[int, ...], scale: Number = 1.0) -> Float[Array, "..."]:
    """Numbers from a normal distribution of standard deviation `scale`."""
    return jax.device_put(scale * _cut(jax.random.normal, key, shape))


def uniform(key: PRNGKeyArray, count: int, low: float, high: float, drawn: int | None = None) -> Float[Array, " count"]:
    """Numbers between `low` and `high`; all after the first `drawn` ones are zero."""

    def draw(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.uniform(key, shape, minval=low, maxval=high)

    kept = (np.arange(count) < (count if drawn is None else drawn)).astype(_float())
    return jax.device_put(kept * _cut(draw, key, (count,)))


def orthogonal(key: PRNGKeyArray, size: int, scale: Number = 1.0) -> Float[Array, "row column"]:
    """An orthogonal matrix, uniformly distributed, times `scale`: Q of a random matrix whose R is positive."""
    if isinstance(key, jax.core.Tracer):
        return scale * jax.random.orthogonal(key, size)
    import scipy.linalg  # late, so that `runtime.prepare` can set its number of threads, on which the rounding depends

    entries = np.asfortranarray(_cut(jax.random.normal, key, (size, size)))
    factorize, complete = scipy.linalg.get_lapack_funcs(("geqrf", "orgqr"), (entries,))
    factors, reflections, *_ = factorize(entries, lwork=_best(factorize(entries, lwork=-1)))
    orthonormal, *_ = complete(factors, reflections, lwork=_best(complete(factors, reflections, lwork=-1)))
    return jax.device_put(np.ascontiguousarray(scale * (orthonormal * np.sign(np.diagonal(factors)))))


def over_root(scale: float, size: int) -> np.floating:
    """`scale` divided by the square root of a size, rounded like weights."""
    number = _float().type
    return number(scale) / np.sqrt(number(size))


def _cut(draw: Callable, key: PRNGKeyArray, shape: tuple[int, ...]):
    """As `draw` draws, but out of a vector whose length is a power of two."""
    if isinstance(key, jax.core.Tracer):
        return draw(key, shape)
    size = math.prod(shape)
    return np.asarray(draw(key, (1 << max(size - 1, 0).bit_length(),)))[:size].reshape(shape)


def _best(asked: tuple) -> int:
    """The size of the workspace that LAPACK advises; with another one it rounds otherwise."""
    return int(asked[-2][0])


def _float() -> np.dtype:
    """The type of weights: that of numbers in JAX."""
    return np.dtype(jax.dtypes.canonicalize_dtype(float))
