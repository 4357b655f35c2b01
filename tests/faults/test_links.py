"""Links, pipes and devices in a folder from somebody else: nothing elsewhere is read, written or removed, no endless
file is waited for."""

import json
import os
import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from longspan import files
from longspan.arms.protocol import Shard
from longspan.arms.protocol import define as define_methods
from longspan.arms.runner import StudyFolder as MethodsFolder
from longspan.arms.runner import append_line
from longspan.cli import run as command
from longspan.errors import InputError
from longspan.files import changing, discard, file_lock, folder_inside
from longspan.search import result
from longspan.search.artifacts import Packed, pack, unpack
from longspan.search.result import StudyFolder
from longspan.search.sqlite_files import JOURNAL_MAGIC
from longspan.search.storage import check_exists, default_url
from longspan.search.study import open_study
from longspan.training import seals
from longspan.training.listeners import TensorBoardListener
from longspan.training.runs import Run
from longspan.training.seals import Content, SealedFolder, newest_checkpoint, newest_checkpoint_number
from longspan.training.state import Progress
from tests.search.test_study import make_study

PRECIOUS = b"precious\n" * 20
RESUME = ("--max-epochs", "5", "--accept-environment", "--json")


@pytest.fixture
def precious(tmp_path) -> Path:
    (tmp_path / "precious.txt").write_bytes(PRECIOUS)
    return tmp_path / "precious.txt"


@pytest.fixture
def pictures(tmp_path) -> Path:
    """A folder of the user's, and what is in it."""
    folder = tmp_path / "pictures"
    (folder / "2024").mkdir(parents=True)
    (folder / ".beach.part").touch()
    (folder / "1.log").write_bytes(PRECIOUS)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def lines_are_forgotten(folder: Path) -> None:
    """Say that metrics.jsonl has had no line yet: the checksum of nothing fits the beginning of any file."""
    known = json.loads((folder / "checksums.json").read_text())
    known["metrics.jsonl"] = [msgspec.to_builtins(Content.of(b""))]
    (folder / "checksums.json").write_text(json.dumps(known))


@pytest.mark.parametrize("link", ["symbolic", "hard"])
@pytest.mark.parametrize("change", ["append", "truncate"])
def test_a_line_is_never_written_to_what_a_file_of_a_run_is_linked_to(run_path, precious, link, change):
    """All of the linked file would be taken for a torn line."""
    folder, file = SealedFolder(run_path), run_path / "metrics.jsonl"
    file.unlink()
    file.symlink_to(precious) if link == "symbolic" else os.link(precious, file)
    lines_are_forgotten(run_path)
    act = {"append": lambda: folder.append(file.name, b"{}\n"), "truncate": lambda: folder.truncate(file.name, 0)}
    if link == "symbolic":
        with pytest.raises(InputError, match="is a link"):
            act[change]()
    else:
        act[change]()
        assert file.read_bytes() == (b"{}\n" if change == "append" else b"")
    assert precious.read_bytes() == PRECIOUS


def test_control_a_plain_opening_follows_the_link(run_path, precious):
    (run_path / "timing.jsonl").unlink()
    (run_path / "timing.jsonl").symlink_to(precious)
    with (run_path / "timing.jsonl").open("ab") as file:
        file.write(b"{}\n")
    assert precious.read_bytes() != PRECIOUS


@pytest.mark.parametrize("name", [*seals.WHOLE, *seals.GROWING, seals.FILE])
def test_no_file_of_a_run_is_read_through_a_link_even_to_what_it_should_be(run_path, tmp_path, name):
    """Otherwise a run that is given back, or kept for other machines, could hold a copy of any file of the user."""
    file, elsewhere = run_path / name, tmp_path / "elsewhere"
    if not file.exists():
        file.write_bytes(b"{}")
        SealedFolder(run_path).seal()
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    with pytest.raises(InputError, match="is a link"):
        SealedFolder(run_path).read("config.json" if name == seals.FILE else name)
    if name != seals.FILE:
        with pytest.raises(InputError, match="is a link"):
            Run.seal(run_path)


