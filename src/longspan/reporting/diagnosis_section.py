"""The diagnosis of a run on its page: findings with their remedies, and charts of what was measured."""

from collections.abc import Mapping
from html import escape

from longspan.diagnostics.case import Finding
from longspan.diagnostics.diagnosis import Diagnosis
from longspan.diagnostics.landscape import Cut
from longspan.diagnostics.measures import Measures
from longspan.reporting import markup
from longspan.reporting.charts import Chart, Rule, Series, framed


def diagnosis_content(found: Diagnosis) -> str:
    """Findings and charts, as markup."""
    figures = markup.grid([markup.chart_figure(framed(chart)) for chart in diagnosis_charts(found.measures)])
    findings = "".join(_finding(each) for each in found.findings) or f"<p>{escape(found.verdict)}</p>"
    about = found.measures.about_units
    units = "" if about is None else f"<p>{escape(about)}</p>"
    return f"<h3>Diagnosis</h3>{findings}{units}{figures}"


def _finding(finding: Finding) -> str:
    evidence = "".join(f"<li>{escape(each)}</li>" for each in finding.evidence)
    remedies = "".join(
        f"<p>{escape(remedy.what)}:</p><pre>{escape(remedy.command)}</pre>" for remedy in finding.remedies
    )
    return (
        f"<p>{markup.badge(finding.name, 'bad')} {escape(finding.says)}</p><ul>{evidence}</ul>"
        f'<div class="text-sample">{remedies}</div>'
    )


def diagnosis_charts(seen: Measures) -> list[Chart]:
    """Gradient by lag, history, price of a repeat, Lyapunov exponents, cuts through the loss, and what was watched."""
    charts = [_gradient(seen), _exponents(seen)]
    charts += [_history(seen)] if seen.history.lengths else []
    charts += [_repeats(seen)] if seen.repeats is not None else []
    if seen.landscape is not None:
        cuts = (("gradient", seen.landscape.along_gradient), ("next update", seen.landscape.along_update))
        charts += [_cut(name, cut) for name, cut in cuts if cut is not None and None not in cut.chunk]
    return charts + _watched(seen)


def _gradient(seen: Measures) -> Chart:
    points = [(float(lag), norm) for lag, norm in enumerate(seen.gradient.norms) if norm > 0]
    return Chart("Gradient by lag", "steps back", "mean length", [Series("gradient", points, "first")], y_log=True)


def _exponents(seen: Measures) -> Chart:
    points = [(float(place), value) for place, value in enumerate(seen.lyapunov.exponents, 1)]
    series = [Series("exponent", points, "third", joined=False)]
    return Chart("Lyapunov exponents", "number", "nats per step", series, [Rule("y", 0.0, "neither grows nor fades")])


def _history(seen: Measures) -> Chart:
    history = seen.history
    points = [(float(length), score) for length, score in zip(history.lengths, history.scores, strict=True)]
    whole = Rule("y", history.whole, "all of the past")
    series = [Series("score", points, "second")]
    title = f"Score by length of history, {history.steps:,} steps"
    return Chart(title, "inputs seen", "nats per step", series, [whole], x_log=True)


def _repeats(seen: Measures) -> Chart:
    found = seen.repeats
    assert found is not None
    ours = [(float(each.shortest), each.loss / found.loss_elsewhere) for each in found.buckets]
    theirs = [(float(each.shortest), each.reference_loss / found.reference_loss_elsewhere) for each in found.buckets]
    series = [Series("this model", ours, "second"), Series("without memory", theirs, "first")]
    return Chart("Price of a repeat", "length of the match", "loss over that elsewhere", series, x_log=True)


def _cut(name: str, cut: Cut) -> Chart:
    rules = [Rule("x", cut.unclipped, "full")]
    if cut.clipped is not None and cut.clipped < 0.99 * cut.unclipped:
        rules.append(Rule("x", cut.clipped, "clipped"))
    series = [
        Series(label, [(at, loss) for at, loss in zip(cut.distances, losses, strict=True) if loss is not None], tone)
        for label, losses, tone in (("its chunk", cut.chunk, "second"), ("all chunks", cut.sample, "first"))
    ]
    return Chart(f"Loss along the {name}", "distance", "nats per step", series, rules)


def _watched(seen: Measures) -> list[Chart]:
    records = seen.course.gradients
    if not records:
        return []
    lags = [lag for lag in records[-1] if lag != "0"][-4:]
    tones = ("first", "second", "third", "fourth")
    series = [
        Series(
            f"{lag} steps back",
            [(float(epoch), left) for epoch, each in enumerate(records, 1) if (left := _left(each, lag))],
            tone,
        )
        for lag, tone in zip(lags, tones, strict=False)
    ]
    dead = [(float(epoch), 100 * share) for epoch, share in enumerate(seen.course.dead, 1) if share is not None]
    return [
        Chart("Gradient left, over training", "epoch", "share of lag 0", series, y_log=True),
        Chart("Dead units, over training", "epoch", "% of units", [Series("dead", dead, "fourth")]),
    ]


def _left(norms: Mapping[str, float | None], lag: str) -> float:
    """Share of the gradient at the step itself that is left at a lag; 0 where one of them is not known."""
    here = norms.get("0")
    return (norms.get(lag) or 0.0) / here if here else 0.0
