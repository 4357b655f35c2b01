"""The HTML pages of runs and studies, rendered from their values."""

from collections import Counter
from html import escape
from typing import NamedTuple

from longspan import __version__, webpage
from longspan.metrics import HUGE, METRICS, duration, number
from longspan.playing.page import player_script, shell
from longspan.reporting import markup
from longspan.reporting.charts import framed, memory_charts, run_charts, study_charts, together_chart
from longspan.reporting.diagnosis_section import diagnosis_content
from longspan.reporting.run_report import MemoryValue, RunReport, ScoreValue
from longspan.reporting.samples import MusicSample, TextSample
from longspan.reporting.study_report import StudyReport, TrialValue

PACKAGE = "longspan.reporting"
PLAYABLE, SHELL = "open-player", "player-shell"
"""The class of buttons that open a player, and the element with the page that they open, without its model."""


class Section(NamedTuple):
    """A part of the page."""

    kicker: str
    """Small text above the heading."""
    heading: str
    content: str
    """Markup."""


def render_page(sections: list[Section]) -> str:
    """Render the page as HTML; a single section gives the page its heading."""
    alone = len(sections) == 1
    over, title = (sections[0].kicker, sections[0].heading) if alone else ("longspan", "Report")
    parts, links = [], []
    for part, (kicker, heading, content) in enumerate(sections, 1):
        above = "" if alone else f'<p class="kicker">{escape(kicker)}</p><h2>{escape(heading)}</h2>'
        parts.append(f'<section class="report" id="part-{part}">{above}{content}</section>')
        links.append(f'<a href="#part-{part}">{escape(heading)}</a>')
    body = "\n".join(parts)
    script, allowed = webpage.script(PACKAGE, ("charts.js", "music.js", "player.js", "tables.js")), []
    if PLAYABLE in body:
        body += webpage.embedded(shell("Player"), SHELL)
        allowed = [player_script()]
    return webpage.fill(
        webpage.asset(PACKAGE, "page.html"),
        {
            "policy": webpage.policy(script, *allowed),
            "kicker": escape(over),
            "title": escape(title),
            "version": __version__,
            "navigation": "" if alone else f'<nav aria-label="Parts">{"".join(links)}</nav>',
            "style": webpage.asset("longspan", "palette.css") + webpage.asset(PACKAGE, "page.css"),
            "script": script,
            "body": body,
        },
    )


STATUS_KINDS = {"done": "good", "diverged": "bad", "lost": "bad"}


def run_content(run: RunReport, tempo: float) -> str:
    """The content of a run's section, without its heading."""
    state = markup.badge(run.status, STATUS_KINDS.get(run.status, ""))
    said = f"{state} {escape(run.reason)}" if run.reason else state
    figures = [markup.chart_figure(chart) for chart in run_charts(run)]
    return "".join(
        [
            f"<p>{said}</p>",
            markup.tiles(_run_tiles(run)),
            _baselines(run),
            _data(run),
            markup.grid(figures),
            "" if run.memory is None else _memory(run.memory),
            "" if run.diagnosis is None else diagnosis_content(run.diagnosis),
            _samples(run, tempo),
            _player(run),
            "<h3>Settings</h3>",
            _settings(run),
        ]
    )


def together_content(runs: list[RunReport]) -> str:
    """Several runs on the same data: one table with the simple predictors, and one chart."""
    measured = {score.metric for run in runs for score in run.scores}
    metrics = [metric for name, metric in METRICS.items() if name in measured]
    reached = [(run.name, {score.metric: score.ours for score in run.scores}) for run in runs]
    beside = {label: figures for run in runs for label, figures in run.baselines.items()}
    rows = [
        markup.row(
            label,
            [markup.number_cell(markup.true_minus(metric.show(figures.get(metric.name)))) for metric in metrics],
        )
        for label, figures in [*reached, *beside.items()]
    ]
    scores = markup.table("Test split", ["run", *(metric.heading for metric in metrics)], rows) if metrics else ""
    drawn = [run for run in runs if run.epochs]
    return scores + (markup.grid([markup.chart_figure(together_chart(drawn))]) if drawn else "")


