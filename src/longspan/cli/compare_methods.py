"""`longspan compare-methods`: train every method of the paper on the same draws with the same budget."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli, runtime
from longspan.arms.protocol import COUNTED_SEED, Shard, check_data
from longspan.cli.loading import load_data
from longspan.cli.options import parse
from longspan.runtime import first_interrupt


@dataclass(frozen=True)
class CompareMethodsOptions:
    """Compare the paper's methods fairly: arms x numbered slots, paired draws, equal budgets in updates.

    Results are lines in files, which `longspan merge` joins. The same command continues where it was stopped.
    """

    data: Annotated[str, tyro.conf.Positional]
    """Data set of the paper, such as jsb."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("methods")
    """Folder for results, and for runs that are not finished."""
    shard: str = "1/1"
    """Part of the slots to run here, such as 1/2 on one machine and 2/2 on another."""
    slots: int | None = None
    """Run only this many slots of each arm; a larger number later continues from there."""
    arms: tuple[str, ...] = ()
    """Run only these recipes; by default all of the paper's rows for this kind of data."""
    recipes: bool = False
    """Run the shipped recipes, without dropout and averaging, instead of slots, as references for the search space."""
    seed: int = COUNTED_SEED
    """Seed of all draws; any other than the default makes a pilot study, whose results do not count."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""


def run(arguments: list[str]) -> int:
    options = parse(CompareMethodsOptions, arguments, "longspan compare-methods")
    check_data(options.data)
    shard = Shard.parse(options.shard)
    content = load_data(options.data, options.data_dir, quiet=False)
    environment = runtime.prepare(threads=1)
    from longspan.arms.runner import StudyFolder, define_for, run_shard

    # The definition always has all arms, so that results of a subset belong to the same study.
    definition = define_for(content, seed=options.seed)
    folder = StudyFolder(options.out, definition, shard)
    sys.stdout.write(f"{content.name}: {', '.join(definition.arms)}; definition {definition.identity}\n")
    with first_interrupt() as interrupted:
        ended = run_shard(
            folder,
            content,
            environment=environment,
            slots=options.slots,
            arms=options.arms,
            recipes_only=options.recipes,
            interrupted=interrupted,
        )
        for result, timing in ended:
            score = "diverged" if result.valid is None else f"{result.valid:.3f}"
            sys.stdout.write(
                f"slot {result.slot:3d}  {result.arm:14s} {score:>9s}  {result.epochs:4d} epochs  "
                f"{timing.processor_seconds:7.1f} s\n"
            )
            sys.stdout.flush()
        if interrupted():
            sys.stdout.write("Stopped and saved; run the same command again to continue.\n")
            return cli.INTERRUPTED
    sys.stdout.write(f"All slots of shard {options.shard} are done; `longspan merge {options.out}` joins shards.\n")
    return cli.DONE
