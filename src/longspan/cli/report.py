"""`longspan report`: runs, studies and results as one page that needs nothing but itself."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli
from longspan.cli import machine
from longspan.cli.options import parse
from longspan.cli.output import print_json
from longspan.errors import InputError
from longspan.files import write_atomic
from longspan.reporting.page import render_report
from longspan.reporting.report import read_report, run_to_sample


@dataclass(frozen=True)
class ReportOptions:
    """One HTML page of runs, studies and results, with everything inside: no network, no other file.

    Learning curves, gradient norms with the clip line, scores beside the paper's, what each searched setting did,
    samples to hear or read.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, of studies, or of results (what `longspan reproduce` writes)."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page."""
    samples: int = 2
    """Samples drawn of each run and of each study's winner; 0 for none."""
    seed: int = 0
    """Seed of the samples."""
    tempo: float = 100.0
    """Quarter notes a minute at which music is played."""
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
    if options.samples and any(run_to_sample(path) for path in options.paths):
        machine.prepare(1)
    reports = [read_report(path, samples=options.samples, seed=options.seed) for path in options.paths]
    if options.json:
        print_json(reports)
        return cli.DONE
    write_atomic(options.output, render_report(reports, tempo=options.tempo))
    sys.stdout.write(f"wrote {options.output}\n")
    return cli.DONE
