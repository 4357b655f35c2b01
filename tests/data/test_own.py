"""Your own sequences: what arrays mean, how they are split, normalized and cut into chunks."""

from pathlib import Path

import numpy as np
import pytest

from longspan.data import own_baselines
from longspan.data.own import Sequences
from longspan.errors import InputError
from tests.support.catalog import tiny_labels, tiny_series


def rows(data: Sequences, split: str = "test") -> dict:
    return dict(data.baselines(split).rows())


def test_one_series_is_cut_in_time_and_predicts_its_next_step():
    series = np.arange(10, 30, dtype=float)
    data = Sequences(series, name="s", split=(0.6, 0.2, 0.2))
    lengths = {split: data.split_figures(split).steps for split in ("train", "valid", "test")}
    assert lengths == {"train": 12, "valid": 4, "test": 4}
    scaling = data.record.target_scaling
    (pair,) = data.pairs["valid"]
    np.testing.assert_allclose(scaling.restored(pair.targets)[:, 0], series[12:16], rtol=1e-6)
    np.testing.assert_allclose(pair.inputs[1:], pair.targets[:-1])
    assert (pair.inputs[0] == 0).all()
    assert scaling.mean == [pytest.approx(series[:12].mean())]
    assert scaling.scale == [pytest.approx(series[:12].std())]


def test_normalization_is_that_of_the_training_split_and_constant_columns_survive():
    inputs = [np.column_stack([np.full(5, float(number)), np.ones(5)]) for number in range(6)]
    data = Sequences(inputs, [float(number) for number in range(6)], split=["train"] * 4 + ["valid", "test"])
    assert data.record.input_scaling.mean == [1.5, 1.0]
    assert data.record.input_scaling.scale == [pytest.approx(np.std([0, 1, 2, 3])), 1.0]
    assert data.record.target_scaling.mean == [1.5]


@pytest.mark.parametrize(
    ("inputs", "targets", "kinds"),
    [
        (np.zeros((9, 2)), "next", ("numbers", "numbers")),
        (np.arange(9) % 3, "next", ("symbols", "symbols")),
        (np.eye(9, dtype=int), "next", ("binary", "binary")),
        (list("abcabcabc"), "next", ("symbols", "symbols")),
        (np.zeros((4, 5, 2)), np.array([0, 1, 0, 1]), ("numbers", "symbols")),
        (np.zeros((4, 5, 2)), np.array([[0.1], [1], [0], [1]]), ("numbers", "numbers")),
        (np.zeros((4, 5, 2)), np.array([[0, 1], [1, 0], [0, 0], [1, 1]]), ("numbers", "binary")),
        ([np.zeros((5, 2))] * 3, [np.arange(5) % 2] * 3, ("numbers", "symbols")),
        (np.zeros((9, 2)), np.linspace(0, 1, 9), ("numbers", "numbers")),
        ([np.arange(4), np.arange(3), np.arange(5)], ["a", "b", "a"], ("symbols", "symbols")),
    ],
)
def test_kinds_follow_from_the_arrays(inputs, targets, kinds):
    about = Sequences(inputs, targets).description
    assert (about.input_kind, about.target_kind) == kinds


def test_sequences_of_one_id_stay_together():
    ids = [f"patient {number // 3}" for number in range(30)]
    inputs = [np.full((4, 1), float(number)) for number in range(30)]
    data = Sequences(inputs, ids=ids, normalize=False)
    homes = {}
    for split, pairs in data.pairs.items():
        for pair in pairs:
            homes.setdefault(ids[int(pair.targets[0, 0])], set()).add(split)
    assert len(homes) == 10
    assert all(len(splits) == 1 for splits in homes.values())
    assert [len(data.pairs[split]) for split in ("train", "valid", "test")] == [18, 6, 6]


