"""The library from Python: what the command line refuses, shows and limits, it does too."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longspan
from longspan.data.text import TextData
from longspan.errors import InputError
from longspan.models import SequenceModel, build
from longspan.models.cells import LeakyCell
from longspan.training.listeners import Listener
from longspan.training.runs import Run
from tests.support.catalog import tiny_config, tiny_music, tiny_text

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
        ({"run_dir": 3}, "expected a path as run_dir, got 3"),
        ({"start": 3}, "expected a path as start, got 3"),
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
    with pytest.raises(InputError, match="seed must be a whole number from 0 to 4294967295: got 'x'"):
        trained.sample(2, seed="x")
    with pytest.raises(InputError, match="got a str: these data are music, not text"):
        trained.sample(2, prime="la la la")
    with pytest.raises(InputError, match="these data are music, not text"):
        trained.text(2)
    with pytest.raises(InputError, match="expected a path as path, got 3"):
        longspan.resume(3)
    with pytest.raises(InputError, match="expected a path as path, got 3"):
        longspan.open_run(3)


def test_a_text_is_begun_and_returned_as_a_string(tmp_path):
    spoken = longspan.train("sgd+c", tiny_text(), run_dir=tmp_path / "text", **SMALL)
    numbers = spoken.sample(7, num=2, seed=3, prime="ab")
    np.testing.assert_array_equal(numbers, spoken.sample(7, num=2, seed=3, prime=[1, 2]))
    letters = np.array(["\n", "a", "b", "c", "d"])
    assert spoken.text(7, num=2, seed=3, prime="ab") == ["ab" + "".join(letters[row]) for row in numbers]
    assert spoken.text(7) == ["".join(letters[spoken.sample(7)[0]])]
    for draw in (spoken.sample, spoken.text):
        with pytest.raises(InputError, match="the prime has 'x', which the run's vocabulary lacks"):
            draw(7, prime="ax")
    with pytest.raises(InputError, match=r"expected a str as prime, got list: sample\(\) takes numbers"):
        spoken.text(7, prime=[1, 2])
    with pytest.raises(InputError, match="the prime is empty"):
        spoken.sample(7, prime="")


def test_words_of_a_prime_that_are_unknown_are_told(tmp_path):
    words = ("\n", "<unk>", "the", "cat", "sat")
    ids = np.arange(400, dtype=np.int32) % 5
    data = TextData("said", "word", words, dict.fromkeys(("train", "valid", "test"), ids), 0)
    spoken = longspan.train("sgd+c", data, run_dir=tmp_path / "text", **SMALL)
    with pytest.warns(UserWarning, match="the prime has words that the model does not know: 'dog'"):
        (said,) = spoken.text(4, prime="the dog")
    assert said.startswith("the <unk>")
    assert "<unk>" not in said.removeprefix("the <unk>")


def test_a_run_is_resumed_for_more_epochs_and_never_for_fewer_than_it_made(trained, tmp_path):
    longer = longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "longer", **SMALL | {"max_epochs": 5})
    with pytest.raises(InputError, match=r"has made 3 epochs: expected max_epochs of at least 3, got 2") as refused:
        longspan.resume(trained.run.path, data=tiny_music(), max_epochs=2)
    assert refused.value.fields == ("max_epochs",)
    assert Run.open(trained.run.path).config.max_epochs == 3
    resumed = longspan.resume(trained.run.path, data=tiny_music(), max_epochs=5)
    assert resumed.run.reason == "reached 5 epochs"
    for name in ("metrics.jsonl", "model.safetensors", "config.json"):
        assert (resumed.run.path / name).read_bytes() == (longer.run.path / name).read_bytes()


def test_a_run_that_was_stopped_makes_no_further_epoch_than_its_limit(tmp_path):
    class Stopped(Exception):
        pass

    class Stop(Listener):
        def on_epoch(self, record, seconds):
            if record["epoch"] == 2:
                raise Stopped

    with pytest.raises(Stopped):
        longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "run", listeners=[Stop()], **SMALL)
    with pytest.raises(InputError, match="has made 2 epochs and is to go on: expected max_epochs of at least 3, got 2"):
        longspan.resume(tmp_path / "run", data=tiny_music(), max_epochs=2)
    assert len(longspan.resume(tmp_path / "run", data=tiny_music()).run.metrics()) == 3


class Broken(LeakyCell):
    """A cell whose author took a wrong axis."""

    def run(self, state, inputs, resets, length, keys=None):
        return super().run(state, inputs.astype(jnp.float32) @ jnp.ones((3, 3)), resets, length, keys)


def test_a_cell_that_fails_at_its_first_update_leaves_no_folder_in_the_way(tmp_path):
    data, where = tiny_music(), tmp_path / "run"
    config = tiny_config()
    sound = build(config, 88, data.base_rates(), key=jax.random.key(0))
    fields = {field.name: getattr(sound.cell, field.name) for field in dataclasses.fields(sound.cell)}
    for clip in (1.0, "auto"):
        with pytest.raises(TypeError):
            longspan.train(
                data=data, config=config, model=SequenceModel(Broken(**fields), sound.output), run_dir=where, clip=clip
            )
        assert not where.exists()
    assert longspan.train(data=data, config=config, model=sound, run_dir=where, max_epochs=1).run.status == "done"


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
