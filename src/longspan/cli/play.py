"""`longspan play`: a trained model as one page that improvises, without network or server."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from longspan import cli, runtime
from longspan.cli import print_json
from longspan.cli.options import load_data_of, parse
from longspan.data.dataset import Dataset
from longspan.data.library import is_here
from longspan.errors import InputError, to_paste
from longspan.files import write_atomic
from longspan.terminal import say
from longspan.training.runs import Run


@dataclass(frozen=True)
class PlayOptions:
    """Write one HTML page in which the trained model itself plays music, or reads and continues text.

    The page needs no network and no server. It runs leaky, LSTM and GRU cells, alone or in layers, with Bernoulli,
    NADE, softmax, class-factored or tree outputs, and the memory of a run.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("play.html")
    """File to write."""
    weights: Literal["int8", "f16"] = "int8"
    """How weights are written: int8 with a scale for each row, or f16, which is twice as large and rounds less."""
    data_dir: Path | None = None
    """Folder of data sets, by whose validation split the loss by rounding is measured."""
    json: bool = False
    """Print only a description of what was written, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(PlayOptions, arguments, "longspan play")
    if options.output.is_dir():
        raise InputError(f"{options.output} is a folder, expected the name of a file such as play.html")
    played = Run.open(options.path)
    runtime.prepare(played.config.threads)
    from longspan.playing.packing import measure, pack
    from longspan.playing.page import render

    packed, remark = pack(played, options.weights), ""
    try:
        data = _data_of(played, options)
        packed = packed.measured(measure(played, options.weights, data))
    except InputError as error:
        remark = f"what rounding costs was not measured: {str(error).split(';')[0]}"
    write_atomic(options.output, render(packed))
    size = options.output.stat().st_size
    if options.json:
        print_json(_describe(options, packed, size, remark))
        return cli.DONE
    say(f"wrote {options.output} ({size / 1000:.0f} kB, {packed.weights:,} weights as {packed.precision})\n")
    if packed.rounding is not None:
        exact, rounded = packed.rounding.exact, packed.rounding.rounded
        say(f"validation log-likelihood {exact:.4f}, rounded {rounded:.4f}: {packed.rounding.told}\n")
    if remark:
        say(f"note: {remark}\n")
    return cli.DONE


def _data_of(run: Run, options: PlayOptions) -> Dataset:
    """The data of a run; a measurement alone is no reason to download any."""
    if not is_here(run.config.data, options.data_dir):
        get = to_paste("data", "get", run.config.data)
        raise InputError(f"{run.config.data} has not been downloaded: `{get}` does it")
    return load_data_of(run, options.data_dir, quiet=options.json)


def _describe(options: PlayOptions, packed, size: int, remark: str) -> dict:
    return {
        "run": str(options.path),
        "written": str(options.output),
        "bytes": size,
        "weights": packed.weights,
        "precision": packed.precision,
        "rounding": packed.rounding,
        "remarks": [remark] if remark else [],
    }
