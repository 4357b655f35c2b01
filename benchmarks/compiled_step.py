"""One update at batch 1 with 200 units, PyTorch also compiled: the loop over time written out, a minute to compile."""

from . import peers, training_step

table = training_step.table


def measure() -> dict:
    """Seconds of one update."""
    peak = peers.gigaflops()
    names = (*training_step.NAMES, "PyTorch compiled")
    return {"peak_gigaflops": peak, "regimes": [training_step.regime(1, 200, False, names, peak)]}
