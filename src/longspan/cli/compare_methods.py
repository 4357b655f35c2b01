"""`longspan compare-methods`: train every method of the paper on the same draws with the same budget."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli, runtime
from longspan.arms.protocol import COUNTED_SEED, Definition, Shard, check_data
from longspan.arms.records import RESULTS, SlotResult, merge, read_all
from longspan.cli.options import load_data, parse
from longspan.errors import InputError, to_paste
from longspan.registry import child_command
from longspan.runtime import first_interrupt
from longspan.search.storage import import_optuna, url_from
from longspan.terminal import say

TICK_SECONDS = 0.2


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
    workers: int = 1
    """Number of processes, of one thread each, that share the slots of this shard."""
    storage: str | None = None
    """postgresql://HOST/DATABASE: share the slots with all processes, on any hosts, that name the same storage."""
    artifacts: str | None = None
    """With a storage: where checkpoints are kept for other hosts, such as s3://BUCKET/FOLDER; by default there."""
    slots: int | None = None
    """Run only this many slots of each arm; a larger number later continues from there."""
    arms: tuple[str, ...] = ()
    """Run only these recipes; by default all of the paper's rows for this kind of data."""
    winners: Path | None = None
    """Folder of merged results: train the slot that validation chose there for each arm with fresh seeds, and score it
    on the test split."""
    ablations: bool = False
    """Compare each letter added to plain descent and taken from the full set, instead of the paper's rows."""
    recipes: bool = False
    """Run the shipped recipes, without dropout and averaging, instead of slots, as references for the search space."""
    seed: int = COUNTED_SEED
    """Seed of all draws; any other than the default makes a pilot study, whose results do not count."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""


def run(arguments: list[str]) -> int:
    options = parse(CompareMethodsOptions, arguments, "longspan compare-methods")
    check_data(options.data)
    if options.workers < 1:
        raise InputError(f"--workers must be at least 1: got {options.workers}")
    if options.storage and (options.shard != "1/1" or options.arms or options.winners or options.recipes):
        raise InputError("--storage shares all slots of all arms: leave out --shard, --arms, --winners and --recipes")
    if options.winners and options.recipes:
        raise InputError("--winners and --recipes are two different things to run: give one of them")
    shard = Shard.parse(options.shard)
    with first_interrupt() as interrupted:
        if options.workers > 1:
            command = child_command("longspan", "compare-methods", *arguments, "--workers", "1")
            return run_workers(command, options.workers, interrupted)
        return _run_here(options, shard, interrupted)


def _run_here(options: CompareMethodsOptions, shard: Shard, interrupted: Callable[[], bool]) -> int:
    content = load_data(options.data, options.data_dir, quiet=False)
    environment = runtime.prepare(threads=1)
    from longspan.arms.runner import Ended, StudyFolder, define_for, run_tasks

    # The definition always has all arms, so that results of a subset belong to the same study.
    definition = define_for(content, seed=options.seed, ablations=options.ablations)
    folder = StudyFolder(options.out, definition, shard)
    say(f"{content.name}: {', '.join(definition.arms)}; definition {definition.identity}\n")

    def tell(ended: Ended) -> None:
        result, timing = ended
        score = "diverged" if result.valid is None else f"{result.valid:.3f}"
        length = f"{result.epochs:4d} epochs" if isinstance(result, SlotResult) else f"seed {result.seed}"
        say(f"slot {result.slot:3d}  {result.arm:14s} {score:>9s}  {length}  {timing.processor_seconds:7.1f} s\n")
        sys.stdout.flush()

    if options.storage:
        import_optuna()  # says how to get it
        from longspan.arms.hosted import HostedStudy

        hosted = HostedStudy(url_from(options.storage), folder, content, slots=options.slots)
        hosted.run(environment, interrupted=interrupted, artifacts=options.artifacts, on_end=tell)
        return _say_how_it_ended(options, interrupted, hosted.left)
    tasks = _tasks(options, definition, shard)
    for ended in run_tasks(folder, content, tasks, environment=environment, interrupted=interrupted):
        tell(ended)
    finished = folder.finished()
    return _say_how_it_ended(
        options, interrupted, left=sum(task.key_on(content.name) not in finished for task in tasks)
    )


def _say_how_it_ended(options: CompareMethodsOptions, interrupted: Callable[[], bool], left: int) -> int:
    if interrupted():
        say("Stopped and saved; run the same command again to continue.\n")
        return cli.INTERRUPTED
    what = "winners" if options.winners else "slots"
    if options.storage:
        told = f"{left} slots were given up" if left else "All slots are done"
    else:
        told = f"Done here; other processes are at {left} of the {what}" if left else f"All {what} are done"
        told += f" (shard {options.shard})"
    say(f"{told}; `{to_paste('merge', options.out)}` joins results.\n")
    return cli.DONE


def _tasks(options: CompareMethodsOptions, definition: Definition, shard: Shard) -> list:
    """What to run here, in order."""
    from longspan.arms.runner import slot_tasks, winner_tasks

    if options.winners is None:
        return slot_tasks(definition, shard, slots=options.slots, arms=options.arms, recipes_only=options.recipes)
    files = sorted(options.winners.glob(f"{options.data}*{RESULTS}"))
    results = [result for result in merge(read_all(files, SlotResult)) if result.data == options.data]
    if not results:
        raise InputError(
            f"--winners must name a folder with results on {options.data}: got {options.winners}, which has none; "
            "`longspan merge` makes one"
        )
    tasks = winner_tasks(definition, Shard(), results, slots=options.slots, arms=options.arms)
    waiting = [arm for arm in options.arms or definition.arms if arm not in {task.arm for task in tasks}]
    if waiting:
        say(f"No winner yet, because slots are missing in {options.winners} or all failed: {', '.join(waiting)}\n")
    return winner_tasks(definition, shard, results, slots=options.slots, arms=options.arms)


def run_workers(command: list[str], count: int, interrupted: Callable[[], bool]) -> int:
    """Run a command in several processes, which share its slots, until all have ended; restart those that are killed.

    Returns the exit code of the command.
    """

    def start() -> subprocess.Popen:
        return subprocess.Popen(command, start_new_session=True)  # Ctrl-C comes here and is passed on below

    workers, codes = [start() for _ in range(count)], []
    stopping = False
    try:
        while workers:
            if interrupted() and not stopping:
                stopping = True
                for worker in workers:
                    worker.terminate()
            ended = [worker for worker in workers if worker.poll() is not None]
            killed = sum(worker.returncode == -getattr(signal, "SIGKILL", 9) for worker in ended)
            codes += [worker.returncode for worker in ended]
            workers = [worker for worker in workers if worker not in ended]
            workers += [] if stopping else [start() for _ in range(killed)]
            time.sleep(TICK_SECONDS)
    finally:  # after a second Ctrl-C nobody wants to wait
        for worker in workers:
            worker.kill()
    if interrupted():
        return cli.INTERRUPTED
    return max((code for code in codes if code > 0), default=cli.DONE)
