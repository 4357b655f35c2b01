"""What several commands share: options, how a recipe, a TOML file and flags become one config, and loading of data.

Data are loaded before JAX is imported, so that errors appear at once.
"""

import dataclasses
import difflib
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import longspan.recipes as recipes
from longspan.cli.brief_help import COMMON, brief_help
from longspan.config import TrainConfig, as_dict
from longspan.data.benchmarks import DEFAULT_SPAN
from longspan.data.dataset import Dataset
from longspan.data.library import is_named, load, target_kind
from longspan.errors import InputError
from longspan.recipe_tables import USUAL
from longspan.runtime import check_checkpoint_seconds, time_limit
from longspan.search.worker import Limits
from longspan.terminal import Console, say
from longspan.training.runs import Run

DEFAULT_DATA = "bach"

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Watching:
    """How a run is monitored and saved; none of this changes what the run computes."""

    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints, in seconds; 0 writes one after every block."""
    stop_after: str | None = None
    """Save and stop after this time, such as 5m or 2h; `longspan resume` continues from there."""
    tensorboard: bool = False
    """Also write TensorBoard event files into the run folder."""
    json: bool = False
    """Print only the result, as JSON."""

    def __post_init__(self) -> None:
        check_checkpoint_seconds(self.checkpoint_seconds)
        self.time_up()

    def time_up(self) -> Callable[[], bool]:
        """A function that tells whether the time to stop after, counted from this call, is over."""
        return time_limit(None if self.stop_after is None else seconds_of(self.stop_after, "--stop-after"))


@dataclass(frozen=True)
class TrainOptions:
    """Train a recurrent network.

    The first word may name a recipe, as in `longspan train sgd+clr --data nottingham`; by default the usual one for the
    data is used. Settings come from the defaults, the recipe for the data set, the TOML file and flags; each overrides
    those before it.
    """

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    toml: Path | None = None
    """TOML file of settings, such as `hidden_size = 200`."""
    start: Annotated[Path | None, tyro.conf.arg(name="from", metavar="RUN")] = None
    """Begin with the best weights and the settings of a trained run, to tune it on other data."""
    budget: str | None = None
    """Time that training may take, such as 5m or 2h: the number of updates and the fall of the rate are planned so that
    it ends well by then. A plan, not a limit, which is --stop-after."""
    run_dir: Path | None = None
    """Folder of this run; by default a new one under runs/."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    explain: bool = False
    """Show every setting and where it comes from, and do not train."""
    watching: Watching = field(default_factory=Watching)

    def __post_init__(self) -> None:
        _ = self.budget_seconds

    @property
    def budget_seconds(self) -> float | None:
        return None if self.budget is None else seconds_of(self.budget, "--budget")


def parse_train(arguments: list[str]) -> TrainOptions:
    """Parse the options of `longspan train`: recipe and data set first, because they determine the defaults."""
    recipe, flags = split_recipe(arguments)
    return parse(TrainOptions, flags, "longspan train [RECIPE]", TrainOptions(configure(recipe, flags).config))


def origins_of(arguments: list[str], config: TrainConfig) -> list[tuple[str, Any, str]]:
    """Every setting of a command line's config, with its value and origin."""
    recipe, flags = split_recipe(arguments)
    base, given = configure(recipe, flags), fixed_settings(flags)
    rows = []
    for name, (_, origin) in base.origins.items():
        by = "flag" if name in given else "TOML file" if name in base.from_toml else origin
        rows.append((name, getattr(config, name), by))
    return rows


