"""The part of a page that is about a study: all its trials, what each setting did, and the winner's run."""

from collections import Counter

from longspan.reporting import markup
from longspan.reporting.charts import study_charts
from longspan.reporting.page_run import STATUS_KINDS, duration, run_content
from longspan.reporting.study_report import StudyReport, TrialValue


def study_content(study: StudyReport, tempo: float) -> str:
    """All of a study but its heading, its winner below it."""
    charts = study_charts(study)
    curves = [markup.chart_figure(chart) for chart in charts if not chart.small]
    scatters = [markup.chart_figure(chart) for chart in charts if chart.small]
    parts = [
        markup.tiles(_tiles(study)),
        markup.grid(curves),
    ]
    if scatters:
        tones = markup.legend([("trials", "first"), ("the best", "second")])
        parts += ["<h3>What each setting did</h3>", tones, markup.grid(scatters, "small")]
    parts += ["<h3>Trials</h3>", _trials(study)]
    if study.best is not None:
        parts += [f"<h3>The winner, slot {study.winner}</h3>", run_content(study.best, tempo)]
    return "".join(parts)


def _tiles(study: StudyReport) -> list[str]:
    ended = Counter(trial.status for trial in study.trials)
    best = next((trial for trial in study.trials if trial.slot == study.winner), None)
    shown = [markup.tile("Trials", str(len(study.trials)), ", ".join(f"{n} {status}" for status, n in ended.items()))]
    if best is not None:
        shown.append(markup.tile("Best validation, nats", markup.number(best.valid, 3), f"slot {best.slot}"))
    seconds = sum(trial.seconds for trial in study.trials)
    return [*shown, markup.tile("Training in all", duration(seconds))]


def _trials(study: StudyReport) -> str:
    names = [scatter.setting for scatter in study.scatters]
    header = ["slot", "status", "valid, nats", "epochs", "time", *(name.replace("_", " ") for name in names)]
    ordered = sorted(study.trials, key=lambda trial: (-(trial.valid if trial.valid is not None else -1e30), trial.slot))
    return markup.table("Best first", header, [_row(trial, names, study.winner) for trial in ordered])


def _row(trial: TrialValue, names: list[str], winner: int | None) -> str:
    state = markup.badge(trial.status, STATUS_KINDS.get(trial.status, ""))
    cells = [
        markup.marked_cell(state),
        markup.cell(markup.number(trial.valid, 3)),
        markup.cell(str(trial.epochs)),
        markup.cell(duration(trial.seconds)),
        *(markup.cell(markup.setting(trial.settings[name]) if name in trial.settings else "") for name in names),
    ]
    return markup.row(str(trial.slot), cells, "best" if trial.slot == winner else "")
