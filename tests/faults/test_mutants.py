"""Whatever is wrong with a file, its reader raises `InputError` and nothing else, or gives what can be used.

Each format has a control: of the same mutants, the library underneath refuses some with several types of exception or
lets them pass, so the readers do have something to translate.
"""

import dataclasses
import io
import json
import tomllib
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import mido
import msgspec
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.data import MusicData, TextData, summarize
from longspan.data.archive import read_set, write_set
from longspan.data.music_folder import gather_music
from longspan.data.musicxml import read_score
from longspan.data.rolls import sample_on_beat
from longspan.data.text import load_text_file
from longspan.data.vocabulary import Vocabulary
from longspan.errors import InputError
from longspan.recipes import read_settings
from longspan.reproduction.cells import read_results
from longspan.reproduction.values import read_remarks
from longspan.sampling.prime import read_music_prime, read_text_prime
from longspan.search.space import parse_space, read_space, slot_config
from tests.faults import bombs
from tests.faults.mutants import mutants

SHORT, LONG = 300, 6_000
RESULT = next((Path(__file__).parents[2] / "results" / "table1").glob("*.json"))


class Format(NamedTuple):
    """How a format is written, where, how it is read by us, and by the library underneath."""

    path: str
    content: Callable[[Path], bytes]
    read: Callable[[Path], object]
    control: Callable[[bytes], object]
    types: int
    """Types of exceptions the library raises on a few hundred mutants, at least."""


def songs(count: int = 6) -> list[np.ndarray]:
    return [np.random.default_rng(n).integers(0, 2, (3 + n, 88), np.uint8) for n in range(count)]


def user_rolls(folder: Path) -> bytes:
    np.savez(folder / "written.npz", *songs())
    return (folder / "written.npz").read_bytes()


def stored_rolls(folder: Path) -> bytes:
    some = songs()
    data = MusicData("x", {"train": some[:4], "valid": some[4:5], "test": some[5:]}, 2, -1, "here", ("one remark",))
    write_set(folder / "written.npz", data)
    return (folder / "written.npz").read_bytes()


def stored_text(folder: Path) -> bytes:
    splits = {name: np.random.default_rng(0).integers(0, 4, 30, np.int32) for name in ("train", "valid", "test")}
    write_set(folder / "written.npz", TextData("x", "word", ("\n", "a", "b", "<unk>"), splits, 0, "here"))
    return (folder / "written.npz").read_bytes()


def midi_file(folder: Path) -> bytes:
    bombs.good_midi(folder / "written.mid", 1)
    return (folder / "written.mid").read_bytes()


NOTES = "<note><pitch><step>C</step><alter>1</alter><octave>4</octave></pitch><duration>2</duration></note>" * 3
SCORE = (
    '<?xml version="1.0"?><!DOCTYPE score-partwise PUBLIC "-//Recordare//DTD MusicXML 2.0//EN" "x.dtd">'
    "<score-partwise><part-list><score-part id='P1'><part-name>Alto</part-name></score-part></part-list>"
    f"<part id='P1'><measure><attributes><divisions>2</divisions></attributes>{NOTES}</measure>"
    f"<measure><backup><duration>1</duration></backup>{NOTES}</measure></part></score-partwise>"
).encode()


