"""Options several commands share, and how a recipe, a TOML file and flags become one config."""

import dataclasses
import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from longspan import recipes
from longspan.config import TrainConfig
from longspan.data import target_kind
from longspan.errors import InputError
from longspan.search.limits import check_checkpoint_seconds

DEFAULT_DATA = "bach"


@dataclass(frozen=True)
class Watching:
    """How a run is watched and saved; nothing of it changes what the run computes."""

    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints; 0 for one after every block."""
    tensorboard: bool = False
    """Also write TensorBoard event files into the run folder."""
    json: bool = False
    """Print only the result, as JSON."""

    def __post_init__(self) -> None:
        check_checkpoint_seconds(self.checkpoint_seconds)


@dataclass(frozen=True)
class TrainOptions:
    """Train a recurrent network.

    The first word may name a recipe, `longspan train sgd+clr --data nottingham`, else the data's usual one is taken.
    Settings come from, each over the one before: defaults, the recipe for that data set, the TOML file, flags.
    """

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    toml: Path | None = None
    """TOML file of settings, such as `hidden_size = 200`."""
    run_dir: Path | None = None
    """Folder of this run; by default a new one under runs/."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    watching: Watching = field(default_factory=Watching)


def parse_train(arguments: list[str]) -> TrainOptions:
    """Read recipe and data set first, since they decide the defaults of everything else."""
    recipe, flags = split_recipe(arguments)
    config, _ = configure(recipe, flags)
    return parse(TrainOptions, flags, "longspan train [RECIPE]", TrainOptions(config))


def split_recipe(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The recipe, if the first word is one, and the flags after it."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    return None, arguments


def configure(recipe: str | None, arguments: list[str]) -> tuple[TrainConfig, set[str]]:
    """The config before flags: the recipe for the data set, then the TOML file; and the settings that file names."""
    toml = find_flag(arguments, "--toml")
    changes = recipes.read_toml(Path(toml)) if toml else {}
    named = changes.pop("recipe", None)
    data = find_flag(arguments, "--data") or changes.get("data", DEFAULT_DATA)
    targets = target_kind(data, _folder(find_flag(arguments, "--data-dir")))
    chosen = recipe or named or recipes.USUAL[targets]
    return dataclasses.replace(recipes.settings(chosen, data, targets), **changes), set(changes)


def _folder(text: str | None) -> Path | None:
    return Path(text) if text else None


def parse(options: type, arguments: list[str], prog: str, default=None):
    """Parse a command's options; `default` fills in what is not given."""
    kwargs = {} if default is None else {"default": default}
    return tyro.cli(options, args=arguments, prog=prog, config=(tyro.conf.OmitArgPrefixes,), **kwargs)


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