def split_recipe(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The recipe, if the first word is one, and the flags after it."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    return None, arguments


class Base(NamedTuple):
    """The settings from a command line's recipe, data set and TOML file, before its flags."""

    config: TrainConfig
    from_toml: dict
    origins: dict[str, recipes.Origin]


def configure(recipe: str | None, arguments: list[str]) -> Base:
    """The config before flags: the recipe for the data set, then the TOML file."""
    toml = find_flag(arguments, "--toml")
    changes = recipes.read_settings(Path(toml)) if toml else {}
    named = changes.pop("recipe", None)
    data = find_flag(arguments, "--data") or changes.get("data", DEFAULT_DATA)
    targets = target_kind(data, _folder(find_flag(arguments, "--data-dir")))
    start = find_flag(arguments, "--from")
    if start is not None:
        if recipe or named:
            raise InputError("--from takes the recipe of the run it names: give one of them")
        return _base_of(Run.open(Path(start)), data, changes)
    chosen = (recipe or named or USUAL[targets], data, targets)
    choices = {
        "optimizer": find_flag(arguments, "--optimizer") or changes.get("optimizer"),
        "momentum": _number(find_flag(arguments, "--momentum"), changes.get("momentum")),
        "cell": find_flag(arguments, "--cell") or changes.get("cell"),
    }
    config = dataclasses.replace(recipes.settings(*chosen, **choices), **changes)
    return Base(config, changes, recipes.explain(*chosen, **choices))


def _base_of(run: Run, data: str, changes: dict) -> Base:
    """The settings of a run, for other data."""
    config = dataclasses.replace(run.config, **{**changes, "data": data})
    origin = f"the run {run.path.name}"
    return Base(config, changes, {name: recipes.Origin(value, origin) for name, value in as_dict(config).items()})


def _number(text: str | None, otherwise: float | None) -> float | None:
    """The number given to a flag if it is from 0 to below 1; anything else is reported later, when flags are parsed."""
    try:
        value = otherwise if text is None else float(text)
    except ValueError:
        return otherwise
    return value if value is not None and 0 <= value < 1 else otherwise


def _folder(text: str | None) -> Path | None:
    return Path(text) if text else None


def parse(options: type, arguments: list[str], prog: str, default=None):
    """Parse a command's options; `default` supplies those that are not given.

    `--help` of a command with many options shows the common ones, `--help-all` all of them.
    """
    command = prog.removeprefix("longspan ").partition(" [")[0]
    if command in COMMON and {"-h", "--help"} & set(arguments):
        say(brief_help(options, command, prog, default))
        sys.exit(0)
    arguments = ["--help" if word == "--help-all" else word for word in arguments]
    kwargs = {} if default is None else {"default": default}
    told = io.StringIO()
    try:
        with redirect_stderr(told):
            return tyro.cli(options, args=arguments, prog=prog, config=(tyro.conf.OmitArgPrefixes,), **kwargs)
    except SystemExit as left:
        if not told.getvalue():
            raise
        raise InputError(f"{_in_one_line(told.getvalue())}; see longspan {command} --help") from left


def _in_one_line(box: str) -> str:
    """What tyro says in a box of several parts: what is wrong, and which flags may have been meant."""
    lines = [line.strip("│╭╮╰╯ ") for line in box.splitlines()]
    ruled = "\n".join("" if re.search("[─-]{5,}", line) else line for line in lines)  # also in ASCII
    parts = [" ".join(part.split()) for part in re.split(r"\n{2,}", ruled.strip())]
    wrong = parts[0 if box.startswith("╭") else 1].rstrip(".")  # in ASCII the title is a part of its own
    for pythons, ours in (
        ("invalid literal for int() with base 10:", "expected a whole number, got"),
        ("could not convert string to float:", "expected a number, got"),
    ):
        wrong = wrong.replace(pythons, ours)
    meant = [flag for part in parts[1:] if "Perhaps" in part for flag in re.findall(r"--[a-z][\w-]*", part)]
    return (wrong[0].lower() + wrong[1:]) + (f", did you mean {' or '.join(dict.fromkeys(meant))}?" if meant else "")


def find_flag(arguments: list[str], flag: str) -> str | None:
    """The value of `--flag value` or `--flag=value`, the last one if repeated."""
    value = None
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            value = arguments[index + 1]
        elif argument.startswith(flag + "="):
            value = argument.partition("=")[2]
    return value


def fixed_settings(arguments: list[str]) -> set[str]:
    """The settings of a config that a command line gives."""
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    given = {
        argument.partition("=")[0].removeprefix("--").replace("-", "_")
        for argument in arguments
        if argument[:2] == "--"
    }
    return names & given


def pick(name: str, choices: list[str], what: str) -> str:
    """`name` if it is one of `choices`, else an error that suggests the closest."""
    if name in choices:
        return name
    close = difflib.get_close_matches(name, choices, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"unknown {what} {name!r}: expected one of {', '.join(choices)}{hint}")


def seconds_of(duration: str, flag: str) -> float:
    """A duration such as `90m`, `2h` or `1.5h`, in seconds; `flag` names its option in error messages.

    Example:
        >>> seconds_of("1.5h", "--budget")
        5400.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", duration.strip().lower())
    if match is None:
        raise InputError(f"{flag} must be a number and one of s, m, h, d, such as 90m or 2h: got {duration!r}")
    return float(match[1]) * UNITS[match[2]]


def limits_from(checkpoint_seconds: float, trial_limit: str | None) -> Limits:
    """The limits that command-line options describe."""
    seconds = None if trial_limit is None else seconds_of(trial_limit, "--trial-limit")
    return Limits(checkpoint_seconds, seconds)


def load_data(name: str, data_dir: Path | None, *, quiet: bool, span: int = DEFAULT_SPAN) -> Dataset:
    """Load a data set by name or path; `span` is the approximate sequence length of a synthetic task."""
    with progress_bar(quiet=quiet) as progress:
        return load(name, data_dir, span=span, progress=progress)


def load_data_of(run: Run, data_dir: Path | None, *, quiet: bool) -> Dataset:
    """Load the data set that a run was trained on; refused if it has changed since."""
    try:
        content = load_data(run.config.data, data_dir, quiet=quiet, span=run.config.span)
    except InputError as error:
        if is_named(run.config.data, data_dir):
            raise
        raise InputError(
            f"the data {run.config.data!r} of {run.path} cannot be loaded; a data set of your own comes with its "
            f"module (plugin), and one that was handed in is handed in again, from Python; by this name: {error}",
            fields=["plugin"],
        ) from error
    run.check_data(content)
    return content.with_cues(run.config.cues, run.config.cue_dropout)


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function `(what, done, total)` that shows progress on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        tasks = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what)
            bar.update(tasks[what], completed=done, total=total)

        yield tell
