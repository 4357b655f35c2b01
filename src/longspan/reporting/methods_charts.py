"""Charts of compared methods: expected-best curves, scores by learning rate, paired differences."""

from longspan.arms.protocol import FULL_SET
from longspan.metrics import LOG_LIKELIHOOD
from longspan.reporting.charts import TONES, Chart, Rule, Series
from longspan.reporting.methods_report import ArmValue, PairValue, SetValue

SCORE = f"validation {LOG_LIKELIHOOD.heading}"


def curve_charts(of: SetValue) -> list[Chart]:
    """Expected best against slots and against seconds, apart for each output."""
    charts = []
    for title, arms in _groups(of.arms).items():
        slots = [_curve(arm, tone, 1.0) for arm, tone in zip(arms, TONES, strict=False)]
        seconds = [_curve(arm, tone, arm.seconds) for arm, tone in zip(arms, TONES, strict=False) if arm.seconds]
        charts.append(Chart(f"{title}: best of n slots", "slots", SCORE, slots))
        if seconds:
            charts.append(Chart(f"{title}: best by time", "processor seconds", SCORE, seconds, x_log=True))
    return charts


def rate_charts(of: SetValue) -> list[Chart]:
    """Every slot of every arm: its score against its learning rate, failed ones as crosses at the floor."""
    return [_rates(arm, of) for arm in of.arms if any(slot.rate is not None for slot in arm.slots)]


def pair_charts(of: SetValue) -> list[Chart]:
    """What each letter changed in every slot, against the learning rate."""
    arms = {arm.arm: arm for arm in of.arms}
    charts = [_pair(pair, arms[pair.better], arms[pair.worse]) for pair in of.pairs if pair.differences]
    return [chart for chart in charts if any(series.points for series in chart.series)]


def _groups(arms: list[ArmValue]) -> dict[str, list[ArmValue]]:
    """Arms that belong into one chart."""
    by_name = {arm.arm: arm for arm in arms}
    if FULL_SET in by_name:
        few = [arm for name, arm in by_name.items() if len(name) <= len("sgd+c")]
        return {"Letters added": few, "Letters taken away": [arm for arm in arms if arm not in few]}
    nade = [arm for name, arm in by_name.items() if name.startswith("nade:")]
    others = [arm for arm in arms if arm not in nade]
    named = {"Independent keys" if nade else "All arms": others, "NADE": nade}
    return {title: some for title, some in named.items() if some}


def _curve(arm: ArmValue, tone: str, unit: float) -> Series:
    curve = arm.curve
    points = [(unit * n, value) for n, value in enumerate(curve.value, 1)]
    return Series(arm.arm, points, tone, band=list(zip(curve.low, curve.high, strict=True)))


def _rates(arm: ArmValue, of: SetValue) -> Chart:
    def series(name: str, tone: str, *, failed: bool) -> Series:
        chosen = [slot for slot in arm.slots if slot.failed == failed and slot.rate is not None]
        points = [(slot.rate, slot.valid) for slot in chosen if slot.rate is not None]
        labels = [f"slot {slot.slot}" for slot in chosen]
        return Series(name, points, tone, joined=False, labels=labels, mark="cross" if failed else "dot")

    both = [series("slots", "first", failed=False), series("failed", "second", failed=True)]
    family = [other.best for other in of.arms if other.arm.startswith("nade:") == arm.arm.startswith("nade:")]
    heights = (of.floor, max(family))
    return Chart(arm.arm, "effective learning rate", SCORE, both, x_log=True, y_range=heights, small=True)


def _pair(pair: PairValue, better: ArmValue, worse: ArmValue) -> Chart:
    def series(name: str, tone: str, *, failed: bool) -> Series:
        chosen = [
            (number, slot.rate)
            for number, slot in enumerate(worse.slots[: len(pair.differences)])
            if slot.rate is not None and (better.slots[number].failed or slot.failed) == failed
        ]
        points = [(rate, pair.differences[number]) for number, rate in chosen]
        labels = [f"slot {number}" for number, _ in chosen]
        return Series(name, points, tone, joined=False, labels=labels, mark="cross" if failed else "dot")

    both = [series("slots", "first", failed=False), series("one or both failed", "second", failed=True)]
    title = f"{pair.better} over {pair.worse}"
    return Chart(
        title, "effective learning rate", "difference, nats", both, [Rule("y", 0.0, "")], x_log=True, small=True
    )
