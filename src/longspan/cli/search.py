"""`longspan search`: random search over the settings of a recipe, on all cores or many machines."""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Annotated

import msgspec
import tyro

from longspan import cli
from longspan.cli import print_json
from longspan.cli.options import configure, fixed_settings, limits_from, load_data, parse, split_recipe
from longspan.cli.study_display import StudyDisplay, show_result
from longspan.config import TrainConfig
from longspan.data import target_kind
from longspan.errors import InputError, to_paste
from longspan.files import to_plain_name
from longspan.reproduction.spaces import paper_space
from longspan.runtime import available_cores, first_interrupt
from longspan.search import storage
from longspan.search.pool import PoolOptions, prepared_workers, run_pool
from longspan.search.result import check_parts, kept_result
from longspan.search.space import LONGEST_HEARTBEAT, Sampling, StudyDefinition, check_slots, define, read_space
from longspan.search.study import Study, create_or_continue
from longspan.search.worker import Limits
from longspan.terminal import say


@dataclass(frozen=True)
class Searching:
    """How the study is run; only `trials`, `space`, `sampling`, `prune` and `trial_limit` change its result."""

    trials: int = 20
    """Number of slots; a larger number continues a finished study."""
    workers: int = available_cores()
    """Number of processes on this machine, each with its own core if there are enough."""
    space: Path | None = None
    """TOML file of the search space; by default the paper's intervals and grids."""
    storage: str | None = None
    """sqlite:///FILE or postgresql://HOST/DATABASE; by default $LONGSPAN_STORAGE, else a file in the study's folder."""
    artifacts: str | None = None
    """Where checkpoints are kept for other machines, such as s3://BUCKET/FOLDER; by default the storage if a server."""
    study: str | None = None
    """Name of the study; by default DATA-RECIPE."""
    study_dir: Path | None = None
    """Folder of the study; by default studies/NAME."""
    sampling: Sampling = "random"
    """How slots draw their settings: independently, or from a Sobol sequence, which fills the space more evenly."""
    prune: bool = False
    """Stop slots whose best validation score falls below the median of the first five slots at the same epoch."""
    heartbeat_seconds: int = 30
    """Interval of heartbeats; a worker on another machine counts as dead after four intervals without one."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints of a run, in seconds."""
    trial_limit: str | None = None
    """Processor time, such as 30m, after which a trial ends with its current epoch; its best weights so far count."""
    json: bool = False
    """Print only the result, as JSON."""


@dataclass(frozen=True)
class SearchOptions:
    """Random search over the settings of a recipe; the winner is chosen on the validation split.

    Slot 0 is the recipe with the settings given here; the others draw theirs from the space, always the same for the
    same --seed. A setting given here is not searched. The same command continues where it was stopped.
    """

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    searching: Searching = field(default_factory=Searching)
    toml: Path | None = None
    """TOML file of settings, such as `hidden_size = 200`."""


def run(arguments: list[str]) -> int:
    options, fixed = parse_search(arguments)
    limits = limits_from(options.searching.checkpoint_seconds, options.searching.trial_limit)
    with prepared_workers(options.searching.workers) as prepared:
        return _search(options, fixed, limits, prepared)


def _search(options: SearchOptions, fixed: set[str], limits: Limits, prepared: list[Popen]) -> int:
    searching = options.searching
    content = load_data(options.config.data, searching.data_dir, quiet=searching.json, span=options.config.span)
    definition = definition_of(options, fixed, content.fingerprint)
    check_slots(definition, searching.trials, content.record.predicted)
    folder = Path(os.path.realpath(searching.study_dir or Path("studies") / definition.name))
    check_parts(folder)
    url = storage.url_from(searching.storage, storage.default_url(folder))
    study = create_or_continue(url, definition, searching.trials)
    pool = PoolOptions(
        folder, searching.workers, searching.data_dir, limits, artifacts=searching.artifacts, prepared=prepared
    )
    if not searching.json:
        shown = storage.hide_password(url)
        say(f"Watch it:  optuna-dashboard {shlex.quote(shown)}\nJoin it:   {_to_join(study)}\n")
    with StudyDisplay(study, quiet=searching.json) as display, first_interrupt() as interrupted:
        outcome = run_pool(study, pool, interrupted=interrupted, on_tick=display.refresh)
    if outcome == "interrupted":
        return _say_how_to_go_on(study, as_json=searching.json)
    if outcome == "elsewhere":
        return _say_where(study, as_json=searching.json)
    return _show(study, folder, as_json=searching.json)


def parse_search(arguments: list[str]) -> tuple[SearchOptions, set[str]]:
    """The options, and the settings that are given explicitly and therefore not searched."""
    recipe, flags = split_recipe(arguments)
    base = configure(recipe, flags)
    config, from_file = base.config, set(base.from_toml)
    fixed = fixed_settings(flags) | from_file
    options = parse(SearchOptions, flags, "longspan search [RECIPE]", SearchOptions(config))
    for name in ("trials", "workers", "heartbeat_seconds"):
        if getattr(options.searching, name) < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1: got {getattr(options.searching, name)}")
    if options.searching.heartbeat_seconds > LONGEST_HEARTBEAT:
        given = options.searching.heartbeat_seconds
        raise InputError(f"--heartbeat-seconds must be at most {LONGEST_HEARTBEAT}, a day: got {given}")
    return options, fixed


def definition_of(options: SearchOptions, fixed: set[str], fingerprint: str) -> StudyDefinition:
    """The study that a command line describes."""
    config, searching = options.config, options.searching
    if searching.space:
        space = read_space(searching.space, config)
    else:
        space = paper_space(config, target_kind(config.data, searching.data_dir))
    space = {name: value for name, value in space.items() if name not in fixed}
    stem = Path(config.data.split(":")[-1]).stem
    name = searching.study or to_plain_name(f"{stem}-{config.recipe.replace(':', '-')}")
    return define(
        name,
        config,
        space,
        fingerprint,
        prune=searching.prune,
        sampling=searching.sampling,
        heartbeat_seconds=searching.heartbeat_seconds,
    )


def _say_how_to_go_on(study: Study, *, as_json: bool) -> int:
    finished = sum(slot.finished for slot in study.slots())
    if as_json:
        name = study.definition.name
        print_json({"study": name, "status": "interrupted", "finished": finished, "slots": study.slot_count})
    else:
        say(
            f"Stopped and saved: {finished} of {study.slot_count} slots are done.\n"
            "Run the same command again to continue, or let a worker join:\n"
            f"    {_to_join(study)}\n"
        )
    return cli.INTERRUPTED


def _to_join(study: Study) -> str:
    return to_paste("worker", storage.hide_password(study.url), "--study", study.definition.name)


def _say_where(study: Study, *, as_json: bool) -> int:
    if as_json:
        print_json({"study": study.definition.name, "status": "elsewhere", "slots": study.slot_count})
    else:
        say(
            f"All {study.slot_count} slots are done, but the winning run is not in this folder: a worker on "
            "the machine that has it writes the result; then run the same command again to show it.\n"
        )
    return cli.DONE


def _show(study: Study, folder: Path, *, as_json: bool) -> int:
    result = kept_result(study)
    assert result is not None
    if as_json:
        print_json({"status": "done", **msgspec.to_builtins(result)})
    else:
        show_result(result, folder)
    if result.winner is None:
        say(f"longspan: none of the {result.slots} slots finished with a score; see their reasons above\n", error=True)
        return cli.DIVERGED
    return cli.DONE