def _run_tiles(run: RunReport) -> list[str]:
    made = [_score_tile(score) for score in run.scores if score.metric in METRICS]
    best = next((each for each in run.epochs if each.epoch == run.best_epoch), None)
    if best is not None:
        made.append(
            markup.tile("Validation, nats", markup.true_minus(number(best.valid, 3)), f"epoch {best.epoch}, the best")
        )
    made.append(markup.tile("Epochs", str(len(run.epochs)), escape(duration(run.seconds)) + " of training"))
    return made


def _baselines(run: RunReport) -> str:
    """The scores beside those of simple predictors."""
    metrics = [METRICS[score.metric] for score in run.scores if score.metric in METRICS]
    if not run.baselines or not metrics:
        return ""

    def row(label: str, figures: dict[str, float], kind: str = "") -> str:
        cells = [markup.number_cell(markup.true_minus(metric.show(figures.get(metric.name)))) for metric in metrics]
        return markup.row(label, cells, kind)

    ours = row("this model", {score.metric: score.ours for score in run.scores}, "best")
    remembering = [] if run.memory is None else [row(f"with memory ({run.memory.memory})", run.memory.test, "best")]
    rows = [ours, *remembering, *(row(label, figures) for label, figures in run.baselines.items())]
    return markup.table("Beside simple predictors, test split", ["", *(metric.heading for metric in metrics)], rows)


def _data(run: RunReport) -> str:
    """The sizes of the splits, and the grid of music."""
    if not run.splits:
        return ""
    names = list(next(iter(run.splits.values())))
    rows = [
        markup.row(split, [markup.number_cell(_figure(figures.get(name))) for name in names])
        for split, figures in run.splits.items()
    ]
    grid = "" if run.grid is None else f", {run.grid} frame{'s' * (run.grid > 1)} per quarter note"
    headings = ["split", *(name.replace("_", " ") for name in names)]
    return markup.table(f"Data: {run.data}{grid}", headings, rows)


def _figure(value: float | None) -> str:
    return number(int(value) if value is not None and abs(value) < HUGE and float(value).is_integer() else value)


def _score_tile(score: ScoreValue) -> str:
    metric = METRICS[score.metric]
    digits = 1 if metric.unit == "%" else 2
    beside = ""
    if score.error is not None:
        beside = f"an estimate, ± {number(metric.scale * score.error)}<br>"
    if score.paper is not None:
        reaches = metric.reaches(score.ours, score.paper)
        mark = '<span class="good-text">✓ at or better</span>' if reaches else '<span class="bad-text">behind</span>'
        beside += f"paper {markup.true_minus(number(metric.scale * score.paper, digits))} {mark}"
    return markup.tile(f"Test {metric.heading}", markup.true_minus(number(metric.scale * score.ours, digits)), beside)


def _memory(memory: MemoryValue) -> str:
    """Which steps of the test split were recalled, and from where."""
    about = ""
    if memory.learned_every is not None:
        after = "every step" if memory.learned_every == 1 else f"every {memory.learned_every} steps"
        about += f"While it was scored, the network went on learning from each piece, after {after}. "
    if memory.recalled:
        about += (
            f"{100 * memory.recalled:.1f} % of the steps of the test split were recalled, not newly made. Each point "
            "is such a step, and its height the earlier step of the same piece that it copies: rising lines are "
            "passages that come again."
        )
    figures = [markup.chart_figure(framed(chart)) for chart in memory_charts(memory)]
    return f'<h3>Memory</h3><p class="lead">{about}</p>{markup.grid(figures)}'


def _samples(run: RunReport, tempo: float) -> str:
    if not run.samples:
        return ""
    about = "Generated with the best weights: every step drawn is the next input."
    shown = [
        _roll(sample, number, tempo) if isinstance(sample, MusicSample) else _text(sample, number)
        for number, sample in enumerate(run.samples, 1)
    ]
    return f'<h3>Samples</h3><p class="lead">{about}</p>{markup.grid(shown)}'


