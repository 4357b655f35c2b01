"""`longspan inspect`: how gradients travel through time in a trained model."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from longspan import runtime
from longspan.cli import print_json
from longspan.cli.options import load_data_of, parse
from longspan.errors import InputError
from longspan.training.runs import Run

SHOWN_LAGS = (0, 1, 2, 3, 5, 10, 20, 30, 50, 75, 100, 150, 200)
BAR = 40
DECADES = 8


@dataclass(frozen=True)
class InspectOptions:
    """Show how gradients travel through time in a trained model: whether they vanish or explode."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    split: Literal["train", "valid", "test"] = "valid"
    """Split to examine: its longest song, or the beginning of its text."""
    lags: int = 100
    """Number of steps to look back."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    json: bool = False
    """Print only the findings, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(InspectOptions, arguments, "longspan inspect")
    if options.lags < 1:
        raise InputError(f"--lags must be at least 1: got {options.lags}")
    inspected = Run.open(options.path)
    content = load_data_of(inspected, options.data_dir, quiet=options.json)
    runtime.prepare(inspected.config.threads)
    from longspan.diagnostics import gradient_flow, longest_chunk
    from longspan.training.setup import trained_model

    flow = gradient_flow(trained_model(inspected), longest_chunk(content, options.split, options.lags), options.lags)
    if options.json:
        print_json({"run": str(options.path), "split": options.split, "verdict": flow.verdict, **asdict(flow)})
    else:
        _show(flow)
    return 0


def _show(flow) -> None:
    console = Console(highlight=False)
    console.print("Mean length of the gradient that a step's loss sends back, by lag:")
    largest = max(flow.profile)
    for lag in [lag for lag in SHOWN_LAGS if lag < len(flow.profile)]:
        value = flow.profile[lag]
        console.print(f"  {lag:>4}  {value:9.3g}  {_bar(value, largest)}")
    console.print(flow.verdict)
    console.print(f"Spectral radius of the mean one-step Jacobian: {flow.mean_jacobian_radius:.3f}")
    if flow.spectral_radius is not None:
        console.print(f"Spectral radius of the recurrent matrix: {flow.spectral_radius:.3f}")
    if flow.saturated is not None:
        console.print(
            f"Units and steps with a flat slope: {flow.saturated:.1%}; units that never respond: {flow.dead:.1%}"
        )


def _bar(value: float, largest: float) -> str:
    """A bar on a logarithmic scale of `DECADES`; empty for smaller values and gradients that underflowed to zero."""
    share = value / largest if largest > 0 else 0.0
    return "█" * round(BAR * (1 + math.log10(share) / DECADES)) if share > 10.0**-DECADES else ""
