"""The part of a page that is about one run."""

from html import escape

from longspan.reporting import markup
from longspan.reporting.charts import run_charts
from longspan.reporting.comparison import LOWER_IS_BETTER
from longspan.reporting.run_report import RunReport, ScoreValue
from longspan.reporting.samples import MusicSample, TextSample

METRICS = {
    "log_likelihood": "Test log-likelihood, nats",
    "accuracy": "Test accuracy, %",
    "accuracy_union": "Test accuracy (union), %",
    "perplexity": "Test perplexity",
    "bits_per_character": "Test bits per character",
}
STATUS_KINDS = {"done": "good", "diverged": "bad", "lost": "bad"}


def run_content(run: RunReport, tempo: float) -> str:
    """All of a run but its heading."""
    state = markup.badge(run.status, STATUS_KINDS.get(run.status, ""))
    said = f"{state} {escape(run.reason)}" if run.reason else state
    figures = [markup.chart_figure(chart) for chart in run_charts(run)]
    return "".join(
        [
            f"<p>{said}</p>",
            markup.tiles(_tiles(run)),
            markup.grid(figures),
            _samples(run, tempo),
            "<h3>Settings</h3>",
            _settings(run),
        ]
    )


def _tiles(run: RunReport) -> list[str]:
    made = [_score_tile(score) for score in run.scores if score.metric in METRICS]
    best = next((each for each in run.epochs if each.epoch == run.best_epoch), None)
    if best is not None:
        made.append(markup.tile("Validation, nats", markup.number(best.valid, 3), f"epoch {best.epoch}, the best"))
    made.append(markup.tile("Epochs", str(len(run.epochs)), escape(duration(run.seconds)) + " of training"))
    return made


def _score_tile(score: ScoreValue) -> str:
    percent = score.metric.startswith("accuracy")
    scale, digits = (100.0, 1) if percent else (1.0, 2)
    beside = ""
    if score.error is not None:
        beside = f"an estimate, ± {markup.number(scale * score.error)}<br>"
    if score.paper is not None:
        ours, theirs = round(scale * score.ours, 2), round(scale * score.paper, 2)
        reaches = ours <= theirs if score.metric in LOWER_IS_BETTER else ours >= theirs
        mark = '<span class="good-text">✓ at or better</span>' if reaches else '<span class="bad-text">behind</span>'
        beside += f"paper {markup.number(theirs, digits)} {mark}"
    return markup.tile(METRICS[score.metric], markup.number(scale * score.ours, digits), beside)


def _samples(run: RunReport, tempo: float) -> str:
    if not run.samples:
        return ""
    about = "What the best weights make up when every step they draw is their next input."
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
        f'<output></output></div><div class="keys"></div>{markup.embedded(values)}</figure>'
    )


def _text(sample: TextSample, number: int) -> str:
    return (
        f'<figure class="text-sample"><figcaption>Sample {number}</figcaption>'
        f"<pre>{escape(sample.text.strip())}</pre></figure>"
    )


def _settings(run: RunReport) -> str:
    def rows(names: list[str]) -> list[str]:
        return [
            markup.row(name.replace("_", " "), [markup.cell(markup.setting(run.settings[name]))])
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


def duration(seconds: float) -> str:
    """Seconds in words short enough for a tile."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