def test_the_split_does_not_depend_on_the_order_of_sequences():
    inputs = {str(number): np.full((4, 1), float(number)) for number in range(9)}
    one = Sequences(list(inputs.values()), ids=list(inputs), normalize=False)
    other = Sequences(list(inputs.values())[::-1], ids=list(inputs)[::-1], normalize=False)

    def members(data, split):
        return sorted(pair.targets[0, 0] for pair in data.pairs[split])

    assert all(members(one, split) == members(other, split) for split in one.pairs)


def test_steps_without_a_target_do_not_count():
    targets = np.array([1.0, np.nan, 3.0] * 10)
    data = Sequences(np.zeros((30, 1)), targets, masks=np.arange(30) % 3 < 2)
    assert data.chunks("train", 6, 1).mask.sum() == 6
    assert "20 of 30 steps ask for nothing" in data.remarks
    assert data.counted_steps(6) == 2


def test_one_target_a_sequence_is_asked_at_its_end_and_spans_it_whole():
    data = tiny_labels()
    chunks = data.chunks("train", chunk_length=3, lanes=4)
    lengths = [len(pair.mask) for pair in data.pairs["train"]]
    assert chunks.inputs.shape[1:3] == (max(lengths), 4)
    assert chunks.mask.sum() == len(lengths)
    assert chunks.resets[:, 0].all()
    flat = chunks.mask.swapaxes(1, 2).reshape(-1, max(lengths))[: len(lengths)]
    assert (flat.argmax(axis=1) == np.array(lengths) - 1).all()
    assert data.record.labels == ["down", "up"]


def test_the_last_value_and_the_linear_model_are_what_numpy_says():
    data = tiny_series()
    found, scale = rows(data), np.array(data.record.target_scaling.scale)
    (train,), (test,) = data.pairs["train"], data.pairs["test"]
    off = (test.targets - test.inputs) * scale
    assert found["the last value"]["squared_error"] == pytest.approx(np.square(off).mean(), rel=1e-5)
    spread = np.tile(np.square((train.targets - train.inputs)[1:] * scale).mean(axis=0), (len(off), 1))
    spread[0] = np.square(scale)  # before the first value there is none: its variance is that of all values
    density = -0.5 * np.sum(np.square(off) / spread + np.log(2 * np.pi * spread), axis=1).mean()
    assert found["the last value"]["log_likelihood"] == pytest.approx(density, rel=1e-4)
    (label,) = (name for name in found if name.startswith("linear"))
    assert found[label]["squared_error"] < found["the last value"]["squared_error"] < found["the mean"]["squared_error"]
    assert found[label]["r2"] > 0.95


def test_a_linear_autoregression_is_recovered():
    random, series = np.random.default_rng(0), [np.zeros(1), np.zeros(1)]
    for _ in range(3000):
        series.append(1.5 * series[-1] - 0.7 * series[-2] + random.normal(0, 0.1, 1))
    linear = next(figures for name, figures in rows(Sequences(np.array(series))).items() if name.startswith("linear"))
    assert linear["squared_error"] == pytest.approx(0.01, rel=0.15)
    assert linear["log_likelihood"] == pytest.approx(-0.5 * np.log(2 * np.pi * np.e * 0.01), abs=0.08)


