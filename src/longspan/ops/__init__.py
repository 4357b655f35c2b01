"""Differentiable operations of a training step: native C++ beside an XLA twin, each with its derivative rules.

A module holds one family: the public operations, their twins, their rules. `contracts` checks operands when an
operation is traced, on both paths alike; `backend` finds the native library and chooses the path; `transposable` gives
linear maps to JAX. Nothing is loaded before it is needed.
"""
