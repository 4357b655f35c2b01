"""The formats that are read from outside: how each is written, read by us, and read by the library underneath."""

import dataclasses
import io
import shutil
import tomllib
import warnings
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import mido
import msgspec
import numpy as np

from longspan.arms.records import SlotResult, merge, read_all
from longspan.cli.compare import comparison_table
from longspan.config import TrainConfig, as_dict
from longspan.data import MusicData, TextData, summarize
from longspan.data.archive import read_set, write_set
from longspan.data.music_folder import gather_music
from longspan.data.musicxml import read_score
from longspan.data.own_files import read_own_file, read_table
from longspan.data.rolls import sample_on_beat
from longspan.data.text import load_text_file
from longspan.data.vocabulary import Vocabulary
from longspan.errors import InputError
from longspan.library import open_run
from longspan.recipes import read_settings
from longspan.report import read_report, render_report
from longspan.reporting.run_report import compare_runs
from longspan.reproduction.cells import read_results
from longspan.reproduction.values import read_remarks
from longspan.sampling.prime import read_music_prime, read_text_prime
from longspan.search.result import SlotRun, StudyResult, Tested, Trial
from longspan.search.slots import Outcome
from longspan.search.space import parse_space, read_space, slot_config
from longspan.training.seals import SealedFolder
from tests.faults import bombs

RESULT = next((Path(__file__).parents[2] / "results" / "table1").glob("*.json"))


class Format(NamedTuple):
    """How a format is written, where, how it is read by us, and by the library underneath."""

    path: str
    content: Callable[[Path], bytes]
    read: Callable[[Path], object]
    control: Callable[[bytes], object]
    types: int
    """Types of exceptions the library raises on a few hundred mutants, at least."""
    rarity: int = 1
    """Of a format that takes a process for each file, so many times fewer files are tried."""


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

RUN = Path(__file__).parents[1] / "training" / "folders" / "format-2"


def use_run(path: Path) -> None:
    """All that reads a run folder without training it; whoever damaged a file has listed its checksum."""
    folder = path.parent
    for file in RUN.iterdir():
        if not (folder / file.name).exists():
            (shutil.copytree if file.is_dir() else shutil.copy)(file, folder / file.name)
    if path.name != "checksums.json":
        SealedFolder(folder).seal()
    render_report([read_report(folder)])
    comparison_table(compare_runs([folder, RUN]))
    SlotRun.read(folder)
    open_run(folder)


def run_file(name: str) -> Format:
    return Format(f"run/{name}", lambda _: (RUN / name).read_bytes(), use_run, msgspec.json.decode, 1)


TABLE = "id,hours,load,kind\n" + "".join(f"{n // 9},{n * 0.5},{n % 7},{'ab'[n % 2]}\n" for n in range(90))


def parquet_table(folder: Path) -> bytes:
    import pyarrow
    from pyarrow import parquet

    columns = {"id": [n // 9 for n in range(90)], "load": [n % 7 * 0.5 for n in range(90)], "kind": ["a", "b"] * 45}
    parquet.write_table(pyarrow.table(columns), folder / "written.parquet")
    return (folder / "written.parquet").read_bytes()


def parquet_columns(content: bytes) -> None:
    from pyarrow import parquet

    parquet.read_table(io.BytesIO(content))


def array_file(folder: Path) -> bytes:
    np.save(folder / "written.npy", np.sin(np.arange(600.0)).reshape(200, 3))
    return (folder / "written.npy").read_bytes()


def own_arrays(folder: Path) -> bytes:
    lengths = np.array([30] * 6)
    np.savez(folder / "written.npz", inputs=np.sin(np.arange(360.0)).reshape(180, 2), lengths=lengths)
    return (folder / "written.npz").read_bytes()


def whole_array(content: bytes) -> None:
    np.load(io.BytesIO(content))


def use_table(path: Path) -> None:
    read_table(path, "x", inputs=["load"], targets=["kind"], ids="id")


def study_result(folder: Path) -> bytes:
    """A small result of a study, as `conclude` writes it."""
    tested = Tested({"log_likelihood": -0.3}, {"log_likelihood": -0.4, "accuracy": 0.9}, 3000.0)
    trials = [
        Trial(0, {}, Outcome("done", "reached 2 epochs", -0.3, -0.2, 2, 2, 1.5), tested),
        Trial(1, {"learning_rate": 1e30}, Outcome("diverged", "not finite", epochs=1)),
    ]
    settings = as_dict(TrainConfig(recipe="sgd+c", data="jsb"))
    result = StudyResult("tiny", "af8c6186", "sgd+c", "jsb", 2, 0, settings, trials, {"versions": {"jax": "0.10"}})
    return msgspec.json.encode(result)


def use_study(path: Path) -> None:
    render_report([read_report(path.parent)])


CLAIMS = Path(__file__).parents[2] / "results" / "claims"
SHARD = next(file for file in CLAIMS.rglob("*.jsonl") if file.name.count(".") == 1)

FORMATS |= {
    **{f"{name} of a run": run_file(name) for name in sorted(file.name for file in RUN.glob("*.json*"))},
    "table": Format("a.csv", lambda _: TABLE.encode(), use_table, lambda content: content.decode(), 1),
    "array": Format("a.npy", array_file, lambda path: read_own_file(path, "x"), whole_array, 2),
    "own arrays": Format("a.npz", own_arrays, use_set, arrays_of, 1),
    "results of a shard": Format(
        "a.jsonl",
        lambda _: b"".join(SHARD.read_bytes().splitlines(keepends=True)[:4]),
        lambda path: merge(read_all([path], SlotResult)),
        msgspec.json.decode,
        1,
    ),
    "result of a study": Format("result.json", study_result, use_study, msgspec.json.decode, 2),
}
if find_spec("pyarrow") is not None:
    FORMATS["Parquet"] = Format("a.parquet", parquet_table, use_table, parquet_columns, 2, 20)