def short_autoregressions(number: int = 60, steps: int = 25, noise: float = 0.01) -> list[np.ndarray]:
    """Series of second order that begin anywhere, so that their first two steps are far harder than all others."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(number):
        series = list(random.normal(0, 1, 2))
        while len(series) < steps:
            series.append(1.6 * series[-1] - 0.8 * series[-2] + random.normal(0, noise))
        found.append(np.array(series)[:, None])
    return found


def test_starts_that_nobody_can_predict_leave_the_other_steps_their_likelihood():
    data = Sequences(short_autoregressions())
    found = rows(data)
    linear = next(figures for name, figures in found.items() if name.startswith("linear"))
    (spread,) = data.record.target_scaling.scale
    first, second, other = -0.5 * np.log(
        2 * np.pi * np.e * np.array([1 / spread**2, 1 / spread**2, (0.01 / spread) ** 2])
    )
    reachable = (first + second + 23 * other) / 25 - np.log(spread)
    assert linear["log_likelihood"] == pytest.approx(reachable, abs=0.2)


def test_the_units_of_a_column_do_not_decide_how_far_the_linear_model_looks_back():
    random = np.random.default_rng(2)
    pairs = [np.hstack([random.normal(size=series.shape), series]) for series in short_autoregressions()]
    small, large = (rows(Sequences([pair * [unit, 1] for pair in pairs])) for unit in (1.0, 1e4))
    assert list(large) == list(small)
    assert "linear, last 2 inputs" in small
    for label in small:
        assert large[label]["log_likelihood"] == pytest.approx(small[label]["log_likelihood"] - np.log(1e4), abs=1e-3)


def test_sequences_of_a_single_step_have_nothing_to_fit_a_linear_model_to():
    found = rows(Sequences(list(np.random.default_rng(0).normal(size=(9, 1, 2)))))
    assert found["linear, last input"] == found["the mean"] == found["the last value"]


def test_logistic_regression_learns_what_is_linear():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(3000, 3))
    found = rows(Sequences(inputs, (inputs[:, 0] > inputs[:, 1]).astype(int)))
    assert found["always the usual answer"]["class_accuracy"] < 0.6
    (linear,) = (figures for name, figures in found.items() if name.startswith("linear"))
    assert linear["class_accuracy"] > 0.97


def test_symbols_know_what_comes_before_the_first():
    data = Sequences([np.array(list("acgt" * 5))] * 3)
    assert data.record.size == 4
    assert data.record.input_size == 5
    assert data.record.end_token == 4
    assert data.pairs["train"][0].inputs[0] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"inputs": []}, "there are no sequences"),
        ({"inputs": "power.csv"}, "expected arrays, got 'power.csv': longspan.data.read_table reads a table"),
        ({"inputs": Path("power.csv")}, "expected arrays, got 'power.csv'"),
        (
            {"inputs": [np.zeros((6, 1))] * 9, "targets": [np.arange(5.0)] * 9},
            r"has 5 values, and its inputs have 6 steps: expected one target per step, .* or one vector .* \(1, 5\)",
        ),
        ({"inputs": np.zeros((9, 6, 2)), "targets": np.zeros((9, 5))}, "5 values, and its inputs have 6 steps"),
        ({"inputs": np.array([1.0, np.nan, 2.0])}, "step 1"),
        ({"inputs": [np.zeros((4, 2)), np.zeros((4, 3))]}, "2 columns in one sequence and 3"),
        ({"inputs": np.array([[0, 2], [1, 0], [1, 1]])}, "nothing but 0 and 1"),
        ({"inputs": np.zeros((9, 2)), "targets": "net"}, "'next' or arrays"),
        ({"inputs": [np.zeros((4, 1))] * 3, "targets": [1, 2]}, "targets for 2 sequences and inputs of 3"),
        ({"inputs": [np.zeros((4, 1))] * 3, "targets": [np.zeros(4), np.zeros(4), np.zeros(3)]}, "sequence 2"),
        ({"inputs": [np.zeros((4, 1))] * 2, "targets": [1, 2]}, "at least 3"),
        ({"inputs": np.zeros((9, 1)), "targets": np.full(9, np.nan)}, "no step has a target"),
        ({"inputs": np.zeros((9, 1)), "targets": np.full((9, 2), [1, np.nan])}, "some columns"),
        ({"inputs": [np.zeros((4, 1))] * 3, "ids": ["a"]}, "1 ids for 3"),
        ({"inputs": [np.zeros((4, 1))] * 3, "split": ["train", "valid", "tset"]}, "unknown 'tset'"),
        ({"inputs": [np.zeros((4, 1))] * 3, "split": ["train"] * 3}, "none in valid"),
        ({"inputs": np.zeros((9, 2)), "columns": ["one"]}, "1 names for 2"),
        ({"inputs": np.zeros((9, 2)), "input_kind": "number"}, "inputs must be one of numbers, binary, symbols: got"),
        ({"inputs": np.zeros((9, 2)), "targets": np.zeros(9), "target_kind": "class"}, "targets must be one of"),
        ({"inputs": np.zeros(9, int)}, "1 different symbols"),
        ({"inputs": np.array([1 + 2j] * 5)}, "expected numbers or words"),
        ({"inputs": np.zeros((30, 1)), "targets": np.full(30, np.nan), "target_kind": "symbols"}, "none is known"),
        ({"inputs": np.zeros((30, 1)), "targets": np.full(30, 1e300), "target_kind": "symbols"}, "not whole numbers"),
    ],
)
def test_what_cannot_be_understood_is_one_error(arguments, said):
    with pytest.raises(InputError, match=said):
        Sequences(**arguments)


def test_a_vector_for_each_sequence_may_be_one_shorter_than_it_if_that_is_said():
    vectors = np.random.default_rng(0).normal(size=(9, 1, 5))
    data = Sequences(np.zeros((9, 6, 2)), vectors, normalize=False, split=["train", "valid", "test"] * 3)
    assert (data.description.at_end, data.description.target_size) == (True, 5)
    np.testing.assert_allclose(data.pairs["train"][1].targets[-1], vectors[3, 0], rtol=1e-6)
    pairs = Sequences(np.zeros((9, 2, 3)), np.arange(9.0)[:, None])  # one number for two steps
    assert (pairs.description.at_end, pairs.description.target_size) == (True, 1)


def test_classes_are_those_that_occur_whatever_their_numbers():
    """As in scikit-learn: classes 1, 2, 3 are three, and none of them is never right."""
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(5, 2)) for _ in range(30)]
    classes = np.arange(30) % 3 + 1
    data = Sequences(inputs, classes)
    assert (data.record.size, data.record.labels) == (3, ["1", "2", "3"])
    assert rows(data) == rows(Sequences(inputs, classes - 1))
    assert Sequences(inputs, classes - 1).record.labels is None


def test_symbols_that_never_occur_are_told():
    assert Sequences([1, 2, 3] * 20).remarks[1] == (
        "inputs are 4 symbols from 0 to 3 (0 never occurs), and the next one is predicted"
    )
    sparse = Sequences(np.arange(0, 16, 2).repeat(5)[::-1].copy())
    assert "15 symbols from 0 to 14 (1, 3, 5, 7, 9 and 2 more never occur)" in sparse.remarks[1]


@pytest.mark.parametrize("kind", ["numbers", "classes", "keys", "symbols, then a number at the end"])
def test_a_sequence_seen_part_by_part_has_the_same_baselines(kind, monkeypatch):
    """Steps of a part see those of the part before it, and steps without a target count in no part."""
    random = np.random.default_rng(0)
    made = {
        "numbers": lambda: Sequences([np.cumsum(random.normal(size=(60, 2)), axis=0) for _ in range(9)]),
        "classes": lambda: Sequences(
            [random.normal(size=(60, 2)) for _ in range(9)],
            [np.where(random.random(60) < 0.3, np.nan, random.integers(0, 3, 60)) for _ in range(9)],
            target_kind="symbols",
        ),
        "keys": lambda: Sequences([random.integers(0, 2, (60, 3)) for _ in range(9)]),
        "symbols, then a number at the end": lambda: Sequences(
            [random.integers(0, 4, 20) for _ in range(40)], list(random.normal(size=40))
        ),
    }
    data = made[kind]()
    whole = rows(data)
    for numbers in (1, 100):
        monkeypatch.setattr(own_baselines, "AT_ONCE", numbers)
        for label, figures in rows(data).items():
            assert figures == pytest.approx(whole[label], rel=1e-9)
