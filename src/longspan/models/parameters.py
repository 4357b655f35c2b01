"""The trained arrays of a model (all but those marked `Constant`), and names for all of its arrays on disk."""

from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

Tree = TypeVar("Tree")


class Constant(eqx.Module):
    """An array that is saved with the model but never differentiated, such as the leak factors."""

    value: Array


def split_constants(model: Tree) -> tuple[Tree, Tree]:
    """Split a model into its trained part and the rest; `eqx.combine` joins them again."""
    return eqx.partition(model, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, Constant))


def to_named(tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a tree by path, such as `cell.recurrent`, as stored in a safetensors file."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def from_named(like: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """The tree `like` with its arrays replaced by those of `to_named`; shapes and types must agree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [_name(path) for path, _ in leaves]
    if set(names) != set(arrays):
        raise ValueError(f"expected arrays {sorted(names)}, got {sorted(arrays)}")
    for name, (_, leaf) in zip(names, leaves, strict=True):
        found = arrays[name]
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise ValueError(f"{name}: expected {leaf.dtype}{leaf.shape}, got {found.dtype}{found.shape}")
    return jax.tree_util.tree_unflatten(structure, [jax.numpy.asarray(arrays[name]) for name in names])


def not_arrays(tree: PyTree) -> list[str]:
    """Names of the leaves of a tree that are not arrays."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [_name(path) for path, leaf in leaves if not eqx.is_array(leaf)]


def _name(path) -> str:
    return ".".join(jax.tree_util.keystr((key,), simple=True) for key in path)
