"""A paired study in a storage: hosts without a common disk end with the bytes that shards end with."""

import itertools

import msgspec
import pytest

from longspan.arms import hosted
from longspan.arms.hosted import HostedStudy
from longspan.arms.protocol import Shard
from longspan.arms.records import RESULTS, SlotTiming, read_all
from longspan.arms.runner import StudyFolder, define_for, run_tasks, slot_tasks
from longspan.cli import run as command
from longspan.errors import InputError
from longspan.search.storage import normalized
from longspan.search.worker import Limits
from tests.support import postgresql

SLOTS = 1


def on_host(folder, data, url, interrupted=lambda: False):
    """What this host finished."""
    study = HostedStudy(url, StudyFolder(folder, define_for(data, seed=1), Shard()), data, slots=SLOTS)
    ended = []
    study.run({}, interrupted=interrupted, limits=Limits(checkpoint_seconds=0), on_end=ended.append)
    return study, ended


def merged_bytes(folder):
    assert command(["merge", str(folder), "-o", str(folder / "merged")]) == 0
    return (folder / "merged" / f"jsb{RESULTS}").read_bytes()


def test_hosts_without_a_common_disk_end_with_the_bytes_of_one_shard(tiny, tmp_path):
    definition = define_for(tiny, seed=1)
    folder = StudyFolder(tmp_path / "shard", definition, Shard())
    tasks = slot_tasks(definition, Shard(), slots=SLOTS)
    assert len(list(run_tasks(folder, tiny, tasks, environment={}))) == len(definition.arms)
    asked = itertools.count()
    with postgresql.server() as server:
        url = normalized(server)
        study, first = on_host(tmp_path / "first", tiny, url, lambda: next(asked) > 30)
        assert 0 < study.left < len(tasks)
        study, second = on_host(tmp_path / "second", tiny, url)
        assert study.left == 0
        assert len(first) + len(second) == len(tasks)
        on_host(tmp_path / "first", tiny, url)  # finds nothing left to run and collects
    expected = merged_bytes(tmp_path / "shard")
    assert merged_bytes(tmp_path / "first") == merged_bytes(tmp_path / "second") == expected
    timings = read_all((tmp_path / "second" / "merged").iterdir(), SlotTiming)
    assert {timing.arm for timing in timings} == set(definition.arms)
    assert not list((tmp_path / "second" / "runs").glob("*/trials"))


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def test_a_version_or_instruction_set_that_rounds_otherwise_is_refused(tiny, tmp_path, sqlite, monkeypatch):
    on_host(tmp_path / "one", tiny, sqlite, lambda: True)
    for name, other in (("__version__", "0.0.1"), ("instruction_set", lambda: "sse2")):
        with monkeypatch.context() as patch:
            patch.setattr(hosted, name, other)
            with pytest.raises(InputError, match="was started with other settings"):
                on_host(tmp_path / "other", tiny, sqlite)


@pytest.mark.parametrize("kept", [{"result": {"slot": "../../x"}}, "x", [1]])
def test_what_a_storage_says_of_a_slot_is_checked(tiny, tmp_path, sqlite, kept):
    study, _ = on_host(tmp_path / "one", tiny, sqlite, lambda: True)
    claim = study.study.claim("me")
    study.study.record(claim, hosted.Outcome("done", ""), kept)
    with pytest.raises(InputError, match=r"slot 0 in .* cannot be read"):
        study.collect()


@pytest.mark.parametrize("change", [{"slot": 1}, {"arm": "sgd+c"}, {"version": "0.0.1"}, {"definition": "0" * 8}])
def test_a_result_of_another_slot_or_study_is_refused(tiny, tmp_path, sqlite, change):
    study, ended = on_host(tmp_path / "one", tiny, sqlite, lambda: False)
    kept = {"result": msgspec.to_builtins(ended[0].result), "timing": msgspec.to_builtins(ended[0].timing)}
    assert study._checked(0, kept) == ended[0]
    with pytest.raises(InputError, match="is that of another one"):
        study._checked(0, kept | {"result": kept["result"] | change})
    with pytest.raises(InputError, match="is that of another one"):
        study._checked(10**6, kept)
