"""The fault suite: `python -m tests.faults.suite` tries everything as often as it should be, in portions.

Every portion draws other faults than the ones before it and is added to `results/reliability.json`, so the suite can be
stopped and continued at any time. Called once more when all is done, it begins another pass, with other faults; with
`--anew` the named experiments of a pass, or everything, are forgotten and tried again. The table of
`docs/reliability.md` is written from that file, again with `--render`.
"""

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

import longspan
from longspan.files import write_atomic
from tests.faults.experiments import EXPERIMENTS, Bench, Experiment

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
PORTIONS = 1000
"""More than any experiment has."""
BEGIN, END = "<!-- written by python -m tests.faults.suite -->\n", "<!-- end -->\n"


class Count(msgspec.Struct):
    """What was tried so far of one experiment."""

    goal: int
    tried: int = 0
    portions: int = 0
    wrong: list[str] = []
    control_tried: int = 0
    control_wrong: int = 0
    commits: list[str] = []
    """The commits that the portions were tried on, in order."""

    @property
    def left(self) -> bool:
        return self.tried < self.goal

    @property
    def held(self) -> bool:
        return not self.wrong and self.control_wrong > 0


class Pass(msgspec.Struct):
    """The whole suite once, or as far as it has come."""

    experiments: dict[str, Count]
    version: str = ""
    machine: str = ""

    @property
    def complete(self) -> bool:
        return not any(count.left for count in self.experiments.values())


class Counts(msgspec.Struct):
    """The content of results/reliability.json."""

    passes: list[Pass]

    @staticmethod
    def read(file: Path = RESULTS, experiments: Mapping[str, Experiment] = EXPERIMENTS) -> "Counts":
        known = msgspec.json.decode(file.read_bytes(), type=Counts) if file.exists() else Counts([Pass({})])
        for one in known.passes:
            for name, experiment in experiments.items():
                one.experiments.setdefault(name, Count(experiment.goal)).goal = experiment.goal
            one.experiments = {name: one.experiments[name] for name in experiments}
        return known

    @property
    def current(self) -> Pass:
        """The pass to go on with: the last one, or another one if that is complete."""
        last = self.passes[-1]
        if last.complete:
            self.passes.append(Pass({name: Count(count.goal) for name, count in last.experiments.items()}))
        return self.passes[-1]

    def write(self, file: Path = RESULTS) -> None:
        last = self.passes[-1]
        last.version = longspan.__version__
        last.machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
        write_atomic(file, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def try_portion(experiment: Experiment, count: Count, bench: Bench, pass_number: int = 0) -> None:
    """Try one portion of an experiment, and before the first one its control; every pass draws other faults."""
    if count.control_tried == 0:
        control = experiment.control(bench, 0)
        count.control_tried, count.control_wrong = control.tried, len(control.wrong)
    tally = experiment.portion(bench, PORTIONS * pass_number + count.portions)
    count.tried += tally.tried
    count.portions += 1
    count.wrong += tally.wrong
    if (commit := current_commit()) not in count.commits:
        count.commits.append(commit)


def current_commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


def table(counts: Counts, experiments: Mapping[str, Experiment] = EXPERIMENTS) -> str:
    """The counts as a table in Markdown, those of several passes joined by plus signs."""
    lines = [
        "| promise | tried | of | went wrong | control: without, went wrong | others |",
        "| --- | ---: | ---: | ---: | --- | --- |",
    ]
    for name, experiment in experiments.items():
        found = [one.experiments[name] for one in counts.passes]
        begun = [count for count in found if count.portions] or found[:1]
        tried = " + ".join(f"{count.tried:,}" for count in begun)
        wrong = " + ".join(str(len(count.wrong)) if count.portions else "-" for count in begun)
        controls = " + ".join(f"{count.control_wrong} of {count.control_tried}" for count in begun)
        without = f"{experiment.without}: {controls}" if begun[0].control_tried else "-"
        cells = [experiment.promise, tried, f"{experiment.goal:,}", wrong, without, experiment.others or "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page_with(page: str, written: str) -> str:
    """The page with its table replaced."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + written + "\n" + END + rest.partition(END)[2]


def render() -> None:
    write_atomic(PAGE, page_with(PAGE.read_text(), table(Counts.read())))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.suite", description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(EXPERIMENTS)}; all by default")
    parser.add_argument("--portions", type=int, help="try at most this many portions of each")
    parser.add_argument(
        "--anew", action="store_true", help="forget the counts of those named in this pass, or all, and begin again"
    )
    parser.add_argument("--render", action="store_true", help="only write the table of docs/reliability.md")
    parser.add_argument("--work", type=Path, help="folder for undisturbed runs, kept from one call to the next")
    options = parser.parse_args()
    counts = Counts.read()
    chosen = options.names or list(EXPERIMENTS)
    if unknown := set(chosen) - set(EXPERIMENTS):
        parser.error(f"no experiment {', '.join(unknown)}: expected some of {', '.join(EXPERIMENTS)}")
    if options.anew and not options.names:
        counts = Counts([Pass({name: Count(experiment.goal) for name, experiment in EXPERIMENTS.items()})])
    elif options.anew:
        counts.passes[-1].experiments |= {name: Count(EXPERIMENTS[name].goal) for name in chosen}
    now = counts.current if not options.render else counts.passes[-1]
    if not options.render:
        # Undisturbed runs of another commit may have other bytes, so every commit has its own.
        work = (options.work or Path(tempfile.mkdtemp(prefix="longspan-faults-"))) / current_commit()
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(work)
        for name in chosen:
            try_often(name, counts, bench, options.portions)
    render()
    return 0 if all(now.experiments[name].held for name in chosen) else 1


def try_often(name: str, counts: Counts, bench: Bench, portions: int | None) -> None:
    count, done = counts.passes[-1].experiments[name], 0
    while count.left and done != portions:
        began, done = time.monotonic(), done + 1
        try_portion(EXPERIMENTS[name], count, bench, len(counts.passes) - 1)
        counts.write()
        seconds = time.monotonic() - began
        sys.stdout.write(f"{name}: {count.tried} of {count.goal}, {len(count.wrong)} wrong, {seconds:.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
