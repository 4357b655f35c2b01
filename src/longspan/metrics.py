"""The one definition of every metric: its label, which direction is better, its format and its conversion to nats.

The functions at the end format all other numbers, settings and durations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A score by which models are judged."""

    name: str
    """The field of `Scores`."""
    label: str
    unit: str = ""
    lower_is_better: bool = False
    scale: float = 1.0
    """Factor applied when a value is shown: 100 for percentages."""
    digits: int = 3
    """Decimals shown for a single score; comparisons with the paper show two, as the paper does."""
    significant: int | None = None
    """Significant digits instead, for a score of any magnitude."""
    to_nats: Callable[[float], float] | None = None
    """Converts a value to log-likelihood in nats per frame or symbol; None if the metric is not a likelihood."""

    @property
    def heading(self) -> str:
        """Label and unit, as in titles of columns and axes."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    @property
    def direction(self) -> str:
        """Which direction is better, in words."""
        return "lower is better" if self.lower_is_better else "higher is better"

    def nats(self, value: float) -> float:
        """Convert a value to log-likelihood in nats, the common scale of all metrics that are likelihoods."""
        if self.to_nats is None:
            raise ValueError(f"{self.name} is not a likelihood")
        return self.to_nats(value)

    def best(self, values: list[float]) -> float:
        """The best of some values."""
        return min(values) if self.lower_is_better else max(values)

    def reaches(self, value: float, reference: float) -> bool:
        """Whether a value equals or beats a reference, both rounded to the two decimals that are printed."""
        ours, theirs = round(self.scale * value, 2), round(self.scale * reference, 2)
        return ours <= theirs if self.lower_is_better else ours >= theirs

    def show(self, value: float | None, error: float | None = None) -> str:
        """Format a score for a table, as an estimate if it has a standard `error`; empty for None."""
        if value is None:
            return ""
        if error is not None:
            return f"{number(self.scale * value)} ± {number(self.scale * error)} (estimate)"
        if self.significant is not None:
            return f"{self.scale * value:.{self.significant}g}"
        return number(self.scale * value, self.digits)


METRICS = {
    metric.name: metric
    for metric in (
        Metric("log_likelihood", "log-likelihood", "nats", to_nats=lambda value: value),
        Metric("accuracy", "accuracy", "%", scale=100, digits=2),
        Metric("accuracy_union", "union accuracy", "%", scale=100, digits=2),
        Metric("perplexity", "perplexity", lower_is_better=True, to_nats=lambda value: -math.log(value)),
        Metric(
            "bits_per_character",
            "bits per character",
            lower_is_better=True,
            to_nats=lambda value: -value * math.log(2),
        ),
        Metric("bits_per_byte", "bits per byte", lower_is_better=True, to_nats=lambda value: -value * math.log(2)),
        Metric("error_rate", "wrong sequences", "%", lower_is_better=True, scale=100, digits=2),
        Metric("class_accuracy", "right answers", "%", scale=100, digits=2),
        Metric("squared_error", "squared error", lower_is_better=True, significant=4),
        Metric("r2", "R²"),
    )
}
"""All metrics, in display order."""

LOG_LIKELIHOOD = METRICS["log_likelihood"]


HUGE = 1e12
"""Above any score; what is larger, such as that of a run that went astray, is shown by its power of ten."""


def number(value: float | None, digits: int = 2) -> str:
    """Format a number: floats with `digits` decimals, integers in groups of three digits; empty for None.

    Example:
        >>> number(-5.2912), number(1_234_567), number(-1.5e32)
        ('-5.29', '1,234,567', '-1.50e+32')
    """
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}f}" if abs(value) < HUGE else f"{value:.{digits}e}"


def setting(value: object) -> str:
    """Format the value of a setting, floats with four significant digits; empty for None."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Format seconds in their two largest units.

    Example:
        >>> duration(7.4), duration(95), duration(5400)
        ('7 s', '1 min 35 s', '1 h 30 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
