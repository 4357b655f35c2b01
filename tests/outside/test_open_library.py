"""Parts written outside the package train, resume after a kill to the same bytes, score and are inspected."""

import dataclasses
import inspect
import os
import signal
import subprocess
import sys
import time
import typing

import jax
import numpy as np
import optax
import pytest

import longspan
from longspan.config import Settings, TrainConfig
from longspan.errors import Diverged, InputError, to_paste
from longspan.models import SequenceModel, build
from longspan.registry import Registry, load_plugin, loaded_plugins
from longspan.training.runs import Run
from tests.support import plugins
from tests.support.catalog import tiny_config, tiny_music

SMALL = {"hidden_size": 8, "chunk_length": 40, "block": 4, "max_epochs": 3, "patience": 3}


@pytest.fixture(scope="module", autouse=True)
def own_parts():
    return plugins.own_parts()


def config(**changes) -> TrainConfig:
    values = SMALL | {"cell": "gated", "output": "mixture", "optimizer": "adam", "learning_rate": 0.01, "momentum": 0.9}
    return TrainConfig(**values | {"learning_rate_schedule": "constant", **changes})


def test_named_parts_learn_more_than_what_ignores_the_past(own_parts, tmp_path):
    trained = longspan.train(data="waves", config=config(max_epochs=30, patience=30), run_dir=tmp_path / "run")
    scores = trained.evaluate("test")
    baseline = dict(own_parts.Waves().baselines("test").rows())["without looking at the past"]
    assert scores.log_likelihood > baseline["log_likelihood"] + 0.5
    assert scores.squared_error < 0.2 * baseline["squared_error"]


def test_a_run_of_named_parts_is_opened_again_by_its_folder_alone(tmp_path):
    trained = longspan.train(data="waves", config=config(), run_dir=tmp_path / "run")
    again = longspan.open_run(tmp_path / "run")
    assert again.evaluate("valid") == trained.evaluate("valid")
    norms = longspan.diagnose(again, lags=5).measures.gradient.norms
    assert len(norms) == 6
    assert np.isfinite(norms).all()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "yogi", "hf"])
def test_every_optimizer_trains_own_parts(optimizer, tmp_path):
    longspan.train(
        data="waves", config=config(optimizer=optimizer, cg_iterations=5), run_dir=tmp_path / "run", max_epochs=2
    )
    metrics = Run.open(tmp_path / "run").metrics()
    assert metrics[-1]["train_log_likelihood"] > metrics[0]["train_log_likelihood"]


def given_model(own_parts) -> SequenceModel:
    settings = config(hidden_size=6)
    return build(settings, 1, np.zeros(1), key=jax.random.key(1))


def test_parts_handed_in_are_handed_in_again(own_parts, tmp_path):
    model, data = given_model(own_parts), own_parts.Waves(seed=5)
    data.name = "nowhere to be found"
    optimizer = optax.adam(0.01)
    trained = longspan.train(
        data=data, model=model, optimizer=optimizer, config=config(max_epochs=2), run_dir=tmp_path / "run"
    )
    expected = trained.evaluate("test")
    with pytest.raises(InputError, match="model of your own \\(GatedCell with Mixture\\)"):
        longspan.open_run(tmp_path / "run")
    with pytest.raises(InputError, match="optimizer of your own"):
        longspan.resume(tmp_path / "run", model=model, data=data)
    with pytest.raises(InputError, match="cannot be loaded by name: pass the data set itself"):
        longspan.open_run(tmp_path / "run", model=model).evaluate("test")
    assert longspan.open_run(tmp_path / "run", model=model, data=data).evaluate("test") == expected
    assert longspan.resume(tmp_path / "run", model=model, optimizer=optimizer, data=data).evaluate() == expected
    with pytest.raises(InputError, match="not those of its model"):
        longspan.open_run(tmp_path / "run", model=build(config(hidden_size=7), 1, np.zeros(1), key=jax.random.key(1)))


