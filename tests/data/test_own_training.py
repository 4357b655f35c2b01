"""Own sequences from training to samples: scores are in the units of the data, whatever those are."""

from contextlib import nullcontext

import jax.numpy as jnp
import numpy as np
import pytest

import longspan
from longspan import cli
from longspan.data import DataRecord, Sequences, read_table
from longspan.errors import InputError
from longspan.sampling.prime import read_series_prime
from tests.support.catalog import tiny_labels, tiny_series

TINY = {"hidden_size": 6, "chunk_length": 20, "lanes": 1, "block": 4, "max_epochs": 3}


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    return longspan.train(data=tiny_series(), run_dir=tmp_path_factory.mktemp("own") / "series", **TINY)


def test_scores_are_in_the_units_of_the_data(series, tmp_path):
    """The same series in other units: 1000 times the squares in one column, and a density to match."""
    data = tiny_series()
    scaling = data.record.target_scaling
    whole = np.concatenate([scaling.restored(data.pairs[split][0].targets) for split in ("train", "valid", "test")])
    factor = np.array([1.0, 8.0])
    other = longspan.train(data=Sequences(whole * factor - 5, name="o"), run_dir=tmp_path / "other", **TINY)
    ours, theirs = series.evaluate("test"), other.evaluate("test")
    assert theirs.log_likelihood == pytest.approx(ours.log_likelihood - np.log(8), abs=2e-3)
    assert theirs.r2 == pytest.approx(ours.r2, abs=2e-3)
    assert 1 < theirs.squared_error / ours.squared_error < 64
    first, second = (longspan.open_run(run.run.path).run.metrics()[-1] for run in (series, other))
    for name in ("train_log_likelihood", "valid_log_likelihood"):
        assert second[name] == pytest.approx(first[name] - np.log(8), abs=2e-3)


def test_r2_and_squared_error_are_those_of_the_predictions(series):
    data, scores = tiny_series(), series.evaluate("test")
    (pair,) = data.pairs["test"]
    state = series.model.start(1)
    steps = len(pair.mask)
    resets = jnp.zeros((steps, 1), bool)
    _, hidden = series.model.run(state, jnp.asarray(pair.inputs[:, None]), resets, jnp.int32(steps))
    answers = data.record.in_units(np.asarray(series.model.output.likeliest(hidden[:, 0])))
    true = data.record.in_units(pair.targets)
    squares = np.square(answers - true)
    assert scores.squared_error == pytest.approx(squares.mean(), rel=1e-3)
    assert scores.r2 == pytest.approx(np.mean(1 - squares.mean(axis=0) / true.var(axis=0)), abs=1e-3)


def test_a_block_without_any_target_is_trained_and_shown(tmp_path, capsys):
    """The mean loss of an epoch of which no step had counted yet was a division by zero."""
    marks = np.arange(600) % 200 >= 180
    arrays = {"inputs": np.random.default_rng(0).normal(size=(600, 1)), "masks": marks, "ids": np.array([*"abc"])}
    np.savez(tmp_path / "late.npz", **arrays, targets=arrays["inputs"], lengths=np.array([200] * 3))
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**TINY, "max_epochs": 1}.items()]
    assert cli.run(["train", "--data", str(tmp_path / "late.npz"), "--run-dir", str(tmp_path / "run"), *flags]) == 0
    assert "nan" not in capsys.readouterr().out


def test_samples_are_in_the_units_of_the_data_and_continue_a_prime(series):
    drawn = series.sample(30, num=2, prime=np.full((5, 2), 20.0))
    assert drawn.shape == (2, 30, 2)
    assert 10 < drawn.mean() < 30


@pytest.mark.parametrize(
    ("prime", "said"),
    [
        (np.zeros((5, 3)), r"shape \(time, 2\), got float64 of shape \(5, 3\)"),
        (np.zeros(5), r"of shape \(5,\)"),
        (np.full((5, 2), "a"), "expected numbers"),
        (np.array([[20.0, 20.0], [20.0, np.nan]]), "finite numbers: step 1"),
        ([[20.0, 20.0], [20.0]], "the prime cannot be read as an array"),
    ],
)
def test_a_prime_of_other_numbers_is_refused(series, prime, said):
    with pytest.raises(InputError, match=said):
        series.sample(3, prime=prime)


