"""The command line as a person meets it: what it prints, its exit codes, and one clear line for bad input."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from longspan import train
from longspan.cli import run, with_flags
from longspan.data.archive import write_set
from tests.support.catalog import tiny_music

SMALL = ["--hidden-size", "8", "--chunk-length", "10", "--max-epochs", "2", "--learning-rate", "0.05"]


@pytest.fixture(scope="module")
def data_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    write_set(path, tiny_music())
    return path


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled"))}


@pytest.fixture(scope="module")
def trained(data_file, environment, tmp_path_factory) -> tuple[Path, str]:
    """A run folder and what training it printed."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", "sgd+clm", "--data", str(data_file), "--run-dir", str(folder), *SMALL]
    return folder, longspan(arguments, environment).stdout


def longspan(arguments, environment, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "longspan", *arguments], env=environment, capture_output=True, text=True, **options
    )


def complaint(capsys, arguments: list[str]) -> str:
    """The one line a bad command gets."""
    assert run(arguments) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert error.startswith("longspan: ")
    assert error.count("\n") == 1
    return error


def test_training_ends_in_scores_beside_baselines_and_what_to_do_next(trained):
    folder, output = trained
    for expected in ("this model", "one rate per key", "log-likelihood", f"longspan evaluate {folder}"):
        assert expected in output
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "environment.json",
        "result.json",
        "README.md",
    }


def test_evaluate_prints_one_json_document_and_nothing_else(trained, environment):
    folder, _ = trained
    finished = longspan(["evaluate", str(folder), "--split", "test", "--json"], environment)
    scores = json.loads(finished.stdout)
    assert finished.returncode == 0
    assert scores["log_likelihood"] == json.loads((folder / "result.json").read_text())["test"]["log_likelihood"]
    assert 0 < scores["accuracy_union"] <= scores["accuracy"] <= 1
    assert scores["references"]["one_rate_per_key"]["log_likelihood"] < 0


def test_settings_come_from_recipe_then_toml_then_flags(data_file, environment, tmp_path):
    toml = tmp_path / "settings.toml"
    toml.write_text("hidden_size = 6\nlearning_rate = 0.07\n")
    folder = tmp_path / "run"
    arguments = ["train", "sgd+r", "--data", str(data_file), "--run-dir", str(folder), "--toml", str(toml)]
    finished = longspan([*arguments, "--hidden-size", "5", "--max-epochs", "1", "--json"], environment)
    assert finished.returncode == 0, finished.stderr
    config = json.loads((folder / "config.json").read_text())["config"]
    assert (config["hidden_size"], config["learning_rate"], config["activation"]) == (5, 0.07, "rectifier")


def test_a_run_stopped_by_time_is_saved_and_resuming_ends_like_a_run_without_one(
    data_file, environment, tmp_path, trained
):
    folder = tmp_path / "run"
    arguments = ["train", "sgd+clm", "--data", str(data_file), "--run-dir", str(folder), *SMALL]
    finished = longspan([*arguments, "--stop-after", "0.001s", "--json"], environment)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["status"] == "interrupted"
    resumed = longspan(["resume", str(folder), "--json"], environment)
    assert resumed.returncode == 0, resumed.stderr
    assert (folder / "metrics.jsonl").read_bytes() == (trained[0] / "metrics.jsonl").read_bytes()
    for flag in ("--stop-after", "--budget"):
        refused = longspan([*arguments, flag, "soon", "--json"], environment)
        assert refused.stderr == (
            f"longspan: {flag} must be a number and one of s, m, h, d, such as 90m or 2h: got 'soon'\n"
        )


