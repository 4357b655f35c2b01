"""`longspan diagnose`: how far a model remembers, how it was trained, what is wrong and what to do."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from longspan import cli, runtime
from longspan.cli.options import load_data_of, parse
from longspan.errors import to_paste
from longspan.terminal import Console
from longspan.training.runs import Run

SHOWN_LAGS = (0, 1, 2, 4, 8, 16, 32, 64, 100, 128, 200, 256, 500)
LEVELS = " ▁▂▃▄▅▆▇█"
DECADES = 8
"""Powers of ten from an empty to a full bar."""
WIDTH = 78
CUT_POINTS = (9, 5)


@dataclass(frozen=True)
class DiagnoseOptions:
    """Measure how far a trained model remembers and how it was trained; name what is wrong and what to do about it.

    The result is kept in the run folder; `longspan report RUN` draws it.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    split: Literal["train", "valid", "test"] = "valid"
    """Split on whose sequences the model is run."""
    lags: int = 100
    """Number of steps that gradients are followed back."""
    steps: int = 12_000
    """About how many steps of the split are examined, as whole sequences spread over it."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    json: bool = False
    """Print everything that was measured and found, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(DiagnoseOptions, arguments, "longspan diagnose")
    examined = Run.open(options.path)
    content = load_data_of(examined, options.data_dir, quiet=options.json)
    runtime.prepare(examined.config.threads)
    from longspan.diagnostics.diagnosis import diagnose_run

    found = diagnose_run(examined, content, split=options.split, lags=options.lags, steps=options.steps)
    found.keep(examined)
    if options.json:
        cli.print_json({"verdict": found.verdict, **_plain(found)})
    else:
        console = Console(highlight=False, soft_wrap=True)
        for line in lines_of(found):
            console.print(line, markup=False)
    return cli.DONE


def _plain(found) -> dict:
    import msgspec

    return msgspec.to_builtins(found)


def lines_of(found) -> Iterator[str]:
    """The diagnosis in lines of at most 80 columns; only commands and paths may be longer."""
    seen = found.measures
    yield f"{seen.recipe} on {seen.data}: {seen.sequences} sequences, {seen.steps:,} steps of {seen.split}"
    if seen.weights != "best":
        yield f"(weights of the {seen.weights}: the run has no best ones)"
    yield ""
    if not found.findings:
        yield found.verdict
    for number, finding in enumerate(found.findings, 1):
        yield from _finding_lines(number, finding)
    yield ""
    yield from _memory_lines(seen)
    yield from _gradient_lines(seen)
    yield from _unit_lines(seen)
    yield from _training_lines(seen)
    yield ""
    yield f"Drawn:  {to_paste('report', Path(seen.run), '-o', 'report.html')}"


def _finding_lines(number: int, finding) -> Iterator[str]:
    yield from _wrapped(f"{number}. {finding.name.upper()}  ", finding.says)
    for each in finding.evidence:
        yield from _wrapped("   - ", each)
    for remedy in finding.remedies:
        yield from _wrapped("   > ", remedy.what + _brought(remedy.brought))
        yield f"     {remedy.command}"


def _brought(brought) -> str:
    if brought is None:
        return ""
    return (
        f" (after injected faults: better in {brought.better} of {brought.runs} runs, median gain "
        f"{brought.gain:.3g} nats per step)"
    )


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * min(len(head), 5))


def _memory_lines(seen) -> Iterator[str]:
    history = seen.history
    if history.lengths:
        shown = [*zip(map(str, history.lengths), history.scores, strict=True), ("all", history.whole)]
        yield f"Score by length of history (nats per step, {_of_steps(seen)})"
        yield from _columns([name for name, _ in shown], [f"{score:.3f}" for _, score in shown])
    if seen.repeats:
        price, reference = seen.repeats.price, seen.repeats.reference_price
        yield (
            f"Price of a repeat {price:.2f}, without memory {reference:.2f} "
            f"({seen.repeats.share:.0%} of steps; 0 remembers)"
        )
        buckets = seen.repeats.buckets
        yield from _columns(
            [_bucket_name(bucket, buckets) for bucket in buckets],
            [f"{bucket.loss / seen.repeats.loss_elsewhere:.2f}" for bucket in buckets],
            ("match", "price"),
        )


def _of_steps(seen) -> str:
    few = seen.history.steps < seen.steps
    return f"of {seen.history.steps:,}{f' of the {seen.steps:,}' if few else ''} steps"


def _bucket_name(bucket, buckets) -> str:
    later = [other.shortest for other in buckets if other.shortest > bucket.shortest]
    if not later:
        return f"{bucket.shortest}+"
    return str(bucket.shortest) if later[0] == bucket.shortest + 1 else f"{bucket.shortest}-{later[0] - 1}"


