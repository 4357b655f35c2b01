"""Every task is checked sequence by sequence against its rule in the literature, in plain Python."""

import numpy as np
import pytest

from longspan.data.synthetic import TASKS, is_solved
from longspan.errors import InputError

SPANS = (10, 30, 57, 100)


def symbols_of(sequence):
    assert np.all(sequence.sum(axis=-1) == 1)
    assert set(np.unique(sequence)) == {0.0, 1.0}
    return [int(np.flatnonzero(step)[0]) for step in sequence]


def sequences(name, span, count=40):
    batch = TASKS[name].batch(span, count, seed=3, step=7)
    assert batch.inputs.dtype == np.float32
    assert batch.mask.dtype == bool
    assert batch.inputs.shape[:2] == batch.targets.shape[:2] == batch.mask.shape
    assert batch.inputs.shape[2] == TASKS[name].input_size
    for lane in range(count):
        yield batch.inputs[:, lane], batch.targets[:, lane], batch.mask[:, lane]


@pytest.mark.parametrize("span", SPANS)
def test_temporal_order_asks_for_the_order_of_two_symbols(span):
    classes = {(0, 0): 0, (1, 0): 1, (0, 1): 2, (1, 1): 3}
    seen = set()
    for inputs, targets, mask in sequences("temporal-order", span):
        symbols = symbols_of(inputs)
        assert len(symbols) == span
        places = [t for t, symbol in enumerate(symbols) if symbol < 2]
        assert len(places) == 2
        assert span // 10 <= places[0] < 2 * span // 10
        assert 5 * span // 10 <= places[1] < 6 * span // 10
        assert list(np.flatnonzero(mask)) == [span - 1]
        assert targets[-1] == classes[symbols[places[0]], symbols[places[1]]]
        seen.add(int(targets[-1]))
    assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize(
    ("name", "answer"), [("addition", lambda a, b: (a + b) / 2), ("multiplication", lambda a, b: a * b)]
)
def test_marked_numbers_are_combined_at_the_end(name, answer, span):
    lengths = set()
    for inputs, targets, mask in sequences(name, span):
        (last,) = np.flatnonzero(mask)
        assert span <= last + 1 <= span * 1.1
        lengths.add(int(last))
        assert np.all(inputs[last + 1 :] == 0)
        numbers, markers = inputs[:, 0], inputs[:, 1]
        assert np.all((numbers >= 0) & (numbers < 1))
        assert len(np.unique(numbers[: last + 1])) > span / 2
        first, second = np.flatnonzero(markers == 1)
        assert np.sum(markers) == 2
        assert first < span // 10 <= second < span // 2
        assert targets.shape == (len(inputs), 1)
        assert targets[last, 0] == pytest.approx(answer(numbers[first], numbers[second]))
    assert len(lengths) > 1


@pytest.mark.parametrize("span", [2, 30, 99, 250])
def test_permutation_ends_with_the_symbol_it_began_with(span):
    seen = set()
    for inputs, targets, mask in sequences("permutation", span):
        first, *others = symbols_of(inputs)
        assert len(others) == span - 1
        assert first in (0, 1)
        for start in range(0, len(others), 98):
            run = others[start : start + 98]
            assert len(set(run)) == len(run)
            assert all(2 <= symbol < 100 for symbol in run)
        assert list(np.flatnonzero(mask)) == [span - 1]
        assert targets[-1] == first
        seen.add(first)
    assert seen == {0, 1}


@pytest.mark.parametrize("span", [1, 30])
def test_memorization_returns_five_bits_after_the_cue(span):
    seen = set()
    for inputs, targets, mask in sequences("memorization", span):
        symbols = symbols_of(inputs)
        assert symbols[5:] == [2] * span + [3] + [2] * 4
        assert set(symbols[:5]) <= {0, 1}
        assert list(np.flatnonzero(mask)) == list(range(span + 5, span + 10))
        assert list(targets[mask]) == symbols[:5]
        seen.add(tuple(symbols[:5]))
    assert len(seen) > 10


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_is_a_function_of_seed_split_and_step(name):
    def draw(**changes):
        return TASKS[name].batch(20, 6, **({"seed": 0, "step": 0, "split": "train"} | changes))

    for same, again in zip(draw(), draw(), strict=True):
        np.testing.assert_array_equal(same, again)
    others = [draw(seed=1), draw(step=1), draw(split="valid"), draw(split="test")]
    draws = [draw(), *others]
    for index, one in enumerate(draws):
        for other in draws[index + 1 :]:
            assert not np.array_equal(one.inputs, other.inputs)


def test_a_class_task_counts_a_sequence_wrong_if_any_answer_is():
    task = TASKS["memorization"]
    batch = task.batch(4, 3, seed=0, step=0)
    outputs = np.eye(2, dtype=np.float32)[batch.targets]
    outputs[~batch.mask] = 0
    assert not task.wrong_sequences(outputs, batch).any()
    outputs[-2, 1] = outputs[-2, 1, ::-1]
    assert task.wrong_sequences(outputs, batch).tolist() == [False, True, False]


def test_a_number_is_wrong_above_a_squared_error_of_four_hundredths():
    task = TASKS["addition"]
    batch = task.batch(20, 4, seed=0, step=0)
    outputs = batch.targets + np.array([0, 0.199, -0.201, np.nan], np.float32)[None, :, None]
    outputs[~batch.mask] = 9
    assert task.wrong_sequences(outputs, batch).tolist() == [False, False, True, True]


def test_solved_means_under_one_percent_wrong():
    wrong = np.zeros(1000, bool)
    wrong[:9] = True
    assert is_solved(wrong)
    wrong[9] = True
    assert not is_solved(wrong)


@pytest.mark.parametrize(("name", "task"), TASKS.items())
def test_too_short_a_span_is_refused(name, task):
    with pytest.raises(InputError, match=f"at least {task.smallest_span}"):
        task.batch(task.smallest_span - 1, 2, seed=0, step=0)
    task.batch(task.smallest_span, 2, seed=0, step=0)