def packed_score(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "written.mxl", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("META-INF/container.xml", "<container/>")
        file.writestr("score.xml", SCORE)
    return (folder / "written.mxl").read_bytes()


def use_set(path: Path) -> None:
    data = read_set(path, "x")
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        summarize(data)
    write_set(path.with_suffix(".again"), data)


def use_score(path: Path) -> None:
    for _, notes in read_score(path).parts:
        sample_on_beat(notes)


def use_midi(path: Path) -> None:
    """As one of three files of a folder, which is what becomes a data set; if it is left out, say why."""
    for number, name in ((2, "b.mid"), (3, "c.mid"), (4, "d.mid")):
        if not path.with_name(name).exists():
            bombs.good_midi(path.with_name(name), number)
    for skipped in gather_music(path.parent, name="x").skipped:
        raise InputError(skipped.reason)


def use_music_prime(path: Path) -> None:
    read_music_prime(path, frames_per_beat=2)


def use_text(path: Path) -> None:
    for unit in ("word", "character"):
        load_text_file(path, "x", unit)


def use_settings(path: Path) -> None:
    dataclasses.replace(TrainConfig(), **read_settings(path))


def use_space(path: Path) -> None:
    base = TrainConfig()
    space = parse_space(read_space(path, base), base)
    slot_config(base, space, 3)


WORDS = Vocabulary("word", ("\n", "the", "<unk>"))
SETTINGS = b"""# settings
hidden_size = 200
learning_rate = 1e-3
recipe = "sgd+c"
activation = 'tanh'
threads = 0x2
"""
SPACE = b"""learning_rate = { low = 1e-4, high = 1e-1, log = true }
hidden_size = { low = 100, high = 400 }
activation = ["tanh", "sigmoid"]
clip = 5.0
seed = { start = 1 }
"""
TEXT = "".join(f"the cat {n} saß on the mat \U0001f3b5\n" for n in range(30)).encode()


def arrays_of(content: bytes) -> None:
    with np.load(io.BytesIO(content)) as arrays:
        for name in arrays:
            arrays[name]


def mido_file(content: bytes) -> None:
    mido.MidiFile(file=io.BytesIO(content))


def tree_of(content: bytes) -> None:
    ElementTree.fromstring(zipfile.ZipFile(io.BytesIO(content)).read("score.xml"))


FORMATS = {
    "rolls of a user": Format("a.npz", user_rolls, use_set, arrays_of, 2),
    "stored rolls": Format("a.npz", stored_rolls, use_set, arrays_of, 3),
    "stored text": Format("a.npz", stored_text, use_set, arrays_of, 3),
    "MIDI": Format("a.mid", midi_file, use_midi, mido_file, 2),
    "MIDI to continue": Format("a.mid", midi_file, use_music_prime, mido_file, 2),
    "text": Format("a.txt", lambda _: TEXT, use_text, bytes.decode, 1),
    "text to continue": Format("a.txt", lambda _: TEXT, lambda path: read_text_prime(path, WORDS), bytes.decode, 1),
    "MusicXML": Format("a.xml", lambda _: SCORE, use_score, ElementTree.fromstring, 1),
    "packed MusicXML": Format("a.mxl", packed_score, use_score, tree_of, 3),
    "settings": Format("a.toml", lambda _: SETTINGS, use_settings, lambda content: tomllib.loads(content.decode()), 3),
    "space": Format("a.toml", lambda _: SPACE, use_space, lambda content: tomllib.loads(content.decode()), 3),
    "remarks": Format(
        "remarks.toml",
        lambda _: b'"sgd+c--jsb" = "as expected"\n',
        lambda path: read_remarks(path.parent),
        lambda content: tomllib.loads(content.decode()),
        2,
    ),
    "results": Format(
        f"table1/{RESULT.name}",
        lambda _: RESULT.read_bytes(),
        lambda path: read_results(path.parents[1]),
        msgspec.json.decode,
        2,
    ),
}


def outcomes(form: Format, folder: Path, count: int, seed: int = 0) -> list[str]:
    """`accepted`, `refused` or the type of another exception, of each mutant."""
    content = form.content(folder)
    path = folder / "read" / form.path
    path.parent.mkdir(parents=True)
    found = []
    for mutant in mutants(content, count, seed):
        path.write_bytes(mutant)
        try:
            form.read(path)
            found.append("accepted")
        except InputError as error:
            found.append("refused" if str(error).isprintable() else f"not one line: {error}")
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_refused_with_one_type_of_exception(name, tmp_path):
    found = outcomes(FORMATS[name], tmp_path, SHORT)
    assert set(found) <= {"accepted", "refused"}
    assert found.count("refused") > SHORT / 20


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_files_are_refused_with_one_type_of_exception(name, tmp_path):
    assert set(outcomes(FORMATS[name], tmp_path, LONG)) <= {"accepted", "refused"}


@pytest.mark.parametrize("name", FORMATS)
def test_control_the_library_underneath_raises_other_exceptions(name, tmp_path):
    form = FORMATS[name]
    types = set()
    for mutant in mutants(form.content(tmp_path), SHORT):
        try:
            with warnings.catch_warnings(action="ignore"):
                form.control(mutant)
        except Exception as error:
            types.add(type(error))
    assert InputError not in types
    assert len(types) >= form.types, types


def test_an_undamaged_file_of_every_format_is_accepted(tmp_path):
    """The control of the control: readers that refuse everything would pass all of the above."""
    for number, form in enumerate(FORMATS.values()):
        folder = tmp_path / str(number)
        path = folder / "read" / form.path
        path.parent.mkdir(parents=True)
        path.write_bytes(form.content(folder))
        form.read(path)


METADATA = {"format": 1, "kind": "music"}


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"frames_per_beat": 0}, "frames_per_beat must be from 1 to 96, got 0"),
        ({"frames_per_beat": -3}, "frames_per_beat must be from 1 to 96, got -3"),
        ({"frames_per_beat": 1e999}, "Invalid|damaged|JSON"),
        ({"octave_shift": 5000}, "octave_shift must be from -10 to 10, got 5000"),
        ({"remarks": [[[]]]}, "damaged data set"),
        ({"kind": "text", "vocabulary": ["a"], "end_token": -1}, "no such unit or end token"),
    ],
)
def test_sizes_in_the_metadata_of_a_set_are_checked(tmp_path, metadata, reason):
    path = tmp_path / "a.npz"
    np.savez(path, *songs(3), metadata=np.array(json.dumps(METADATA | metadata)))
    with pytest.raises(InputError, match=reason):
        read_set(path, "x")


@pytest.mark.parametrize("lengths", [[2**62] * 4 + [12], [2**63 + 6, 2**63 + 6], [-4, 16], [0, 12], []])
def test_lengths_that_add_up_only_by_overflow_are_refused(tmp_path, lengths):
    song, dtype = np.ones((12, 88), np.uint8), np.uint64 if max(lengths, default=0) > 2**63 else np.int64
    arrays = {"train": song, "train_lengths": np.array(lengths, dtype)}
    if lengths[:1] in ([2**62], [2**63 + 6]):  # the control: NumPy's sum is what it should be
        assert arrays["train_lengths"].sum() == 12
    for split in ("valid", "test"):
        arrays |= {split: song, f"{split}_lengths": np.array([12])}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match="do not add up"):
        read_set(tmp_path / "a.npz", "x")
