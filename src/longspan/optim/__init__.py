"""Optimizers for any JAX objective: the paper's steps as Optax transformations, and Hessian-free optimization."""

from longspan.optim.hessian_free import HessianFree, HessianFreeSettings
from longspan.optim.transforms import clip_by_norm, inverse_decay, nesterov, ramp

__all__ = ["HessianFree", "HessianFreeSettings", "clip_by_norm", "inverse_decay", "nesterov", "ramp"]
