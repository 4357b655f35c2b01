"""Your own sequences from files, and stored."""

import csv
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from longspan.data import Sequences, load, read_table
from longspan.data.archive import read_set, write_set
from longspan.data.csv_files import ROWS_AT_ONCE, read_csv
from longspan.errors import InputError
from tests.support.catalog import tiny_labels, tiny_series


def write_csv(path: Path, header: list[str], rows: list[list]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def weather(tmp_path) -> Path:
    rows = [[f"s{s}", 20 + s + t / 10, s * t, "wet" if s % 2 else "dry"] for s in range(9) for t in range(6)]
    return write_csv(tmp_path / "weather.csv", ["place", "heat", "rain", "sky"], rows)


def test_a_table_is_read_by_columns(weather):
    data = read_table(weather, inputs=["heat", "rain"], targets=["sky"], ids="place")
    assert data.record.labels == ["dry", "wet"]
    assert data.split_figures("train").sequences == 5
    assert data.remarks == ("inputs are 2 columns of numbers", "targets are 2 symbols, one per step")


def test_a_table_without_names_of_columns_is_told_that_its_first_row_was_taken_for_them(tmp_path):
    data = read_table(write_csv(tmp_path / "bare.csv", ["0.5", "1.5"], [[t, t * t] for t in range(20)]))
    assert data.remarks[0] == "the first line names the columns: 0.5, 1.5"
    assert data.record.columns == ["0.5", "1.5"]


def test_numbers_beside_words_take_no_more_than_their_digits(tmp_path):
    """An int64 may have 21 characters, which NumPy would take for each of millions of rows."""
    rows = [[str(number % 1000)] for number in range(ROWS_AT_ONCE)]
    columns = read_csv(write_csv(tmp_path / "codes.csv", ["code"], [*rows, ["999x"]]))
    assert columns["code"].dtype == "<U4"
    assert columns["code"].tolist() == [*(row[0] for row in rows), "999x"]


def test_a_wide_table_is_held_once(tmp_path):
    """Neither all its values as words, nor blocks of its columns beside what they are joined to."""
    path = write_csv(tmp_path / "wide.csv", [f"c{number}" for number in range(1000)], [[""] * 1000] * 4000)
    tracemalloc.start()
    try:
        columns = read_csv(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * sum(column.nbytes for column in columns.values())


def test_targets_may_lie_ahead_or_at_the_end(weather):
    ahead = read_table(weather, inputs=["rain"], targets=["heat"], ids="place", ahead=2)
    inputs, targets = ahead.record.input_scaling, ahead.record.target_scaling
    for pair in ahead.pairs["train"]:
        assert len(pair.mask) == 4
        heat, rain = targets.restored(pair.targets)[:, 0], inputs.restored(pair.inputs)[:, 0]
        place = round(heat[0] - 20.2)
        np.testing.assert_allclose(rain, place * np.arange(4), atol=1e-4)
        np.testing.assert_allclose(heat, 20 + place + np.arange(2, 6) / 10, atol=1e-4)
    assert read_table(weather, inputs=["rain"], targets=["sky"], ids="place", at_end=True).description.at_end


def test_blank_targets_are_not_asked_for(tmp_path):
    rows = [[t, "" if t % 2 else t % 4] for t in range(30)]
    data = read_table(write_csv(tmp_path / "t.csv", ["x", "y"], rows), targets=["y"])
    assert data.description.target_kind == "symbols"
    assert sum(int(pair.mask.sum()) for pairs in data.pairs.values() for pair in pairs) == 15


def test_a_path_is_a_data_set(weather, tmp_path):
    write_csv(tmp_path / "s.csv", ["a;b"], [[f"{t};{t * t}"] for t in range(20)])
    assert load(str(tmp_path / "s.csv")).record.columns == ["a", "b"]
    np.save(tmp_path / "a.npy", np.asfortranarray(np.random.default_rng(0).normal(size=(20, 3))))
    array = load(str(tmp_path / "a.npy"))
    np.testing.assert_allclose(
        array.record.target_scaling.restored(array.pairs["train"][0].targets),
        np.load(tmp_path / "a.npy")[:12],
        atol=1e-5,
    )


def test_parquet_is_read_like_csv(tmp_path, weather):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = read_table(weather, inputs=["heat"], targets=["sky"], ids="place")
    with weather.open() as file:
        rows = list(csv.DictReader(file))
    columns = {"place": [row["place"] for row in rows], "heat": [float(row["heat"]) for row in rows]}
    parquet.write_table(arrow.table(columns | {"sky": [row["sky"] for row in rows]}), tmp_path / "w.parquet")
    same = read_table(tmp_path / "w.parquet", inputs=["heat"], targets=["sky"], ids="place")
    assert same.fingerprint == table.fingerprint
    (tmp_path / "bad.parquet").write_bytes((tmp_path / "w.parquet").read_bytes()[:-9])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_table(tmp_path / "bad.parquet")


@pytest.mark.parametrize("padded", [False, True])
def test_arrays_of_an_archive_are_sequences(tmp_path, padded):
    lengths, steps = np.array([3, 5, 4, 2]), np.arange(14, dtype=float)
    parts = np.split(steps, np.cumsum(lengths)[:-1])
    inputs = np.stack([np.pad(part, (0, 5 - len(part)), constant_values=np.nan) for part in parts])[..., None]
    arrays = {"inputs": inputs if padded else steps, "lengths": lengths, "targets": np.arange(4) % 2}
    np.savez(tmp_path / "own.npz", **arrays, split=np.array(["train", "train", "valid", "test"]))
    data = load(str(tmp_path / "own.npz"))
    assert data.description.at_end
    scaling = data.record.input_scaling
    found = [scaling.restored(pair.inputs)[:, 0] for split in ("train", "valid", "test") for pair in data.pairs[split]]
    np.testing.assert_allclose(np.concatenate(found), steps, atol=1e-5)


def test_gaps_that_no_step_uses_are_no_mistake(tmp_path):
    path = tmp_path / "ahead.csv"
    path.write_text("a,b\n" + "".join(f"{t if t < 19 else ''},{t if t else ''}\n" for t in range(20)))
    assert read_table(path, targets=["b"], ahead=1, target_kind="numbers").split_figures("train").steps == 11


def test_the_column_of_ids_is_remembered(weather, tmp_path):
    data = read_table(weather, inputs=["heat", "rain"], ids="place")
    assert data.record.id_column == "place"
    write_set(tmp_path / "set.npz", data)
    assert read_set(tmp_path / "set.npz", "again").record == data.record
    assert data.fingerprint == Sequences.of("same", data.description, data.pairs).fingerprint


@pytest.mark.parametrize("make", [tiny_series, tiny_labels])
def test_what_is_stored_is_read_again(make, tmp_path):
    data = make()
    write_set(tmp_path / "set.npz", data)
    again = read_set(tmp_path / "set.npz", "again")
    assert again.fingerprint == data.fingerprint
    assert again.record == data.record
    assert again.remarks == data.remarks


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (b"", {}, "no rows"),
        (b"a,b\n", {}, "no rows"),
        (b"a,a\n1,2\n", {}, "different names"),
        (b"a,b\n1,2\n3\n", {}, "line 3 has 1 values: expected 2"),
        (b"a,b\n1,x\n2,y\n3,z\n", {}, "column 'b' .* holds words"),
        (b"a,b\n1,2\n3,4\n5,6\n", {"targets": ["c"]}, "no column 'c'"),
        (b"a,b\n1,2\n3,4\n5,6\n", {"ahead": 1}, "need targets"),
        (b"a,b\n1,2\n3,4\n5,6\n", {"targets": ["b"], "ahead": 5}, "none 5 rows ahead"),
        (b"a,b\n1,2\n,4\n5,6\n", {}, "bad.csv, line 3: column 'a' has no number"),
        (b'a,b\n1,2\n\n"3",inf\n5,6\n', {}, "line 4: column 'b' has inf"),
        (b"i,a,b\n1,1,2\n2,1,2\n1,,4\n2,5,6\n", {"ids": "i"}, "line 4: column 'a' has no number"),
        (b"a,b,c\n1,2,3\n4,,6\n7,8,9\n", {"targets": ["b", "c"]}, "line 3: column 'b' has no number: expected all"),
        (b"a;b\n1,5;2\n2;3\n1,25;6\n", {}, "column 'a' .* decimal commas, such as '1,5'"),
        (b"a\tb\n2\t1,5\n3\t2,5\n4\t3,5\n", {"inputs": ["a"], "targets": ["b"], "at_end": True}, "'b' .* '1,5'"),
        (b"a,b\n1,2\n1e300,4\n5,6\n", {}, "go up to 1e.300"),
        (b"a,b\n1,2\n" + b"x" * 300 + b",4\n", {"inputs": ["a"]}, "a value of 300 characters"),
        ("a\nKäse\n".encode("latin-1"), {}, "not UTF-8"),
    ],
)
def test_tables_that_cannot_be_used_are_one_error(tmp_path, content, options, said):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_table(path, **options)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"inputs": np.zeros((5, 1)), "lengths": np.array([3, 3])}, "do not fit"),
        ({"inputs": np.zeros((5, 1)), "label": np.zeros(5)}, "array 'label' beside inputs"),
        ({"inputs": np.zeros((5, 1)), "lengths": np.array([0, 5])}, "do not fit"),
    ],
)
def test_archives_that_cannot_be_used_are_one_error(tmp_path, arrays, said):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match=said):
        load(str(tmp_path / "bad.npz"))


