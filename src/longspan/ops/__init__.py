"""Differentiable operations of a training step: native C++ beside an XLA twin, each with its derivative rules.

A module holds one family: the public operations, their twins, their rules. `backend` checks operands when an operation
is traced, on both paths alike, finds the native library and chooses the path; `linear` tells JAX about linear maps.
Nothing is loaded before it is needed.
"""
