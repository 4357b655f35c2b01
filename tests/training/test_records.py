"""The model card: what the folder knows, and again when its scores change."""

import dataclasses
import json
from pathlib import Path

import pytest

import longspan
from longspan.training.records import model_card
from longspan.training.runs import Run
from tests.support.catalog import TINY, tiny_config, tiny_music, tiny_text


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    longspan.train("sgd+c", tiny_music(), run_dir=path, **{**TINY, "max_epochs": 1})
    return path


def test_a_new_run_has_a_card_without_scores(folder: Path):
    card = (folder / "README.md").read_text()
    assert "# sgd+c on tiny" in card
    assert "None yet. `longspan evaluate .` shows them" in card
    assert "1 frame per quarter note" in card


def test_a_result_renews_the_card(folder: Path):
    run = Run.open(folder)
    baselines, splits = {"guessing": {"log_likelihood": -61.0}}, {"train": {"songs": 6, "frames": 1234}}
    with run.locked():
        run.write_result({"test": {"log_likelihood": -7.1234}, "baselines": baselines, "splits": splits})
    card = (folder / "README.md").read_text()
    for expected in ("| this model | -7.123 |", "| guessing | -61.000 |", "6 songs, 1,234 frames", "| weights | "):
        assert expected in card
    weights = sum(array.size for array in run.read_model().values())
    assert f"| weights | {weights:,} |" in card
    assert json.loads((folder / "result.json").read_text())["splits"] == splits


def test_text_says_what_it_knows():
    card = model_card(tiny_config(), tiny_text().record)
    assert "the next character of a text" in card
    assert "5 characters" in card


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("leaky", "4 tanh units"),
        ("gru,size=16", "16 tanh units"),
        ("2xlstm,size=9", "9 + 9 tanh units"),
        ("lstm+gru,size=16,activation=rectifier", "4 tanh + 16 rectifier units"),
    ],
)
def test_the_units_are_those_of_the_layers(cell, shown):
    config = dataclasses.replace(tiny_config(), cell=cell, hidden_size=4, activation="tanh")
    assert config.units == shown
    assert f"| cell | `{cell}`, {shown} |" in model_card(config, tiny_music().record)


EVIL = "![x](http://example.com/x.png) <img src=x> `a` | b [c][d] [e]: _www.example.com me@example.com me-@example.com"


def test_names_out_of_a_folder_are_no_markup_of_the_card():
    """A viewer of Markdown would have fetched the picture."""
    result = {
        "test": {"log_likelihood": -1e59},
        "baselines": {EVIL: {"log_likelihood": None}},
        "splits": {EVIL: {"songs": None, "frames": 12.0}},
        "with_memory": {"memory": EVIL, "test": {}},
    }
    config = dataclasses.replace(tiny_config(), recipe=EVIL, data=EVIL)
    card = model_card(config, tiny_music().record, result=result)
    for markup in ("](", "][", "]:", "://", "www.example", "me@example", "-@example", "<img", "`a`", "| b"):
        assert markup not in card
    assert max(map(len, card.split())) < 40, "a figure has as many digits as a power of ten is high"
    assert "http: //example.com/x.png" in card  # it is shown as text, of which viewers would have made a link