def command(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "longspan", *arguments, "--plugin", str(plugins.OWN_PARTS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


TRAINING = ["--data", "waves", "--cell", "gated", "--output", "mixture", "--optimizer", "adam", "--hidden-size", "8"]
TRAINING += ["--chunk-length", "10", "--block", "2", "--max-epochs", "12", "--checkpoint-seconds", "0"]


def test_a_killed_run_of_own_parts_resumes_to_the_same_bytes_from_the_shell(tmp_path):
    whole = command("train", *TRAINING, "--run-dir", str(tmp_path / "whole"))
    assert whole.wait() == 0, whole.stderr.read()
    process = command("train", *TRAINING, "--run-dir", str(tmp_path / "killed"))
    while process.poll() is None and len(list((tmp_path / "killed").glob("checkpoints/[0-9]*"))) < 2:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    resumed = command("resume", str(tmp_path / "killed"))
    assert resumed.wait() == 0, resumed.stderr.read()
    for name in ("metrics.jsonl", "model.safetensors", "result.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    for arguments, made in (
        (["evaluate"], "result.json"),
        (["diagnose", "--lags", "5"], "diagnosis.json"),
        (["sample", "-o", str(tmp_path / "drawn.csv"), "--length", "20"], "../drawn.csv"),
        (["report", "-o", str(tmp_path / "report.html")], "../report.html"),
    ):
        shown = command(arguments[0], str(tmp_path / "killed"), *arguments[1:])
        assert shown.wait() == 0, shown.stderr.read()
        assert (tmp_path / "killed" / made).stat().st_size > 0
    drawn = np.loadtxt(tmp_path / "drawn.csv", skiprows=1, ndmin=1)
    assert len(drawn) == 20
    assert np.isfinite(drawn).all()
    stranger = subprocess.run(
        [sys.executable, "-m", "longspan", "evaluate", str(tmp_path / "killed")], capture_output=True, text=True
    )
    assert stranger.returncode == 2
    assert "waves" in stranger.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"activation": "relu"}, "activation"),
        ({"hidden_size": "50"}, "hidden_size"),
        ({"hiden_size": 50}, "did you mean hidden_size"),
        ({"optimizer": "adma"}, "did you mean adam"),
        ({"cell": "gru-of-mine"}, "unknown cell"),
        ({"output": "gaussian"}, "predicts numbers"),
        ({"recipe": "sgd", "config": TrainConfig()}, "one of them"),
        ({"data": 3}, "Dataset"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_call_that_does_not_fit_is_one_error_and_leaves_no_folder(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        longspan.train(**{"data": tiny_music(), **arguments})
    assert not any(tmp_path.iterdir())


def test_an_unknown_split_is_one_error(tmp_path):
    trained = longspan.train(data=tiny_music(), config=tiny_config("sgd+c"), run_dir=tmp_path / "run")
    with pytest.raises(InputError, match="tset"):
        trained.evaluate("tset")


def test_divergence_has_an_exception_of_its_own(tmp_path):
    settings = dataclasses.replace(tiny_config("sgd"), learning_rate=1e38, activation="rectifier")
    with pytest.raises(Diverged, match="diverged"):
        longspan.train(data=tiny_music(), config=settings, run_dir=tmp_path / "run")


@pytest.mark.usefixtures("unchecked")
def test_numbers_of_numpy_are_settings_too():
    assert TrainConfig(hidden_size=np.int64(7), learning_rate=np.float32(0.5)).hidden_size == 7


def test_the_typed_settings_are_those_of_the_config():
    typed = typing.get_type_hints(Settings)
    fields = typing.get_type_hints(TrainConfig)
    own_arguments = {"recipe", "data", "optimizer"}
    assert typed == {name: kind for name, kind in fields.items() if name not in own_arguments}
    assert own_arguments <= set(inspect.signature(longspan.train).parameters)


def test_a_name_means_one_part():
    registry: Registry = Registry("thing", "longspan.models")
    registry.register("a")(len)
    registry.register("a")(len)
    with pytest.raises(InputError, match="'a' is taken by another thing"):
        registry.register("a")(max)


def test_advised_commands_take_the_plugins_of_their_command_along():
    with loaded_plugins(["colorsys"]):
        assert to_paste("resume", "a") == "longspan resume a --plugin colorsys"
        with loaded_plugins(["colorsys", "math"]):  # the environment, which a child inherits, names the first one
            assert to_paste("resume", "a") == "longspan resume a --plugin math"
    assert to_paste("resume", "a") == "longspan resume a"


@pytest.mark.parametrize("plugin", ["nowhere.py", "no_such_module_of_mine"])
def test_a_plugin_that_is_not_there_is_one_error(plugin):
    with pytest.raises(InputError, match="plugin"):
        load_plugin(plugin)