def test_a_run_may_be_named_by_a_link_and_a_shipped_model_be_made_of_links(run_path, tmp_path, monkeypatch):
    (tmp_path / "latest").symlink_to(run_path)
    assert Run.open(tmp_path / "latest").read_model()
    linked = tmp_path / "packages" / "model"
    linked.mkdir(parents=True)
    for file in run_path.iterdir():
        (linked / file.name).symlink_to(file)
    with pytest.raises(InputError, match="is a link"):
        Run.open(linked)
    monkeypatch.setattr(seals, "HOME", linked.parent)  # as installers that link packages to their cache leave it
    assert Run.open(linked).read_model()


def test_a_link_to_nothing_makes_no_file_there(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with changing(tmp_path / "link", "ab") as file:
        file.write(b"x")
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "link").read_bytes() == b"x"


def test_the_other_copy_of_a_run_stays_as_it_is(run_path, tmp_path):
    """A copy by `cp -al` shares its files with the original, and a run changes some of them in place."""
    copy = Path(shutil.copytree(run_path, tmp_path / "copy", copy_function=os.link))
    before = {file.name: file.read_bytes() for file in run_path.iterdir() if file.is_file()}
    assert command(["resume", str(copy), "--max-epochs", "4", "--accept-environment", "--json"]) == 0
    assert {file.name: file.read_bytes() for file in run_path.iterdir() if file.is_file()} == before
    assert (copy / "metrics.jsonl").read_bytes() != before["metrics.jsonl"]


def test_checkpoints_that_are_a_link_are_neither_written_nor_removed(run_path, pictures, capsys):
    before = names(pictures)
    shutil.rmtree(run_path / "checkpoints")
    (run_path / "checkpoints").symlink_to(pictures)
    assert command(["resume", str(run_path), "--accept-environment"]) == 2
    assert "is a link" in capsys.readouterr().err
    assert names(pictures) == before


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_only_named_like_a_checkpoint_is_removed_and_what_it_leads_to_is_not(run_path, pictures, kind):
    before, planted = names(pictures), run_path / "checkpoints" / "000000900"
    planted.symlink_to(pictures) if kind == "link" else planted.write_text("x")
    assert newest_checkpoint_number(planted.parent) == 900
    assert command(["resume", str(run_path), *RESUME]) == 0
    assert names(pictures) == before
    assert not os.path.lexists(planted)
    assert all(path.is_dir() and not path.is_symlink() for path in planted.parent.iterdir())


@pytest.mark.parametrize("file", ["manifest.json", "arrays.safetensors", "progress.json"])
@pytest.mark.parametrize("kind", ["pipe", "device", "copy"])
def test_a_file_of_a_checkpoint_that_never_ends_is_not_read(run_path, tmp_path, file, kind):
    checkpoints = run_path / "checkpoints"
    newest = max(checkpoints.iterdir())
    earlier = shutil.copytree(newest, checkpoints / "000000001")
    (newest / file).rename(tmp_path / file)
    if kind == "pipe":
        os.mkfifo(newest / file)
    else:
        (newest / file).symlink_to("/dev/zero" if kind == "device" else tmp_path / file)
    assert newest_checkpoint(checkpoints, Progress) is not None  # the earlier one
    shutil.rmtree(earlier)
    with pytest.raises(InputError, match="damaged"):
        newest_checkpoint(checkpoints, Progress)


def test_a_checkpoint_of_more_bytes_than_one_has_is_not_read(run_path):
    newest = max((run_path / "checkpoints").iterdir())
    for name in ("manifest.json", "progress.json"):
        with (newest / name).open("r+b") as file:
            file.truncate(2**33)  # a hole, which takes no room on the disk
    with pytest.raises(InputError, match="damaged"):
        newest_checkpoint(newest.parent, Progress)


def test_a_pipe_in_a_run_folder_is_refused_and_not_waited_for(run_path):
    os.mkfifo(run_path / "diagnosis.json")
    with pytest.raises(InputError, match="it is no file"):
        Run.seal(run_path)


def test_a_file_replaced_by_a_pipe_after_it_was_looked_at_is_not_waited_for(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "_refuse_irregular", lambda path, **options: None)
    with pytest.raises(InputError, match="it is no file"):
        files.read_limited(tmp_path / "pipe", 10)


