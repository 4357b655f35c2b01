"""Recipes: the paper's letters become settings, in every combination, and nothing else is taken for a recipe."""

import dataclasses
import itertools
import json

import pytest

from longspan import cli, recipes
from longspan.cli.options import parse_train
from longspan.config import check_output
from longspan.errors import InputError
from longspan.reproduction import tables

COMBINATIONS = ["".join(letters) for count in range(5) for letters in itertools.combinations("clrm", count)]


@pytest.mark.parametrize("letters", COMBINATIONS)
def test_a_letter_changes_what_it_stands_for_and_nothing_else(letters):
    config = recipes.settings("sgd" + ("+" + letters if letters else ""), "mine", "frames")
    assert (config.clip != "none") == ("c" in letters)
    assert (config.leaky_share > 0) == ("l" in letters)
    assert (config.activation == "rectifier") == ("r" in letters)
    assert (config.l1 > 0) == ("r" in letters)
    assert (config.momentum > 0) == ("m" in letters)


@pytest.mark.parametrize(("table", "kind"), [(tables.TABLE1, "keys"), (tables.TABLE2, "symbols")])
def test_every_cell_of_the_paper_is_a_recipe_for_its_data(table, kind):
    for recipe, data in table:
        config = recipes.settings(recipe, data)
        assert config.recipe == recipe
        check_output(config, kind)


def test_order_case_and_the_usual_output_do_not_matter():
    assert recipes.settings("BERNOULLI:sgd+mrc", "jsb") == recipes.settings("sgd+crm", "jsb")


@pytest.mark.parametrize("recipe", ["", "adma", "sgd+", "sgd+cc", "sgd+x", "hf+c", "lstm:sgd", ":sgd", "nade:"])
def test_anything_else_is_refused_with_what_was_expected(recipe):
    with pytest.raises(InputError, match="expected sgd or sgd"):
        recipes.parse(recipe)


@pytest.mark.parametrize(
    ("arguments", "recipe"),
    [([], "nade:sgd+w"), (["--data", "jsb"], "nade:sgd+w"), (["--data", "ptb-words"], "sgd+c")],
)
def test_without_a_recipe_the_data_set_has_its_usual_one(arguments, recipe):
    assert parse_train(arguments).config.recipe == recipe


def test_a_file_may_choose_the_recipe_and_the_command_line_another(tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text('recipe = "sgd+m"\nhidden_size = 6\n')
    chosen = parse_train(["--data", "jsb", "--toml", str(toml)]).config
    assert (chosen.recipe, chosen.momentum, chosen.clip, chosen.hidden_size) == ("sgd+m", 0.9, "none", 6)
    assert parse_train(["sgd+c", "--data", "jsb", "--toml", str(toml)]).config.recipe == "sgd+c"


def test_a_recipe_is_more_than_a_label():
    with pytest.raises(InputError, match="--recipe"):
        parse_train(["--data", "jsb", "--recipe", "sgd"])


@pytest.mark.parametrize("line", ['hidden_size = "x"', "data = 3", "clip = true", 'recipe = "foo"', "activation = 1"])
def test_values_of_another_kind_are_refused(tmp_path, line):
    toml = tmp_path / "mine.toml"
    toml.write_text(line)
    with pytest.raises(InputError):
        parse_train(["--toml", str(toml)])


@pytest.mark.parametrize("recipe", ["nade:sgd+crm", "sgd+clr", "hf", "nade:hf", "sgd+c", "rbm:sgd+c"])
@pytest.mark.parametrize("data", ["jsb", "nottingham", "bach"])
def test_every_setting_is_explained_by_the_last_layer_that_set_it(recipe, data):
    config, explained = recipes.settings(recipe, data), recipes.explain(recipe, data)
    assert {name: origin.value for name, origin in explained.items()} == dataclasses.asdict(config)
    layers = recipes.layers(recipe, data)
    for name, (value, origin) in explained.items():
        setters = [layer for layer in layers if name in layer.values]
        if setters:
            assert (value, origin) == (setters[-1].values[name], setters[-1].origin)
        else:
            assert origin == "default"


@pytest.mark.parametrize(("momentum", "divided"), [(0.9, 10), (0.5, 2), (0.0, 1), (0.95, 20)])
def test_the_rate_follows_the_momentum(momentum, divided):
    plain = recipes.settings("nade:sgd+cr", "jsb").learning_rate
    assert recipes.settings("nade:sgd+crm", "jsb", momentum=momentum).learning_rate == pytest.approx(plain / divided)


def test_the_command_line_says_what_set_what(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text("l1 = 0.001\n")
    asked = ["train", "nade:sgd+crm", "--data", "jsb", "--toml", str(tmp_path / "mine.toml"), "--momentum", "0.5"]
    assert cli.run([*asked, "--explain", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["l1"] == {"value": 0.001, "from": "TOML file"}
    assert shown["momentum"] == {"value": 0.5, "from": "flag"}
    assert shown["learning_rate"]["value"] == pytest.approx(1.5)
    assert shown["seed"]["from"] == "default"
    assert cli.run([*asked, "--explain"]) == 0
    assert "clipping before nade on jsb" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_a_cell_in_front_of_a_recipe_and_as_a_choice_are_the_same():
    named = recipes.settings("lstm,peepholes/nade:sgd+cm", "jsb")
    chosen = recipes.settings("nade:sgd+mc", "jsb", cell="lstm,peepholes")
    assert named == chosen
    assert (named.cell, named.recipe, named.output) == ("lstm,peepholes", "lstm,peepholes/nade:sgd+cm", "nade")
    assert named.activation == "tanh"  # whatever suits the paper's units before NADE
    assert recipes.settings("gru/nade:sgd+cr", "jsb").activation == "rectifier"
    assert recipes.settings("leaky/nade:sgd+crm", "jsb") == recipes.settings("nade:sgd+crm", "jsb")
    assert recipes.explain("gru/sgd+c", "jsb")["activation"].origin == "gru units"


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("lstm/sgd+cl", "the letter l stands for leaky units, which lstm has not"),
        ("lstm,/sgd+c", "cannot be read at"),
        ("/sgd+c", "cannot be read at"),
        ("lstm/sgd+x", "unknown recipe"),
    ],
)
def test_mistakes_in_front_of_a_recipe(recipe, words):
    with pytest.raises(InputError, match=words):
        recipes.parse(recipe)
