"""`longspan report`: runs, studies, compared methods and results as one self-contained page."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli, runtime
from longspan.cli import print_json
from longspan.cli.options import parse
from longspan.errors import InputError
from longspan.files import write_atomic
from longspan.report import find_all, render_report, report_of, run_to_sample
from longspan.terminal import say


@dataclass(frozen=True)
class ReportOptions:
    """Write one self-contained HTML page about runs, studies, compared methods and results: no network, no other files.

    It shows learning curves, gradient norms with the clip line, scores beside the paper's, the effect of each searched
    setting, and samples to hear or read.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, studies, compared methods or results (as written by `longspan reproduce`)."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """File to write."""
    samples: int = 2
    """Number of samples of each run and of each study's winner; 0 for none."""
    seed: int = 0
    """Seed of the samples."""
    tempo: float = 100.0
    """Tempo of music, in quarter notes per minute."""
    player: bool = True
    """Put the model itself into the page, to play or write with, if a page can run it."""
    json: bool = False
    """Print the values as JSON instead of writing the page."""


def run(arguments: list[str]) -> int:
    options = parse(ReportOptions, arguments, "longspan report")
    if not options.paths:
        raise InputError("expected at least one folder of a run, a study or results")
    if options.samples < 0 or not 0 < options.tempo < math.inf:
        raise InputError(
            "--samples must not be negative and --tempo must be a finite number above 0: "
            f"got {options.samples} and {options.tempo}"
        )
    found = [each for path in options.paths for each in find_all(path)]
    player = options.player and not options.json
    if (options.samples or player) and any(map(run_to_sample, found)):
        runtime.prepare(1)
    reports = [report_of(each, samples=options.samples, seed=options.seed, player=player) for each in found]
    if options.json:
        print_json(reports)
        return cli.DONE
    write_atomic(options.output, render_report(reports, tempo=options.tempo))
    say(f"wrote {options.output}\n")
    return cli.DONE
