"""What is kept of a slot for other machines: whole, verified, and unable to write anywhere but into its folder."""

import hashlib
import io
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import sqlalchemy
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.limits import JSON_BYTES
from longspan.search import artifacts, storage
from longspan.search.artifacts import Packed, SlotArtifacts, open_artifacts, pack, unpack
from longspan.search.slots import Outcome
from longspan.search.space import define
from longspan.search.study import Claim, ClaimLost, Study, create_or_continue, open_study
from longspan.search.trial import NotKept, _Reporter
from longspan.search.worker import Limits, Place
from longspan.training.runs import Run
from longspan.training.seals import newest_checkpoint
from longspan.training.state import Progress

FOLDER = Path(__file__).parents[1] / "training" / "folders" / "format-2"


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.open(Path(shutil.copytree(FOLDER, tmp_path / "here")))


@pytest.fixture(params=["file", "memory"])
def kept(request, tmp_path) -> SlotArtifacts:
    pytest.importorskip("fsspec")
    url = {"file": f"file://{tmp_path}/kept", "memory": f"memory://{tmp_path.name}"}[request.param]
    found = open_artifacts(url, "sqlite:///x.db", "study", None)
    assert found is not None
    return found


def holder(slot: int, *, lost: bool = False):
    """A claim of a slot, or one that was lost."""

    def check():
        if lost:
            raise ClaimLost

    return SimpleNamespace(slot=slot, attempt=1, check=check)


def test_a_run_that_is_kept_is_the_same_elsewhere(run, kept, tmp_path):
    assert kept.fetch(3) is None
    kept.save(holder(3), run)
    kept.save(holder(3), run)
    packed = kept.fetch(3)
    assert packed is not None
    unpack(packed, tmp_path / "there")
    there = Run.open(tmp_path / "there")
    assert {name: array.tobytes() for name, array in there.read_model().items()} == {
        name: array.tobytes() for name, array in run.read_model().items()
    }
    assert (there.metrics(), there.status, there.environment()) == (run.metrics(), run.status, run.environment())
    newest = newest_checkpoint(there.path / "checkpoints", Progress)
    assert newest is not None
    assert newest.progress.step == packed.step
    kept.forget(3)
    kept.forget(3)
    assert kept.fetch(3) is None


def test_a_newer_folder_replaces_an_older_one(run, kept, tmp_path):
    kept.save(holder(0), run)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "old").touch()
    packed = kept.fetch(0)
    assert packed is not None
    unpack(packed, tmp_path / "there")
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == sorted(
        path.name for path in run.path.iterdir() if path.name != ".lock"
    )


def stored(kept: SlotArtifacts, content: bytes) -> Packed | None:
    kept.store.write("study-slot-0000", io.BytesIO(hashlib.sha256(content).digest() + content), holder(0))
    return kept.fetch(0)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/tmp/evil", "checkpoints/../../evil", "checkpoints/000000001/../../evil", "evil", "config.json/x", ""],
)
def test_no_name_in_what_others_kept_becomes_a_path(run, kept, name):
    packed = msgspec.msgpack.decode(pack(run), type=Packed)
    assert stored(kept, msgspec.msgpack.encode(packed)) is not None
    hostile = msgspec.structs.replace(packed, files={**packed.files, name: b"evil"})
    assert stored(kept, msgspec.msgpack.encode(hostile)) is None


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x91" * 5000, msgspec.msgpack.encode({"step": "x"})])
def test_what_is_no_packed_folder_counts_as_nothing(kept, content):
    assert stored(kept, content) is None


@pytest.mark.parametrize("environment", [b"[1]", b"{", b'{"versions": 5}', b" " * (JSON_BYTES + 1)])
def test_a_folder_of_an_unknown_environment_counts_as_nothing(run, kept, environment):
    packed = msgspec.msgpack.decode(pack(run), type=Packed)
    hostile = msgspec.structs.replace(packed, files={**packed.files, "environment.json": environment})
    assert stored(kept, msgspec.msgpack.encode(hostile)) is None


def test_a_flood_of_files_is_not_read(kept, monkeypatch):
    hostile = msgspec.msgpack.encode(Packed(1, {str(number): b"" for number in range(100_000)}))
    monkeypatch.setattr(artifacts, "Packed", None)  # nothing is made of them
    assert stored(kept, hostile) is None


def test_a_flipped_bit_counts_as_nothing(run, kept):
    kept.save(holder(0), run)
    content = bytearray(kept.store.open_reader("study-slot-0000").read())
    content[len(content) // 2] ^= 1
    kept.store.write("study-slot-0000", io.BytesIO(bytes(content)), holder(0))
    assert kept.fetch(0) is None


def test_a_folder_too_large_to_keep_is_refused(run):
    with pytest.raises(InputError, match="more than the 2000"):
        pack(run, most=2000)


def test_a_mistyped_url_of_artifacts_makes_no_folder_and_shows_no_password(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ("sftp//me:SECRET@host/x", "me:SECRET@host", "nonsense://me:SECRET@host/x"):
        with pytest.raises(InputError) as caught:
            open_artifacts(url, "sqlite:////x.db", "study", None)
        assert "SECRET" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_file_storage_keeps_nothing_elsewhere_and_a_bad_url_is_one_line():
    assert open_artifacts(None, "sqlite:////x.db", "study", None) is None
    with pytest.raises(InputError, match="cannot keep artifacts"):
        open_artifacts("nonsense://x", "sqlite:////x.db", "study", None)


@pytest.mark.parametrize("url", ["reference://me:SECRET@x", "dir://me:SECRET@x", "zip://x::file:///none.zip"])
def test_whatever_a_file_system_raises_is_one_line(url):
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match="cannot keep artifacts at") as caught:
        open_artifacts(url, "sqlite:////x.db", "study", None)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("kind", [RuntimeError, OSError, KeyError])
def test_a_place_that_fails_later_shows_no_password(run, monkeypatch, tmp_path, kind):
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://me:SECRET@host/{tmp_path.name}"
    kept = open_artifacts(url, "sqlite:////x.db", "study", None)
    assert kept is not None

    def fail(*_, **__):
        raise kind(f"cannot reach {url}")

    for name in ("open", "rm_file"):
        monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, name, fail)
    for use in (lambda: kept.save(holder(0), run), lambda: kept.fetch(0), lambda: kept.forget(0)):
        with pytest.raises(InputError, match="cannot keep artifacts at") as caught:
            use()
        assert "SECRET" not in str(caught.value)