def test_a_file_replaced_by_a_link_after_it_was_looked_at_is_not_followed(precious, monkeypatch):
    link = precious.with_name("link")
    link.symlink_to(precious)
    monkeypatch.setattr(files, "_refuse_irregular", lambda path, **options: None)
    with pytest.raises(InputError, match="cannot read"):
        files.read_limited(link, 1000, follow=False)
    assert files.read_limited(link, 1000) == PRECIOUS  # what a user names may be a link


def test_lines_are_not_added_to_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "jsb.timing.jsonl")
    with pytest.raises(InputError, match="it is no file"):
        append_line(tmp_path / "jsb.timing.jsonl", b"{}\n")


@pytest.mark.parametrize("part", ["folder", "file"])
def test_event_files_are_not_written_through_a_link(run_path, pictures, part):
    pytest.importorskip("tensorboardX")
    before = names(pictures)
    if part == "folder":
        (run_path / "tensorboard").symlink_to(pictures)
    else:
        (run_path / "tensorboard").mkdir()
        (run_path / "tensorboard" / "events.out.tfevents.1").symlink_to(pictures / "1.log")
    with pytest.raises(InputError, match="is a link"):
        TensorBoardListener(Run.open(run_path))
    assert names(pictures) == before
    assert (pictures / "1.log").read_bytes() == PRECIOUS


def test_a_lock_is_not_taken_through_a_link(run_path, precious):
    (run_path / ".lock").unlink(missing_ok=True)
    (run_path / ".lock").symlink_to(precious)
    with pytest.raises(InputError, match="is a link"), Run.open(run_path).locked():
        pass
    with pytest.raises(InputError, match="is a link"), file_lock(run_path / ".lock"):
        pass
    assert precious.read_bytes() == PRECIOUS


def test_a_link_is_discarded_and_what_it_leads_to_is_not(pictures, tmp_path):
    (tmp_path / "link").symlink_to(pictures)
    discard(tmp_path / "link")
    discard(tmp_path / "link")
    assert not os.path.lexists(tmp_path / "link")
    assert (pictures / "1.log").exists()
    discard(pictures)
    assert not pictures.exists()


SEARCH = ("search", "sgd+c", "--data", "temporal-order", "--span", "10", "--trials", "1", "--max-epochs", "1")


@pytest.mark.parametrize("part", ["workers", "trials", "study.db", "result.json"])
def test_a_search_does_not_follow_the_links_of_its_folder(tmp_path, pictures, capsys, part):
    """A log would have replaced 1.log, tables would have been added to a database, runs been made elsewhere."""
    study, before = tmp_path / "study", names(pictures)
    study.mkdir()
    target = pictures / "mine.db" if part == "study.db" else pictures / "1.log" if "." in part else pictures
    if part == "study.db":
        with closing(sqlite3.connect(target)) as database:
            database.execute("CREATE TABLE mine (x)")
        before = names(pictures)
    content = None if target.is_dir() else target.read_bytes()
    (study / part).symlink_to(target)
    assert command([*SEARCH, "--hidden-size", "4", "--study-dir", str(study)]) == 2
    assert "is a link" in capsys.readouterr().err
    assert names(pictures) == before
    assert content is None or target.read_bytes() == content
    assert names(study) == [part]


def test_no_slot_is_reached_through_a_link(tmp_path, pictures):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "trials").symlink_to(pictures)
    (tmp_path / "b" / "trials").mkdir(parents=True)
    (tmp_path / "b" / "trials" / "slot-0000").symlink_to(pictures)
    for study in (tmp_path / "a", tmp_path / "b"):
        with pytest.raises(InputError, match="is a link"):
            result.run_path(study, 0)
    (pictures / "config.json").touch()
    with pytest.raises(InputError, match="is a link"):
        StudyFolder.read(tmp_path / "b")


