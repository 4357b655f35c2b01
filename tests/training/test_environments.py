"""A run goes on only where it ends in the same bytes, or where the change is accepted, and then it is on record."""

import shutil
import warnings
from pathlib import Path

import msgspec
import pytest

from longspan import runtime
from longspan.cli import run as command
from longspan.errors import InputError
from longspan.library import resume, train
from longspan.runtime import EnvironmentChanged, environment_changes
from longspan.training.runs import Run
from tests.support.catalog import tiny_music

SMALL = {"hidden_size": 8, "chunk_length": 10, "block": 2, "max_epochs": 2}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    train("sgd+c", tiny_music(), run_dir=path, max_seconds=1e-9, **SMALL)
    return path


@pytest.fixture
def stopped(interrupted, tmp_path) -> Run:
    return Run.open(Path(shutil.copytree(interrupted, tmp_path / "run")))


def record(run: Run, **changes) -> None:
    """Let the run have been trained in another environment."""
    environment = run.environment()
    versions = environment["versions"] | changes.pop("versions", {})
    run.files.write("environment.json", msgspec.json.encode(environment | changes | {"versions": versions}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"versions": {"jaxlib": "0.0.1"}}, "jaxlib 0.0.1, now "),
        ({"versions": {"longspan": "0.0.1"}}, "longspan 0.0.1, now "),
        ({"instruction_set": "sse"}, "instruction_set sse, now "),
        ({"kernels": "gpu"}, "kernels gpu, now "),
        ({"machine": "abacus"}, "machine abacus, now "),
        ({"threads_found": 77}, "threads 77, now "),
    ],
)
def test_what_decides_bytes_is_refused_and_named(stopped, change, told):
    record(stopped, **change)
    with pytest.raises(InputError, match=f"{told}.*accept_environment"):
        resume(stopped.path, data=tiny_music())
    assert stopped.status == "interrupted"


def test_other_changes_are_told_and_nothing_is_said_without_any(stopped):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resume(stopped.path, data=tiny_music(), max_seconds=1e-9)
    record(stopped, python="2.7.18", cores=1000)
    with pytest.warns(EnvironmentChanged, match=r"python 2\.7\.18, now .*cores 1000, now"):
        resume(stopped.path, data=tiny_music(), max_seconds=1e-9)
    assert "earlier" not in stopped.environment()


def test_an_accepted_change_is_recorded_and_not_asked_for_again(stopped):
    record(stopped, versions={"jaxlib": "0.0.1"})
    with pytest.warns(EnvironmentChanged, match=r"jaxlib 0\.0\.1"):
        resume(stopped.path, data=tiny_music(), max_seconds=1e-9, accept_environment=True)
    environment = stopped.environment()
    assert environment["versions"] == runtime.describe(1)["versions"]
    assert [earlier["versions"]["jaxlib"] for earlier in environment["earlier"]] == ["0.0.1"]
    resume(stopped.path, data=tiny_music())
    assert stopped.status == "done"


def test_a_finished_run_and_one_without_a_record_open_anywhere(stopped):
    assert environment_changes({}, runtime.describe(1)) == ([], [])
    stopped.set_status("done")
    record(stopped, versions={"jaxlib": "0.0.1"})
    stopped.continue_in(runtime.describe(1))


def test_what_a_stranger_recorded_of_a_machine_is_not_shown_at_any_length(stopped):
    decisive, _ = environment_changes({"machine": ["x" * 10**6], "kernels": None}, runtime.describe(1))
    assert [len(each) < 1000 for each in decisive] == [True]


def test_the_command_names_its_flag(stopped, capsys):
    record(stopped, versions={"jax": "0.0.1"})
    description = msgspec.json.decode((stopped.path / "config.json").read_bytes())
    description["config"]["data"] = "temporal-order"  # data that need no file, and are refused only later
    stopped.files.write("config.json", msgspec.json.encode(description))
    assert command(["resume", str(stopped.path)]) == 2
    assert "data of 'temporal-order' have changed" in capsys.readouterr().err


def test_starting_anew_forgets_what_was_trained(stopped):
    resume(stopped.path, data=tiny_music())
    assert stopped.metrics()
    with stopped.locked():
        stopped.start_anew({"machine": "abacus"})
    assert (stopped.metrics(), stopped.timings(), stopped.has_checkpoint) == ([], [], False)
    assert not stopped.has_good_model
    assert stopped.environment() == {"machine": "abacus"}