def _roll(sample: MusicSample, number: int, tempo: float) -> str:
    values = {
        "notes": sample.notes,
        "frames": sample.frames,
        "frames_per_beat": sample.frames_per_beat,
        "tempo": tempo,
    }
    return (
        f'<figure class="roll wide"><figcaption>Sample {number}</figcaption><div class="controls">'
        f'<button type="button">{markup.PLAY}<span>Play</span></button>'
        f'<input type="range" min="0" step="0.01" value="0" aria-label="Position in sample {number}">'
        f'<output></output></div><div class="keys"></div>{webpage.embedded(values)}</figure>'
    )


def _text(sample: TextSample, number: int) -> str:
    return (
        f'<figure class="text-sample"><figcaption>Sample {number}</figcaption>'
        f"<pre>{escape(sample.text.strip())}</pre></figure>"
    )


def _player(run: RunReport) -> str:
    """A button that opens the model itself, or why there is none."""
    if run.player is None:
        said = f"This model does not play in a page: {run.no_player}." if run.no_player else ""
        return f'<p class="lead">{escape(said)}</p>' if said else ""
    what = "Play with the model" if run.player.kind == "music" else "Write with the model"
    about = "The trained network itself, in this page: it improvises without end, and you can join in."
    return (
        f'<div class="player"><button type="button" class="{PLAYABLE}">{markup.PLAY}<span>{what}</span></button>'
        f'<p class="lead">{about}</p>{webpage.embedded(run.player)}</div>'
    )


def _settings(run: RunReport) -> str:
    def rows(names: list[str]) -> list[str]:
        return [
            markup.row(name.replace("_", " "), [markup.setting_cell(run.settings[name])])
            for name in names
            if name not in ("recipe", "data")
        ]

    rest = [name for name in run.settings if name not in run.changed]
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return (
        markup.table("Changed from the defaults", ["setting", "value"], rows(run.changed), kind="narrow")
        + markup.details(
            "Settings at their default", markup.table("Defaults", ["setting", "value"], rows(rest), kind="narrow")
        )
        + (f'<p class="lead">Computed with {escape(versions)}.</p>' if versions else "")
    )


def study_content(study: StudyReport, tempo: float) -> str:
    """The content of a study's section, without its heading, followed by its winner."""
    charts = study_charts(study)
    curves = [markup.chart_figure(chart) for chart in charts if not chart.small]
    scatters = [markup.chart_figure(chart) for chart in charts if chart.small]
    parts = [
        markup.tiles(_study_tiles(study)),
        markup.grid(curves),
    ]
    if scatters:
        tones = markup.legend([("trials", "first"), ("the best", "second")])
        parts += ["<h3>What each setting did</h3>", tones, markup.grid(scatters, "small")]
    parts += ["<h3>Trials</h3>", _trials(study)]
    if study.best is not None:
        parts += [f"<h3>The winner, slot {study.winner}</h3>", run_content(study.best, tempo)]
    return "".join(parts)


def _study_tiles(study: StudyReport) -> list[str]:
    ended = Counter(trial.status for trial in study.trials)
    best = next((trial for trial in study.trials if trial.slot == study.winner), None)
    shown = [markup.tile("Trials", str(len(study.trials)), ", ".join(f"{n} {status}" for status, n in ended.items()))]
    if best is not None:
        shown.append(
            markup.tile("Best validation, nats", markup.true_minus(number(best.valid, 3)), f"slot {best.slot}")
        )
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
        markup.number_cell(number(trial.valid, 3)),
        markup.cell(str(trial.epochs)),
        markup.cell(duration(trial.seconds)),
        *(markup.setting_cell(trial.settings.get(name)) for name in names),
    ]
    return markup.row(str(trial.slot), cells, "best" if trial.slot == winner else "")
