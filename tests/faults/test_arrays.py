"""Arrays of somebody else: words that are no text, and shapes that contradict each other, are refused in one line."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from longspan.cli import run as command
from longspan.data import Sequences
from longspan.data.archive import read_set
from longspan.data.own_files import read_own_file
from longspan.errors import InputError

HALF = np.array(["\ud800", "b", "c"] * 40)
"""Words, of which one is half a character."""


def numbered(words: np.ndarray, number: int) -> np.ndarray:
    """The words with one letter replaced by a number that is no character."""
    letters = words.view("<u4").copy()
    letters[0] = number
    return letters.view(words.dtype)


def packed(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "x.npz", **arrays)
    return folder / "x.npz"


STEPS = np.arange(120) / 7
WORDS = {
    "inputs": {"inputs": HALF},
    "targets": {"inputs": STEPS, "targets": HALF},
    "names of columns": {"inputs": STEPS, "columns": np.array(["\ud800"])},
    "ids": {"inputs": np.ones((12, 9, 1)), "ids": np.array([f"\ud800{number}" for number in range(12)])},
    "splits": {"inputs": np.ones((12, 9, 1)), "split": np.array(["train", "valid", "test", "\ud800"] * 3)},
    "no characters": {"inputs": numbered(np.array(["a", "b", "c"] * 40), 0x110000)},
}


@pytest.mark.parametrize("name", WORDS)
def test_words_that_no_file_could_hold_are_refused(name, tmp_path):
    with pytest.raises(InputError, match="no text"):
        read_set(packed(tmp_path, **WORDS[name]), "x")


def test_half_a_character_is_refused_wherever_data_are_read(tmp_path, capfd):
    np.save(tmp_path / "x.npy", HALF)
    with pytest.raises(InputError, match="no text"):
        read_own_file(tmp_path / "x.npy", "x")
    assert command(["data", "import", str(tmp_path / "x.npy"), "--name", "x", "--data-dir", str(tmp_path)]) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert not (tmp_path / "imported").exists()
    for handed_in in ({"inputs": list("ab\ud800" * 9)}, {"inputs": STEPS, "columns": ["\ud800"]}):
        with pytest.raises(InputError, match="no text"):
            Sequences(**handed_in)


ONE = np.float64(1)
SHAPES = {
    "one input": {"inputs": ONE},
    "one input and lengths": {"inputs": ONE, "lengths": np.ones(1, int)},
    "one target": {"inputs": STEPS, "targets": ONE},
    "one mask": {"inputs": np.ones((12, 4, 2)), "lengths": np.ones(12, int), "masks": ONE},
    "targets without columns": {"inputs": np.ones((12, 4, 2)), "targets": np.ones((12, 0))},
    "targets of four axes": {
        "inputs": np.ones((12, 4, 2)),
        "lengths": np.full(12, 4),
        "targets": np.ones((12, 4, 2, 2)),
    },
    "no columns and sequences of a step": {
        "inputs": STEPS[:12],
        "targets": np.ones((12, 0), np.uint8),
        "lengths": np.ones(12, int),
    },
    "complex targets": {"inputs": STEPS, "targets": STEPS * 1j},
    "a split without targets": {"inputs": STEPS, "targets": np.where(np.arange(120) < 90, STEPS, np.nan)},
}


@pytest.mark.parametrize("name", SHAPES)
def test_strange_shapes_are_refused(name, tmp_path):
    with pytest.raises(InputError):
        read_set(packed(tmp_path, **SHAPES[name]), "x")


def test_sequences_of_a_step_keep_their_columns(tmp_path):
    """They had been taken for padded ones, of which all columns but the first were padding."""
    steps = np.arange(24.0).reshape(12, 2)
    data = read_set(packed(tmp_path, inputs=steps, targets=steps[:, ::-1], lengths=np.ones(12, int)), "x")
    assert data.record.input_size == 2
    found = np.concatenate([data.record.in_units(pair.targets) for split in data.pairs.values() for pair in split])
    assert sorted(found[:, 1].round().tolist()) == steps[:, 0].tolist()


def test_what_cannot_be_summarized_is_not_stored(tmp_path, monkeypatch, capfd):
    np.save(tmp_path / "x.npy", STEPS)

    def refuse(data):
        raise InputError("no baselines")

    monkeypatch.setattr("longspan.data.importing.summarize", refuse)
    words = ["data", "import", str(tmp_path / "x.npy"), "--name", "x", "--data-dir", str(tmp_path)]
    assert command(words) == 2
    assert not list(tmp_path.glob("imported/*"))
    monkeypatch.undo()
    assert command(words) == 0  # the control
    assert list(tmp_path.glob("imported/*"))
    capfd.readouterr()


def test_a_table_is_called_by_its_own_name(tmp_path):
    """And not by that of the temporary file to which another process unpacked it."""
    pyarrow.parquet.write_table(pyarrow.table({"empty": pyarrow.array([], pyarrow.float64())}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"column 'empty' of .*x\.parquet has 0 values"):
        read_own_file(tmp_path / "x.parquet", "x")