def _gradient_lines(seen) -> Iterator[str]:
    norms = seen.gradient.norms
    lags = [lag for lag in SHOWN_LAGS if lag < len(norms)]
    yield "Gradient by lag, of that at the step itself"
    shares = [norms[lag] / norms[0] if norms[0] > 0 else 0.0 for lag in lags]
    yield from _columns([*map(str, lags)], [_share(share) for share in shares], ("lag", "left"))
    yield "  " + bars(norms[:WIDTH])
    half = seen.gradient.half_life
    exponents = seen.lyapunov.exponents
    yield (
        f"  half-life {'beyond' if half is None else half} steps; "
        f"Lyapunov exponents {', '.join(f'{value:.2f}' for value in exponents[:4])} nats per step"
    )


def _share(value: float) -> str:
    """Two digits, or one with a power of ten, so that a table of them fits the width."""
    return f"{value:.2g}" if value == 0 or value >= 1e-4 else f"{value:.0e}"


def bars(values: Sequence[float]) -> str:
    """Values as bars on a logarithmic scale of `DECADES`; the largest is full, zeros are blank.

    Example:
        >>> bars([1.0, 1e-4, 0.0])
        '█▄ '
    """
    largest = max(values)
    return "".join(_bar(value / largest if largest > 0 else 0.0) for value in values)


def _bar(share: float) -> str:
    if share <= 10.0**-DECADES:
        return LEVELS[0]
    return LEVELS[max(1, round((len(LEVELS) - 1) * (1 + math.log10(share) / DECADES)))]


def _unit_lines(seen) -> Iterator[str]:
    units = seen.units
    flat = "" if units.flat is None else f"{units.flat:.0%} of unit-steps {units.flat_means}; "
    yield f"Units: {flat}{units.dead:.0%} of {units.count} never move; rank of states {units.effective_rank:.1f}"


def _training_lines(seen) -> Iterator[str]:
    course, standards, found = seen.course, seen.standards, seen.landscape
    yield (
        f"Nats per step: training {standards.train:.3f}, validation {standards.valid:.3f}, rates {standards.rates:.3f}"
    )
    if 0 < seen.history.steps < seen.steps:
        yield f"  (of all steps examined; the history above is {_of_steps(seen)})"
    if seen.about_units is not None:
        yield from _wrapped("  ", seen.about_units)
    clipped = "" if course.late_clipped is None else f", {course.late_clipped:.0%} of updates clipped"
    best = "" if course.best_epoch is None else f", best {course.best_epoch}"
    yield f"Training: {course.status}, {len(course.valid)} epochs{best}{clipped}"
    if found is None:
        return
    if found.update_ratios:
        largest = max(found.update_ratios, key=found.update_ratios.__getitem__)
        yield f"Next update over weights: at most {found.update_ratios[largest]:.2g}, in {largest}"
    if found.multiples:
        best_multiple = found.best_multiple
        better = "at no length" if best_multiple is None else f"most at {best_multiple:g} times its length"
        yield f"Next update lowers the training loss {better}"
    yield from _cut_lines(found)


def _cut_lines(found) -> Iterator[str]:
    for name, cut in (("gradient", found.along_gradient), ("update", found.along_update)):
        if cut is None:
            continue
        marks = f"unclipped step ends at {cut.unclipped:.2g}"
        if cut.clipped is not None:
            marks += f", clipped at {cut.clipped:.2g}"
        yield f"Loss along the {name}: {marks}"
        yield from _cut_table(cut)


def _cut_table(cut) -> list[str]:
    """The loss at as many of some places, evenly spread, as fit the width."""
    lines: list[str] = []
    for points in CUT_POINTS:
        places = range(0, len(cut.distances), max(1, (len(cut.distances) - 1) // (points - 1)))
        lines = _columns(
            [f"{cut.distances[place]:.2g}" for place in places],
            ["inf" if cut.chunk[place] is None else f"{cut.chunk[place]:.4g}" for place in places],
        )
        if len(lines) == 2:
            break
    return lines


def _columns(heads: Sequence[str], values: Sequence[str], label: tuple[str, str] = ("", "")) -> list[str]:
    """Two rows of a small table after their label; if they do not fit the width, several pairs of equal length."""
    pairs: list[tuple[str, str]] = []
    for parts in range(1, len(heads) + 1):
        size = math.ceil(len(heads) / parts)
        pairs = [
            _pair([label[0], *heads[first : first + size]], [label[1], *values[first : first + size]])
            for first in range(0, len(heads), size)
        ]
        if max(len(line) for pair in pairs for line in pair) <= WIDTH:
            break
    return [line for pair in pairs for line in pair]


def _pair(heads: Sequence[str], values: Sequence[str]) -> tuple[str, str]:
    widths = [max(map(len, cells)) for cells in zip(heads, values, strict=True)]
    upper, lower = (
        " ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in (heads, values)
    )
    return f" {upper}", f" {lower}"