def test_a_stored_set_that_is_not_what_it_says_is_refused(tmp_path):
    data = tiny_series()
    write_set(tmp_path / "set.npz", data)
    with np.load(tmp_path / "set.npz") as stored:
        arrays = dict(stored)
    np.savez(tmp_path / "bad.npz", **{**arrays, "valid_targets": arrays["valid_targets"][:, :1]})
    with pytest.raises(InputError, match="not 2 numbers per step"):
        read_set(tmp_path / "bad.npz", "bad")


@pytest.mark.parametrize("name", ["train_inputs", "valid_targets", "test_mask"])
def test_a_stored_array_of_another_rank_is_refused(tmp_path, name):
    write_set(tmp_path / "set.npz", tiny_series())
    with np.load(tmp_path / "set.npz") as stored:
        arrays = dict(stored)
    for other in (arrays[name].ravel()[0], np.stack([arrays[name]] * 2, axis=-1), arrays[name][..., None, None]):
        np.savez(tmp_path / "bad.npz", **{**arrays, name: other})
        with pytest.raises(InputError, match=f"is a damaged data set .'{name}'"):
            read_set(tmp_path / "bad.npz", "bad")


def test_categories_of_parquet_are_words(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    words = pyarrow.array(["wet", "dry", "wet", "dry"] * 9).dictionary_encode()
    parquet.write_table(pyarrow.table({"heat": [1.0, 2.0, 3.0, 4.0] * 9, "sky": words}), tmp_path / "w.parquet")
    data = read_table(tmp_path / "w.parquet", inputs=["heat"], targets=["sky"])
    assert data.record.kind == "classes"
    times = pyarrow.table({"when": pyarrow.array([1, 2, 3], pyarrow.timestamp("s"))})
    parquet.write_table(times, tmp_path / "t.parquet")
    with pytest.raises(InputError, match="expected numbers or words; convert or drop it"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("shape", "kind"), [("(-1, -5)", "<f4"), ("(True, 4)", "<f4"), (str((1,) * 70), "<f4"), ("(4,)", "<U0")]
)
def test_an_array_of_a_strange_shape_is_refused(tmp_path, shape, kind):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".ljust(501) + "\n"
    (tmp_path / "a.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)
    )
    with pytest.raises(InputError, match=r"is not an \.npy file"):
        load(str(tmp_path / "a.npy"))
