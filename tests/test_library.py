"""The library from Python: what the command line refuses, shows and limits, it does too."""

import numpy as np
import pytest

import longspan
from longspan.errors import InputError
from longspan.training.listeners import Listener
from tests.support.catalog import tiny_music

SMALL = {"hidden_size": 8, "chunk_length": 10, "block": 2, "max_epochs": 3, "dropout": 0.0}


@pytest.fixture
def trained(tmp_path):
    return longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "run", **SMALL)


def test_other_data_than_a_run_was_begun_with_are_refused(trained):
    other = tiny_music(seed=1)
    with pytest.raises(InputError, match="the data of 'tiny' have changed"):
        trained.evaluate("test", data=other)
    with pytest.raises(InputError, match="the data of 'tiny' have changed"):
        longspan.resume(trained.run.path, data=other)
    assert trained.evaluate("test", data=tiny_music()).log_likelihood < 0


class Clock:
    """Time that passes by a second a block."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("longspan.runtime.time.monotonic", lambda: self.now)

    def listener(self) -> Listener:
        clock = self

        class Tick(Listener):
            def on_block(self, progress, info, count, total):
                clock.now += 1.0

        return Tick()


def test_a_run_that_had_its_time_stops_cleanly_and_resumes_to_the_same_bytes(trained, tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    where = tmp_path / "limited"
    stopped = longspan.train(
        "sgd+c", tiny_music(), run_dir=where, listeners=[clock.listener()], max_seconds=2.5, **SMALL
    )
    assert (stopped.run.status, clock.now) == ("interrupted", 3.0)
    resumed = longspan.resume(where, data=tiny_music())
    assert resumed.run.status == "done"
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (where / name).read_bytes() == (trained.run.path / name).read_bytes()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan"), "60"])
def test_what_is_no_time_is_refused_by_its_name_in_python(seconds, tmp_path):
    with pytest.raises(InputError, match=r"^max_seconds must be a number above 0 and finite"):
        longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "run", max_seconds=seconds, **SMALL)
    with pytest.raises(InputError, match=r"^budget must be a number above 0 and finite"):
        longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "run", budget=seconds, **SMALL)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ({"activation": "relu"}, "activation cannot be 'relu': expected one of tanh, sigmoid, rectifier"),
        ({"hidden_size": "50"}, "hidden_size cannot be '50'"),
        ({"hiden_size": 50}, "did you mean hidden_size"),
        ({"seed": -1}, "seed must be from 0 to 4294967295: got -1"),
        ({"recipe": 3}, "expected a recipe as text"),
        ({"cell": np.tanh}, "expected a cell as text, such as 'lstm', got ufunc: register one of your own, or hand it"),
        ({"recipe": None, "config": {"seed": 1}}, "expected a TrainConfig as config, got dict"),
        ({"data": 3}, "expected the name of a data set or a longspan.Dataset, got int"),
        ({"optimizer": 3}, "expected an Optax transformation or a name as optimizer, got 3"),
        ({"model": "lstm"}, "expected a longspan.models.SequenceModel of a cell and an output as model, got str"),
        ({"listeners": [3]}, "Listener objects as listeners, got 3"),
    ],
    ids=str,
)
def test_mistakes_of_a_caller_leave_no_run_folder(mistake, words, tmp_path):
    with pytest.raises(InputError, match=words):
        longspan.train(**{"recipe": "sgd+c", "data": tiny_music(), "run_dir": tmp_path / "run", **SMALL} | mistake)
    assert not (tmp_path / "run").exists()


def test_mistakes_with_a_trained_model_are_named(trained):
    with pytest.raises(InputError, match="unknown split 'tset': expected train, valid, test"):
        trained.evaluate("tset")
    with pytest.raises(InputError, match=r"longspan.Dataset, got int"):
        trained.evaluate(data=3)
    with pytest.raises(InputError, match="'tiny' cannot be loaded by name: pass the data set itself"):
        longspan.resume(trained.run.path)
    with pytest.raises(InputError, match="whole numbers from 0 to 1"):
        trained.sample(2, prime=np.full((2, 88), 127))


def test_progress_is_shown_where_it_is_asked_for_and_nowhere_else(tmp_path, capsys):
    longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "quiet", **SMALL)
    assert capsys.readouterr() == ("", "")
    longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "shown", progress=True, **SMALL)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in shown if line.startswith("epoch")] == [["epoch", f"{n}"] for n in (1, 2, 3)]


def test_messages_name_settings_as_python_does():
    with pytest.raises(InputError, match=r"^hidden_size must be from 1 to 65536: got 0") as error:
        longspan.train("sgd+c", tiny_music(), hidden_size=0)
    assert error.value.fields == ("hidden_size",)


def test_a_run_starts_from_the_weights_and_settings_of_another(trained, tmp_path):
    where, other = tmp_path / "tuned", tiny_music(seed=1)
    tuned = longspan.train(data=other, start=trained.run.path, run_dir=where, max_epochs=1, learning_rate=1e-9)
    assert tuned.run.config.hidden_size == SMALL["hidden_size"]
    before = trained.evaluate("test", data=tiny_music())
    assert tuned.evaluate("test", data=other).log_likelihood == pytest.approx(
        longspan.train(data=other, start=where, run_dir=tmp_path / "again", max_epochs=1, learning_rate=1e-9)
        .evaluate("test", data=other)
        .log_likelihood,
        abs=1e-4,
    )
    assert before.log_likelihood == pytest.approx(
        longspan.train(data=tiny_music(), start=where, run_dir=tmp_path / "back", max_epochs=1, learning_rate=1e-9)
        .evaluate("test", data=tiny_music())
        .log_likelihood,
        abs=1e-4,
    )
    assert longspan.open_run(where).sample(4).shape == (1, 4, 88)
    with pytest.raises(InputError, match="do not fit the settings"):
        longspan.train(data=other, start=where, run_dir=tmp_path / "wide", hidden_size=9)