def test_a_budget_that_is_too_short_is_refused_before_a_folder_is_made(data_file, environment, tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", "sgd+clm", "--data", str(data_file), "--run-dir", str(folder), *SMALL, "--budget", "0.1s"]
    refused = longspan(arguments, environment)
    assert refused.returncode == 2
    assert "allow more time" in refused.stderr
    assert not folder.exists()


@pytest.mark.parametrize(
    ("message", "fields", "shown"),
    [
        ("hidden_size must be above 0", ["hidden_size"], "--hidden-size must be above 0"),
        ("output nade does not predict", [], "output nade does not predict"),
        ("cores must be cores of it", ["cores"], "--cores must be cores of it"),
        ("/a/run_dir is full, run_dir names another", ["run_dir"], "/a/run_dir is full, --run-dir names another"),
        ("lower l1 or clip", ["l1", "clip"], "lower --l1 or --clip"),
    ],
)
def test_fields_become_flags_where_the_command_line_shows_a_message(message, fields, shown):
    assert with_flags(message, fields) == shown


def test_a_diverged_run_has_its_own_exit_code_and_advice(data_file, environment, tmp_path):
    arguments = ["train", "sgd+r", "--data", str(data_file), "--run-dir", str(tmp_path / "run"), *SMALL]
    finished = longspan([*arguments, "--learning-rate", "1e30"], environment)
    assert finished.returncode == 3
    assert "update" in finished.stderr
    assert "--learning-rate" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_disk_that_fills_up_ends_in_one_line_and_a_run_that_can_be_resumed(data_file, environment, tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", "sgd+c", "--data", str(data_file), "--run-dir", str(folder), *SMALL, "--hidden-size", "64"]

    def limit_file_size():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    without_cache = {**environment, "JAX_ENABLE_COMPILATION_CACHE": "0"}
    finished = longspan([*arguments, "--json"], without_cache, preexec_fn=limit_file_size)
    assert finished.returncode == 2
    assert "cannot write" in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr
    assert not list(folder.glob("checkpoints/[0-9]*"))
    assert not list(folder.glob("**/.*.part"))
    assert longspan(["resume", str(folder), "--json"], environment).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "hints"),
    [
        (["trian"], ["trian", "train"]),
        (["train", "sgd+x"], ["sgd+x", "c, l, r, m"]),
        (["train", "--learning-rate", "-1"], ["--learning-rate", "-1"]),
        (["train", "--momentum", "1"], ["--momentum", "below 1"]),
        (["train", "--leak-low", "0.5", "--leak-high", "0.1"], ["--leak-low", "0.5"]),
        (["train", "--checkpoint-seconds", "nan"], ["--checkpoint-seconds", "nan"]),
        (["train", "--hiden-size", "5"], ["--hiden-size", "did you mean --hidden-size?", "longspan train --help"]),
        (["train", "--hidden-size", "x"], ["--hidden-size: expected a whole number, got 'x'"]),
        (["train", "--learning-rate", "fast"], ["--learning-rate: expected a number, got 'fast'"]),
        (["train", "--hidden-size"], ["missing value", "--hidden-size"]),
        (["train", "--activation", "relu"], ["'relu'", "rectifier"]),
        (["data", "import"], ["PATH", "--name"]),
        (["train", "--toml", "nowhere.toml"], ["nowhere.toml"]),
        (["train", "--data", "jbs"], ["jbs", "did you mean 'jsb'"]),
        (["train", "nade:sgd", "--data", "ptb-chars"], ["nade", "symbols"]),
        (["resume", "nowhere"], ["nowhere", "config.json"]),
        (["evaluate", "nowhere"], ["nowhere", "config.json"]),
        (["data", "info", "nowhere.npz"], ["nowhere.npz"]),
        (["data", "lst"], ["lst", "list"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_words_get_one_line(arguments, hints, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "ptb-chars" in arguments and not os.environ.get("LONGSPAN_DATA"):
        pytest.skip("LONGSPAN_DATA does not name a folder with the benchmark files")
    error = complaint(capsys, arguments)
    for hint in hints:
        assert hint in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_midi_files(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no music files" in complaint(capsys, ["train", "--data", str(tmp_path / "empty")])


def test_only_truncated_midi_files(capsys, tmp_path):
    (tmp_path / "broken.mid").write_bytes(b"MThd\x00\x00\x00\x06\x00\x01\x00")
    error = complaint(capsys, ["data", "import", str(tmp_path), "--name", "mine", "--data-dir", str(tmp_path / "data")])
    assert "broken.mid" in error
    assert not (tmp_path / "data").exists()


def test_training_on_a_text_ends_in_scores_beside_n_grams(capsys, tmp_path):
    (tmp_path / "story.txt").write_text("the cat sat on the mat\nand the dog sat by it\n" * 40)
    arguments = ["train", "--data", str(tmp_path / "story.txt"), "--run-dir", str(tmp_path / "run"), *SMALL]
    assert run(arguments) == 0
    assert "-gram, Kneser-Ney" in capsys.readouterr().out
    assert "baselines" in json.loads((tmp_path / "run" / "result.json").read_text())


def test_a_text_of_one_line(capsys, tmp_path):
    (tmp_path / "short.txt").write_text("only this\n")
    assert "line" in complaint(capsys, ["train", "--data", str(tmp_path / "short.txt")])


def test_a_benchmark_with_the_wrong_checksum(capsys, tmp_path):
    (tmp_path / "JSB_Chorales.mat").write_bytes(b"not the rolls")
    error = complaint(capsys, ["train", "--data", "jsb", "--data-dir", str(tmp_path)])
    assert "JSB_Chorales.mat" in error
    assert "ac0e608527cc411c" in error


def test_a_folder_that_cannot_be_written(capsys, data_file, tmp_path):
    (tmp_path / "file").write_text("")
    error = complaint(capsys, ["train", "--data", str(data_file), "--run-dir", str(tmp_path / "file" / "run")])
    assert "cannot write" in error


def test_a_run_folder_that_is_taken(capsys, data_file, trained):
    folder, _ = trained
    before = (folder / "config.json").read_bytes()
    error = complaint(capsys, ["train", "--data", str(data_file), "--run-dir", str(folder)])
    assert f"longspan resume {folder}" in error
    assert (folder / "config.json").read_bytes() == before


def test_fewer_epochs_than_a_run_made_are_refused_by_the_name_of_the_flag(capsys, trained):
    folder, _ = trained
    before = (folder / "config.json").read_bytes()
    made = len((folder / "metrics.jsonl").read_text().splitlines())
    error = complaint(capsys, ["resume", str(folder), "--max-epochs", str(made - 1)])
    assert f"has made {made} epochs: expected --max-epochs of at least {made}, got {made - 1}" in error
    assert (folder / "config.json").read_bytes() == before


def test_data_that_changed_under_a_run(capsys, trained, tmp_path):
    folder, _ = trained
    data_path = Path(json.loads((folder / "config.json").read_text())["config"]["data"])
    original = data_path.read_bytes()
    try:
        write_set(data_path, tiny_music(seed=1))
        assert "have changed" in complaint(capsys, ["evaluate", str(folder)])
    finally:
        data_path.write_bytes(original)


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_data_of_a_users_own_that_are_not_there_are_told_from_a_folder_of_their_name(
    command, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    settings = {"hidden_size": 8, "chunk_length": 10, "block": 2, "max_epochs": 1}
    train("sgd+c", tiny_music(), run_dir="tiny", **settings)  # data and run folder have the same name
    assert run([command, "tiny"]) == 2
    said = capsys.readouterr().err
    assert "the data 'tiny' of tiny cannot be loaded" in said
    assert "comes with its module (--plugin)" in said
    assert "handed in again, from Python" in said


def test_damaged_weights_are_named(capsys, trained, environment):
    folder, _ = trained
    original = (folder / "model.safetensors").read_bytes()
    try:
        (folder / "model.safetensors").write_bytes(original[:100])
        finished = longspan(["evaluate", str(folder)], environment)
    finally:
        (folder / "model.safetensors").write_bytes(original)
    assert finished.returncode == 2
    assert "model.safetensors does not have its checksum" in finished.stderr


def test_doctor_tells_versions_kernels_and_data_as_json(environment):
    findings = json.loads(longspan(["doctor", "--json"], environment).stdout)
    assert findings["kernels"]["kernels"] in ("native", "xla")
    assert findings["versions"]["jax"]
    assert all(findings["writable"].values())
    assert "None" not in longspan(["doctor"], environment).stdout


def test_data_info_as_json(data_file, capsys):
    assert run(["data", "info", str(data_file), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["splits"]["train"]["songs"] == 6
    assert summary["baselines"]["key_rates_log_likelihood"] > summary["baselines"]["one_rate_log_likelihood"]


def test_bash_completes_commands_and_flags(tmp_path):
    """In a bash of its own, with a `longspan` that knows one command."""
    script = subprocess.run([sys.executable, "-m", "longspan", "completion", "bash"], capture_output=True, text=True)
    (tmp_path / "longspan").write_text("#!/bin/sh\necho '--data STR  --from RUN'\n")
    (tmp_path / "longspan").chmod(0o755)
    asks = """
        COMP_WORDS=(longspan tra); COMP_CWORD=1; _longspan; echo "${COMPREPLY[@]}"
        COMP_WORDS=(longspan train --f); COMP_CWORD=2; _longspan; echo "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(
        ["bash", "-c", script.stdout + asks], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert told.stdout.split() == ["train", "--from"], told.stderr