def test_what_keeps_a_slot_from_being_kept_shows_no_password(run, tmp_path):
    class Refusing:
        def save(self, *_):
            raise SQLAlchemyError("invalid sslmode value SECRET")

    study = SimpleNamespace(url="postgresql://me@host/x?sslmode=SECRET", definition=SimpleNamespace(prune=False))
    place = Place(tmp_path, {}, Refusing())
    with pytest.warns(NotKept) as told:
        _Reporter(study, run, holder(0), place, Limits()).keep_last()
    assert "SECRET" not in str(told[0].message)


def test_a_worker_that_lost_its_slot_does_not_replace_what_others_kept(run, kept, tmp_path):
    kept.save(holder(3), run)
    others = kept.store.open_reader("study-slot-0003").read()
    run.append_metrics({"epoch": 99, "valid_log_likelihood": -1.0})
    study = SimpleNamespace(url="postgresql://host/x", definition=SimpleNamespace(prune=False))
    with pytest.raises(ClaimLost):
        _Reporter(study, run, holder(3, lost=True), Place(tmp_path, {}, kept), Limits()).keep_last()
    assert kept.store.open_reader("study-slot-0003").read() == others
    assert [Path(name).name for name in kept.store.system.ls(kept.store.folder, detail=False)] == ["study-slot-0003"]


def claimed(server: str, name: str) -> tuple[Study, SlotArtifacts, Claim]:
    study = create_or_continue(
        storage.normalized(server), define(name, TrainConfig(recipe="sgd+c", data="x"), {}, "x"), 1
    )
    kept, claim = study.artifacts(None), study.claim("me")
    assert kept is not None
    assert claim is not None
    return study, kept, claim


def test_the_server_keeps_them_by_default(run, server):
    _, kept, claim = claimed(server, "kept")
    kept.save(claim, run)
    kept.save(claim, run)
    packed = kept.fetch(claim.slot)
    assert packed is not None
    assert packed.files["metrics.jsonl"] == (run.path / "metrics.jsonl").read_bytes()
    kept.forget(claim.slot)
    assert kept.fetch(claim.slot) is None


def test_what_arrives_after_the_slot_was_given_to_others_is_not_kept(run, server):
    """A host that is cut off may have sent what it keeps before, and the server gets it when the slot is being freed:
    a look at the state of the attempt and the writing are one."""
    study, kept, claim = claimed(server, "late")
    attempts = study._attempts
    with ThreadPoolExecutor(1) as pool:
        with attempts.engine.begin() as connection:  # another host takes the slot
            attempts.change(claim.attempt, state=TrialState.FAIL, connection=connection)
            late = pool.submit(kept.save, claim, run)
            with pytest.raises(TimeoutError):
                late.result(2)
            assert kept.fetch(claim.slot) is None
        with pytest.raises(ClaimLost):
            late.result(30)
    assert kept.fetch(claim.slot) is None
    following = study.claim("another")
    assert following is not None
    kept.save(following, run)
    with pytest.raises(ClaimLost):
        kept.save(claim, run)
    assert kept.fetch(claim.slot) is not None


RIGHTS = """
CREATE ROLE worker LOGIN;
GRANT USAGE ON SCHEMA public TO worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO worker;
"""


def test_a_worker_needs_no_more_rights_than_the_page_says(run, server):
    """As the owner of the tables makes the study, and a role with few rights works on it."""
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    assert all(line in page for line in RIGHTS.splitlines()[2:])
    url = storage.normalized(server)
    study = create_or_continue(url, define("rights", TrainConfig(recipe="sgd+c", data="x"), {}, "x"), 1)
    assert study.artifacts(None) is not None
    with sqlalchemy.create_engine(url).begin() as connection:
        for statement in RIGHTS.split(";")[:-1]:
            connection.execute(sqlalchemy.text(statement))
    joined = open_study(url.replace("longspan@", "worker@"), "rights")
    kept, claim = joined.artifacts(None), joined.claim("me")
    assert kept is not None
    assert claim is not None
    kept.save(claim, run)
    joined.record(claim, Outcome("done", "", -1.0))
    kept.forget(claim.slot)
    assert [slot.status for slot in study.slots()] == ["done"]
    with pytest.raises(sqlalchemy.exc.DBAPIError), joined._attempts.engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE trials"))  # the control: it does have few


def test_a_server_with_too_many_clients_is_tried_again(monkeypatch):
    import optuna

    calls = []

    def full(*_, **__):
        calls.append(1)
        cause = ValueError("too many clients" if len(calls) < 3 else "no such host")
        raise optuna.exceptions.StorageInternalError("cannot") from cause

    monkeypatch.setattr(storage, "claim_lock", lambda *_: nullcontext())
    monkeypatch.setattr(optuna.storages, "RDBStorage", full)
    with pytest.raises(InputError, match="no such host"):
        storage.make_storage("postgresql+psycopg://h/x", storage.Patience(retry_seconds=0))
    assert len(calls) == 3
