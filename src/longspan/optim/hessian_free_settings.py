"""The constants of Hessian-free optimization; no JAX here, so that a command line may show them without it.

Where a default is not Martens' (2010) it is that of the code behind the paper's own Hessian-free results.
"""

import math
from dataclasses import dataclass

from longspan.errors import InputError


@dataclass(frozen=True)
class HessianFreeSettings:
    """Every knob of `longspan.optim.hessian_free.HessianFree`."""

    initial_damping: float = 0.5
    """First lambda, the weight of half the squared step beside the quadratic model."""
    damping_factor: float = 1.5
    """lambda is multiplied by this where the model promised too much, divided where it was about right."""
    minimal_damping: float = 1e-8
    """lambda never falls below this, so that it can come back within a few updates."""
    structural_damping: float = 1.0
    """mu: weight, relative to lambda, of changes in the network's structural values; 0 for none, literature
    0.03 to 1, and long-range tasks are solved most surely at the upper end."""
    max_iterations: int = 250
    """Conjugate gradient steps per update at most."""
    tolerance: float = 0.0005
    """Relative gain of the quadratic per step below which conjugate gradient stops."""
    save_growth: float = 1.3
    """Conjugate gradient iterates number ceil(save_growth^j) are candidates for the step."""
    warm_start: float = 0.95
    """Conjugate gradient starts from this times its last solution; 0 for a cold start."""
    preconditioner_exponent: float = 0.0
    """Exponent of the preconditioner (mean squared gradient + lambda); 0 for none, which suits recurrent
    networks; 0.75 suits deep feed-forward ones."""
    examples_per_map: int = 1
    """Examples whose single gradients, for the preconditioner, are taken together by `jax.vmap`."""
    line_search_shrink: float = 0.8
    """Factor between two step lengths tried."""
    line_search_tries: int = 30
    """Step lengths tried before an update is rejected."""
    sufficient_decrease: float = 0.01
    """Part of the decrease promised by the slope that a step must achieve."""
    slice_size: int | None = None
    """Examples in flight at a time, which bounds the memory; none for the whole batch at once."""
    burst_seconds: float = 0.5
    """About how long conjugate gradient computes between two looks at whether to stop."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InputError(f"{name} must lie from {low:g} to {high:g}: got {value}")


_TINY, _BELOW_ONE = 1e-30, math.nextafter(1.0, 0.0)
_RANGES: dict[str, tuple[float, float]] = {
    "initial_damping": (_TINY, 1e30),
    "damping_factor": (1, 1e6),
    "minimal_damping": (0, 1e30),
    "structural_damping": (0, 1e30),
    "max_iterations": (1, 1e6),
    "tolerance": (0, _BELOW_ONE),
    "save_growth": (1 + 1e-3, 1e6),
    "warm_start": (0, 1),
    "preconditioner_exponent": (0, 1),
    "examples_per_map": (1, 1e9),
    "line_search_shrink": (_TINY, _BELOW_ONE),
    "line_search_tries": (1, 1e6),
    "sufficient_decrease": (0, _BELOW_ONE),
    "slice_size": (1, 1e9),
    "burst_seconds": (0, 1e6),
}
