"""Names and paths lead to data sets, or to one line that says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import platformdirs
import pytest

from longspan.data import MusicData, TextData, catalog, import_path, load
from longspan.data.benchmarks import BUILT_IN
from longspan.errors import InputError

TEXT = "".join(f"line {number} of a short story\n" for number in range(40))


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path / "cache"))
    monkeypatch.delenv("LONGSPAN_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text(TEXT)
    rolls = np.random.default_rng(0).integers(0, 2, (6, 5, 88), np.uint8)
    np.savez(tmp_path / "rolls.npz", *rolls)


def test_paths_are_data_sets() -> None:
    characters, words, rolls = load("story.txt"), load("words:story.txt"), load("rolls.npz")
    assert isinstance(characters, TextData)
    assert isinstance(words, TextData)
    assert isinstance(rolls, MusicData)
    assert (characters.unit, words.unit) == ("character", "word")
    assert load("chars:story.txt").fingerprint == characters.fingerprint


def names_in(folder: str | None = None) -> list[str]:
    """The catalog, without the data of a user's module that tests of contracts may have imported."""
    return [entry.name for entry in catalog(folder) if entry.name != "waves"]


def test_a_single_piece_is_no_data_set(tmp_path: Path) -> None:
    piece = tmp_path / "tune.MID"
    piece.write_bytes(b"MThd")
    for refused in (lambda: load(str(piece)), lambda: import_path(piece, name="tune", data_dir=tmp_path)):
        with pytest.raises(InputError, match="a single piece, which makes no splits: give the folder"):
            refused()


def test_imported_sets_have_names(tmp_path: Path) -> None:
    report = import_path("story.txt", name="tale", unit="word", vocabulary_size=6)
    assert report.path == tmp_path / "cache" / "imported" / "tale.npz"
    tale = load("tale")
    assert isinstance(tale, TextData)
    assert (tale.name, tale.unit, len(tale.vocabulary)) == ("tale", "word", 6)
    import_path(Path("rolls.npz"), name="rolls", data_dir="elsewhere", frames_per_beat=3)
    rolls = load("rolls", "elsewhere")
    assert isinstance(rolls, MusicData)
    assert rolls.frames_per_beat == 3
    assert names_in() == [*BUILT_IN, "tale"]
    assert names_in("elsewhere") == [*BUILT_IN, "rolls"]


def test_the_catalog_knows_what_is_there(tmp_path: Path) -> None:
    states = {entry.name: entry.state for entry in catalog(tmp_path)}
    assert states["jsb"] == "to download"
    (tmp_path / "JSB_Chorales.mat").touch()
    states = {entry.name: entry.state for entry in catalog(tmp_path)}
    assert states["jsb"] == "ready"
    assert states["nottingham"] == "to download"


def test_a_name_is_not_taken_twice() -> None:
    first = import_path("story.txt", name="tale")
    with pytest.raises(InputError, match="already a data set 'tale'"):
        import_path("rolls.npz", name="tale")
    assert load("tale").fingerprint == first.data.fingerprint
    assert import_path("rolls.npz", name="tale", replace=True).data.fingerprint == load("tale").fingerprint


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a.npz", "name with spaces", "words:x"])
def test_a_name_is_not_a_path(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a data set"):
        import_path("story.txt", name=name)


def test_built_in_names_are_taken() -> None:
    with pytest.raises(InputError, match="'jsb' is a built-in"):
        import_path("story.txt", name="jsb")


def test_an_unknown_name_gets_a_suggestion() -> None:
    import_path("story.txt", name="tale")
    with pytest.raises(InputError, match=r"unknown data set 'notingham'; did you mean 'nottingham'\?.*tale"):
        load("notingham")
    with pytest.raises(InputError, match="unknown data set 'xyzzy'; expected one of jsb"):
        load("xyzzy")


@pytest.mark.parametrize("name", ["nowhere.txt", "nowhere.npz", "words:nowhere.txt", "no/where.txt"])
def test_a_missing_file_is_named(name: str) -> None:
    with pytest.raises(InputError, match=r"no.?where\.\w+ does not exist"):
        load(name)
    with pytest.raises(InputError, match="does not exist"):
        import_path(name, name="x")


def test_an_import_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one line")
    with pytest.raises(InputError, match="has 1 line"):
        import_path("one.txt", name="one")
    assert not (tmp_path / "cache").exists()


def modules_after(statement: str) -> set[str]:
    """What a fresh Python has imported after a statement."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", f"import sys\n{statement}\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.split())


def test_names_import_nothing_heavy() -> None:
    assert not modules_after("import longspan.data.benchmarks") & {"scipy", "jax", "mido", "music21"}


def test_data_imports_nothing_heavy_before_it_is_needed() -> None:
    loaded = modules_after("from longspan.data import *")
    assert "longspan.data.library" in loaded
    assert not loaded & {"scipy", "jax", "mido", "music21"}