def test_what_is_kept_for_other_machines_is_not_read_through_a_link(run_path, precious):
    """README.md has no checksum, so it could have been any file that its owner would like to see."""
    run = Run.open(run_path)
    (run_path / "README.md").unlink()
    (run_path / "README.md").symlink_to(precious)
    with pytest.raises(InputError, match="is a link"):
        pack(run)
    (run_path / "README.md").unlink()
    assert PRECIOUS not in pack(run)
    newest = max((run_path / "checkpoints").iterdir())
    newest.rename(run_path.parent / "elsewhere")
    newest.symlink_to(run_path.parent / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        pack(run)


def test_what_others_kept_replaces_a_link_and_not_what_it_leads_to(tmp_path, pictures):
    before, place = names(pictures), tmp_path / "slot-0000"
    place.symlink_to(pictures)
    unpack(Packed(1, {"README.md": b"x"}), place)
    assert names(pictures) == before
    assert names(place) == ["README.md", "checkpoints"]
    assert not place.is_symlink()


@pytest.mark.parametrize("part", ["runs", "stem"])
def test_compared_methods_are_not_trained_through_a_link(tmp_path, pictures, part):
    definition, before = define_methods("jsb", "frames", "print", {100: 243}, -12.0), names(pictures)
    folder = MethodsFolder(tmp_path / "claims", definition, Shard(1, 1))
    link = folder.runs.parent if part == "runs" else folder.runs
    link.parent.mkdir(parents=True)
    link.symlink_to(pictures)
    with pytest.raises(InputError, match="is a link"):
        folder.open()
    assert names(pictures) == before


def test_a_folder_inside_is_made_and_never_through_a_link(tmp_path, pictures):
    assert folder_inside(tmp_path / "new", "a", "b").is_dir()
    assert folder_inside(tmp_path / "new", "a", "b") == tmp_path / "new" / "a" / "b"
    (tmp_path / "new" / "link").symlink_to(pictures)
    with pytest.raises(InputError, match="is a link"):
        folder_inside(tmp_path / "new", "link", "b")
    assert not (pictures / "b").exists()


def hot_journal(database: Path, named: bytes = b"") -> None:
    """Write the journal that a process killed in a transaction leaves, as if it were one over several databases."""
    page = 4096
    content, nonce = database.read_bytes(), 1
    first = content[:page]
    checksum = (nonce + sum(first[place] for place in range(page - 200, 0, -200))) % 2**32
    header = JOURNAL_MAGIC + struct.pack(">IIIII", 1, nonce, len(content) // page, 512, page)
    journal = header.ljust(512, b"\0") + struct.pack(">I", 1) + first + struct.pack(">I", checksum)
    if named:
        end = struct.pack(">I", 2**30 // page + 1) + named + struct.pack(">II", len(named), sum(named) % 2**32)
        journal += end + JOURNAL_MAGIC
    database.with_name(f"{database.name}-journal").write_bytes(journal)


def test_a_journal_of_sqlite_cannot_have_a_file_deleted(tmp_path, precious):
    url, database = default_url(tmp_path), tmp_path / "study.db"
    make_study(url, slots=2)
    hot_journal(database, bytes(precious))
    for use in (lambda: open_study(url, "tiny"), lambda: make_study(url, slots=2)):
        with pytest.raises(InputError, match="which SQLite would delete"):
            use()
    assert precious.exists()
    with closing(sqlite3.connect(database)) as control:
        control.execute("SELECT 1 FROM studies").fetchall()
    assert not precious.exists()


def test_a_study_is_joined_although_a_killed_process_left_a_journal(tmp_path):
    url = default_url(tmp_path)
    make_study(url, slots=2)
    hot_journal(tmp_path / "study.db")
    check_exists(url)
    assert open_study(url, "tiny").slot_count == 2
    assert not (tmp_path / "study.db-journal").exists()


@pytest.mark.parametrize("companion", ["journal", "wal", "shm"])
def test_a_journal_that_is_a_link_or_a_pipe_is_refused(tmp_path, precious, companion):
    url, journal = default_url(tmp_path), tmp_path / f"study.db-{companion}"
    make_study(url, slots=2)
    journal.symlink_to(precious)
    with pytest.raises(InputError, match="is a link"):
        open_study(url, "tiny")
    journal.unlink()
    os.mkfifo(journal)
    with pytest.raises(InputError, match="it is no file"):
        open_study(url, "tiny")
    assert precious.read_bytes() == PRECIOUS