def test_a_diagnosis_says_how_far_its_nats_are_from_those_of_the_scores(series):
    seen = series.diagnose("test", lags=3).measures
    assert seen.standards.valid - series.evaluate("valid").log_likelihood == pytest.approx(seen.log_volume, abs=1e-4)
    assert f"{abs(seen.log_volume):.3f} " in seen.about_units


def test_a_prime_of_several_sequences_is_one_that_was_chosen(tmp_path, capsys):
    rows = [(name, place + t % 3) for t in range(12) for place, name in enumerate(("oslo", "rome", "bern", "lima"))]
    table = tmp_path / "heat.csv"
    table.write_text("place,heat\n" + "".join(f"{name},{heat}\n" for name, heat in rows))
    trained = longspan.train(data=read_table(table, ids="place"), run_dir=tmp_path / "run", **TINY)
    sample = ["sample", str(trained.run.path), "--length", "2", "--prime"]
    assert cli.run([*sample, str(table)]) == 2
    assert "holds 4 sequences by its column 'place' (oslo, rome, bern, lima)" in (told := capsys.readouterr().err)
    assert "choose one by --prime-id" in told
    assert cli.run([*sample, str(table), "--prime-id", "rom"]) == 2
    assert "--prime-id is 'rom'" in capsys.readouterr().err
    assert cli.run([*sample, str(table), "--prime-id", "rome"]) == 0
    drawn = np.loadtxt(capsys.readouterr().out.splitlines(), skiprows=1)
    np.testing.assert_allclose(drawn[:12], [1 + t % 3 for t in range(12)], atol=1e-5)
    (tmp_path / "one.csv").write_text("place,heat\nrome,1\nrome,2\n")
    (tmp_path / "none.csv").write_text("heat,wind\n1,7\n2,7\n")
    assert cli.run([*sample, str(tmp_path / "one.csv")]) == cli.run([*sample, str(tmp_path / "none.csv")]) == 0
    assert "columns of the prime that the model does not read: 'wind'" in capsys.readouterr().err
    assert cli.run([*sample, str(tmp_path / "none.csv"), "--prime-id", "rome"]) == 2
    assert "has no column of ids that the run knows: --prime-id" in capsys.readouterr().err


def test_the_shell_samples_series_and_continues_a_table(series, tmp_path, capsys):
    assert cli.run(["sample", str(series.run.path), "--length", "4"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == "column 0,column 1"
    assert len(rows) == 4
    (tmp_path / "prime.csv").write_text("a,b\n20,21\n20.5,20\n")
    written = tmp_path / "drawn.csv"
    assert cli.run(["sample", str(series.run.path), "--prime", str(tmp_path / "prime.csv"), "-o", str(written)]) == 0
    assert written.read_text().splitlines()[1:3] == ["20,21", "20.5,20"]
    (tmp_path / "bad.csv").write_text("a\n20\n21\n")
    assert cli.run(["sample", str(series.run.path), "--prime", str(tmp_path / "bad.csv")]) == 2
    assert "expected 2 finite numbers" in capsys.readouterr().err
    np.savez(tmp_path / "prime.npz", inputs=np.zeros((3, 2)))
    assert cli.run(["sample", str(series.run.path), "--prime", str(tmp_path / "prime.npz")]) == 2
    assert "expected a table (.csv, .tsv, .parquet) or an array (.npy)" in capsys.readouterr().err


def test_a_prime_of_switches_is_on_or_off(tmp_path):
    record = DataRecord("keys", "x", 2, next_step=True)
    for steps, said in ((np.array([[0, 1], [1, 1]]), None), (np.array([[0, 7], [1, 1]]), "whole numbers from 0 to 1")):
        np.save(tmp_path / "prime.npy", steps)
        with nullcontext() if said is None else pytest.raises(InputError, match=said):
            assert read_series_prime(tmp_path / "prime.npy", record).steps.tolist() == steps.tolist()


def test_real_inputs_with_classes_are_learned(tmp_path):
    data = tiny_labels(120)
    settings = {"hidden_size": 8, "lanes": 4, "block": 8, "max_epochs": 12, "learning_rate": 0.01}
    trained = longspan.train(data=data, run_dir=tmp_path / "run", **settings)
    accuracy = trained.evaluate("train").class_accuracy
    assert accuracy is not None
    assert accuracy > 0.8
    assert "always the usual answer" in trained.baselines("test")
    trained.diagnose("test", lags=3)
