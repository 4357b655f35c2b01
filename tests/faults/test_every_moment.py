"""A run folder is whole at every moment of every write, also if the process that repairs it is killed in turn."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from longspan.errors import InputError
from longspan.training import seals
from longspan.training.seals import ABSENT, GROWING, WHOLE, SealedFolder

State = dict[str, bytes]
"""The files of a folder, by name."""
EPOCHS = 2


def work(folder: Path, attempt: int) -> None:
    """Write as a run does, from whatever is there; lines of time differ in length from attempt to attempt."""
    files = SealedFolder(folder)
    for name in (*WHOLE, *GROWING):
        files.read(name)
    known = (files.read("metrics.jsonl") or b"").splitlines(keepends=True)
    kept = max(len(known) - attempt, 0)
    files.truncate("metrics.jsonl", len(b"".join(known[:kept])))
    if attempt == 1:
        files.remove("result.json")
    files.write("status.json", b"running")
    for epoch in range(kept, EPOCHS):
        files.write("model.safetensors", b"weights %d" % epoch)
        files.append("metrics.jsonl", b"epoch %d\n" % epoch)
        files.append("timing.jsonl", b"%d after %s\n" % (epoch, b"long " * (2 - attempt)))
    files.write("status.json", b"done")
    files.write("result.json", b"scores")


def new_folder(path: Path) -> Path:
    path.mkdir()
    (path / "config.json").write_bytes(b"{}")
    (path / "metrics.jsonl").touch()
    SealedFolder(path).seal()
    return path


@contextmanager
def seen_by_the_disk(folder: Path) -> Iterator[list[State]]:
    """Yield a list of all states of a folder between two system calls while the block lasts, torn lines included."""
    states: list[State] = [state_of(folder)]

    def observed(call):
        def and_look(*arguments, **options):
            states.extend(torn(states[-1], now := state_of(folder)))
            states.append(now)
            result = None if call is sync else call(*arguments, **options)
            states.append(state_of(folder))
            return result

        return and_look

    sync = os.fsync
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "replace", "truncate", "unlink"):
            patch.setattr(os, name, observed(getattr(os, name)))
        yield states


def torn(before: State, now: State) -> Iterator[State]:
    """What a crash may leave of the lines that grew since the last look."""
    for name in GROWING:
        old, new = before.get(name, b""), now.get(name, b"")
        if len(new) > len(old):
            yield from ({**now, name: new[:size]} for size in range(len(old), len(new)))


def state_of(folder: Path) -> State:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def different(states: list[State]) -> list[State]:
    return list({tuple(sorted(state.items())): state for state in states}.values())


def restored(state: State, path: Path) -> Path:
    path.mkdir()
    for name, content in state.items():
        (path / name).write_bytes(content)
    return path


def states_left_by_kills(tmp_path: Path, kills: int) -> Iterator[tuple[State, int]]:
    """All states that this number of kills can leave, each with the number of kills before it."""
    states, count = [state_of(new_folder(tmp_path / "new"))], 0
    for killed in range(kills):
        found: list[State] = []
        for state in states:
            count += 1
            folder = restored(state, tmp_path / f"{killed}-{count}")
            with seen_by_the_disk(folder) as left:
                work(folder, killed)
            found += left
            assert SealedFolder(folder).read("result.json") == b"scores"
        states = different(found)
        yield from ((state, killed + 1) for state in states)


@pytest.mark.parametrize("kills", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_whatever_kills_leave_is_readable_and_goes_on(tmp_path, kills):
    count = 0
    for state, killed in states_left_by_kills(tmp_path, kills):
        count += 1
        if killed == kills:
            folder = restored(state, tmp_path / f"last-{count}")
            for name in (*WHOLE, *GROWING):
                SealedFolder(folder).read(name)
    assert count > 300


@pytest.mark.parametrize(
    "omitted", ["the present content", "that a file may be absent", "the cut of a torn line", "the file, written first"]
)
def test_without_any_one_step_some_kill_makes_a_folder_unreadable(tmp_path, omitted, monkeypatch):
    """Control arms: each step of the protocol is there for a kill that is found here."""
    announce = SealedFolder._announce
    if omitted == "the present content":
        monkeypatch.setattr(
            SealedFolder, "_announce", lambda self, name, _, following: announce(self, name, [], following)
        )
    elif omitted == "that a file may be absent":

        def without_absent(self, name, vouched, following):
            announce(self, name, [content for content in vouched if content != ABSENT], following)

        monkeypatch.setattr(SealedFolder, "_announce", without_absent)
    elif omitted == "the cut of a torn line":
        truncate = seals._truncate
        monkeypatch.setattr(
            seals, "_truncate", lambda file, size: truncate(file, size) if file.name == "metrics.jsonl" else None
        )
    else:
        monkeypatch.setattr(SealedFolder, "write", file_first)
    with pytest.raises(InputError):
        test_whatever_kills_leave_is_readable_and_goes_on(tmp_path, 2)


def file_first(self: SealedFolder, name: str, content: bytes) -> None:
    """The obvious order, which is wrong."""
    seals.write_atomic(self.path / name, content)
    self._announce(name, [], content)


def test_a_reader_of_a_folder_that_is_being_written_sees_whole_contents(tmp_path):
    folder = new_folder(tmp_path / "run")
    SealedFolder(folder).write("status.json", b"0")
    ended = threading.Event()
    contents = {b"%d" % number * (1 + number % 7) for number in range(80)}

    def write() -> None:
        files = SealedFolder(folder)
        for number in range(80):
            files.write("status.json", b"%d" % number * (1 + number % 7))
            files.append("timing.jsonl", b"%d\n" % number)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    readings = 0
    while not ended.is_set():
        assert SealedFolder(folder).read("status.json") in contents
        lines = (SealedFolder(folder).read("timing.jsonl") or b"").split()
        assert lines == [b"%d" % number for number in range(len(lines))]
        readings += 1
    writer.join()
    assert readings > 3
