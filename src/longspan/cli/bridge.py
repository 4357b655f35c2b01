"""`longspan bridge`: how long a span each method bridges, as a table and a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from longspan import cli, runtime
from longspan.arms.protocol import Shard
from longspan.cli import print_json
from longspan.cli.options import parse
from longspan.files import write_atomic
from longspan.runtime import first_interrupt
from longspan.terminal import Console, say


@dataclass(frozen=True)
class BridgeOptions:
    """Which methods solve tasks over how long a span: the share of seeds, with equal tuning and equal time.

    Every method gets 8 slots of settings and then 5 fresh seeds for each task and span. The same command continues
    where it was stopped; `--only-draw` shows what there is.
    """

    tasks: Annotated[tuple[str, ...], tyro.conf.Positional] = ("temporal-order", "addition")
    """Synthetic tasks."""
    spans: tuple[int, ...] = (10, 30, 100, 200)
    """Approximate sequence lengths."""
    methods: tuple[str, ...] = ()
    """Methods, such as "sgd+c" "sgd+crm, identity"; by default all."""
    seconds: float = 20.0
    """Processor seconds of one run, after its first epoch."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("bridging")
    """Folder of the results."""
    shard: str = "1/1"
    """Part of the work to do here, such as 1/2 in one process and 2/2 in another."""
    picture: Path | None = None
    """Draw which seeds solve a task over which span into this SVG file."""
    only_draw: bool = False
    """Run nothing."""
    json: bool = False
    """Print the summary as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(BridgeOptions, arguments, "longspan bridge")
    shard = Shard.parse(options.shard)
    runtime.prepare(threads=1)
    from longspan.arms.bridging import BridgingFolder, check_tasks, read_attempts, run_study, summarize

    check_tasks(options.tasks)
    if not options.only_draw:
        with first_interrupt() as interrupted:
            study = run_study(
                BridgingFolder(options.out, shard),
                list(options.tasks),
                spans=options.spans,
                methods=options.methods,
                shard=shard,
                seconds=options.seconds,
                interrupted=interrupted,
            )
            for each in study:
                ended = "solved" if each.solved else f"{each.error_rate:.0%} wrong"
                say(
                    f"{each.task} {each.span:3d}  {each.method:20s}  {each.stage:6s} {each.number}  {ended:>10s}  "
                    f"{each.seconds:5.1f} s\n",
                    error=True,
                )
            if interrupted():
                say("Stopped; run the same command again to continue.\n", error=True)
                return cli.INTERRUPTED
    summary = summarize(read_attempts(options.out))
    if options.picture is not None:
        from longspan.reporting.span_picture import draw

        write_atomic(options.picture, draw(summary).encode())
    if options.json:
        print_json(summary)
    else:
        Console().print(*_tables(summary))
    return cli.DONE


def _tables(summary: list) -> list[Table]:
    tables = []
    for task in sorted({each.task for each in summary}):
        own = [each for each in summary if each.task == task]
        spans = sorted({each.span for each in own})
        table = Table("method", *(f"span {span}" for span in spans), title=escape(f"{task}: seeds that solve it"))
        for method in dict.fromkeys(each.method for each in own):
            by_span = {each.span: each for each in own if each.method == method}
            table.add_row(escape(method), *(_cell(by_span.get(span)) for span in spans))
        tables.append(table)
    return tables


def _cell(bridged) -> str:
    if bridged is None:
        return ""
    seconds = "" if bridged.seconds is None else f", {bridged.seconds:.1f} s"
    return f"{bridged.solved} of {bridged.seeds}{seconds}"
