"""Spaces: what a slot draws is a pure function of seed and slot, within bounds, spread as promised."""

import dataclasses
import itertools
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from longspan import paper, recipes
from longspan.config import TrainConfig
from longspan.data import target_kind
from longspan.errors import InputError
from longspan.search import paper_spaces
from longspan.search.refinement import space_near
from longspan.search.space import Choices, Count, Interval, changes, parse_space, position, read_space, slot_config

PAPER_BOUNDS = {
    "hidden_size": (100, 400),
    "learning_rate": (1e-4, 1e-1),
    "momentum": (1e-3, 0.95),
    "l1": (1e-6, 1e-3),
    "leak_low": (0.02, 0.2),
    "leak_high": (0.02, 0.2),
    "recurrent_scale": (0.2, 1.0),
    "input_scale": (0.05, 0.5),
}
MUSIC_RECIPES = ["sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm", "nade:sgd", "nade:sgd+cr", "nade:sgd+crm"]


def paper_space(base: TrainConfig) -> dict:
    return paper_spaces.paper_space(base, target_kind(base.data))


def test_slot_0_is_the_recipe_as_it_stands():
    for recipe, data in [("sgd+clrm", "jsb"), ("nade:sgd+crm", "nottingham"), ("sgd+clr", "ptb-words")]:
        base = recipes.settings(recipe, data)
        assert slot_config(base, parse_space(paper_space(base), base), 0) is base


@pytest.mark.parametrize("recipe", MUSIC_RECIPES)
def test_music_draws_stay_within_the_papers_intervals_and_its_letters(recipe):
    base = recipes.settings(recipe, "jsb")
    space = parse_space(paper_space(base), base)
    drawn = [slot_config(base, space, slot) for slot in range(1, 200)]
    for name, (low, high) in PAPER_BOUNDS.items():
        values = [getattr(config, name) for config in drawn]
        if name in space:
            assert low <= min(values) <= max(values) <= high
            assert len(set(values)) > 50
    letters = recipe.partition("+")[2]
    assert ("momentum" in space) == ("m" in letters)
    assert ("l1" in space) == ("r" in letters)
    assert {config.activation for config in drawn} == ({"rectifier"} if "r" in letters else {"tanh", "sigmoid"})
    assert {config.leaky_share for config in drawn} == ({0.0, 0.25, 0.5} if "l" in letters else {0.0})
    assert {config.clip for config in drawn} == {base.clip}
    assert all(config.leak_low <= config.leak_high for config in drawn)
    assert {config.learning_rate_schedule for config in drawn} == {"constant", "plateau", "inverse"}


def test_text_draws_come_from_the_grids():
    for data, rates in [("ptb-words", {0.04, 0.1, 0.4, 1.0, 4.0}), ("ptb-chars", {0.1, 0.5, 1.5})]:
        base = recipes.settings("sgd+cl", data)
        space = parse_space(paper_space(base), base)
        drawn = [slot_config(base, space, slot) for slot in range(1, 100)]
        assert {config.learning_rate for config in drawn} == rates
        assert {config.hidden_size for config in drawn} == {base.hidden_size}
        assert {config.learning_rate_schedule for config in drawn} == {base.learning_rate_schedule}


@pytest.mark.parametrize("recipe", sorted({row for row, _ in paper.TABLE1}))
def test_every_row_we_have_has_a_space(recipe):
    try:
        base = recipes.settings(recipe, "jsb")
    except InputError:
        pytest.skip(f"{recipe} is not a recipe yet")
    space = parse_space(paper_space(base), base)
    assert slot_config(base, space, 3) != base


def test_positions_are_uniform_and_independent():
    positions = np.array([[position(7, slot, name) for name in ("a", "b")] for slot in range(4000)])
    for column in positions.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(positions.T)[0, 1]) < 0.05
    assert position(7, 1, "a") != position(8, 1, "a")


def test_logarithmic_intervals_are_even_in_the_logarithm():
    values = [Interval(1e-4, 1e-1, log=True).draw(position(0, slot, "x"), slot) for slot in range(3000)]
    scaled = (np.log10(values) + 4) / 3
    assert stats.kstest(scaled, "uniform").pvalue > 1e-3


def test_whole_intervals_reach_both_ends():
    values = [Interval(1, 3, whole=True).draw(position(0, slot, "x"), slot) for slot in range(100)]
    assert set(values) == {1, 2, 3}
    assert all(isinstance(value, int) for value in values)
    logarithmic = [Interval(2, 64, log=True, whole=True).draw(at, 0) for at in (0.0, 0.5, 1 - 1e-16)]
    assert logarithmic == [2, 11, 64]


def test_counts_and_choices():
    assert [Count(5).draw(0.3, slot) for slot in (0, 1, 2)] == [5, 6, 7]
    assert [Choices(("a", "b", "b")).draw(at, 0) for at in (0.0, 0.34, 0.99)] == ["a", "b", "b"]


def test_slots_depend_on_seed_and_slot_alone():
    """Another process, with another hash seed, with the space written in another order, draws the same."""
    base = recipes.settings("sgd+clrm", "jsb")
    plain = paper_space(base)
    backwards = dict(reversed(plain.items()))
    probe = (
        "from longspan import recipes; from longspan.search.paper_spaces import paper_space;"
        "from longspan.search.space import parse_space, slot_config;"
        "base = recipes.settings('sgd+clrm', 'jsb');"
        "print([slot_config(base, parse_space(paper_space(base, 'frames'), base), slot) for slot in (3, 1, 2)])"
    )
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    here = [slot_config(base, parse_space(backwards, base), slot) for slot in (3, 1, 2)]
    assert out.strip() == str(here)
    other = dataclasses.replace(base, seed=1)
    assert slot_config(other, parse_space(plain, other), 1).learning_rate != here[1].learning_rate
    # A setting more or less leaves the others as they are.
    fewer = {name: value for name, value in plain.items() if name != "momentum"}
    without = slot_config(base, parse_space(fewer, base), 3)
    assert changes(without, here[0]).keys() == {"momentum"}


def test_a_users_own_space(tmp_path):
    file = tmp_path / "space.toml"
    file.write_text(
        'learning_rate = { low = 1e-3, high = 1, log = true }\nactivation = ["tanh", "sigmoid"]\n'
        'clip = "auto"\n\n[hidden_size]\nlow = 10\nhigh = 20\n'
    )
    base = TrainConfig()
    space = parse_space(read_space(file, base), base)
    config = slot_config(base, space, 1)
    assert config.clip == "auto"
    assert 10 <= config.hidden_size <= 20
    assert 1e-3 <= config.learning_rate <= 1


def test_the_space_among_the_examples_and_in_the_docs():
    root = Path(__file__).parent.parent
    base = recipes.settings("sgd+clrm", "jsb")
    example = read_space(root / "examples" / "space.toml", base)
    assert slot_config(base, parse_space(example, base), 1).clip == 5.0
    documented = (root / "docs" / "search.md").read_text().split("```toml")[1].split("```")[0]
    assert tomllib.loads(documented).items() <= example.items()


BAD_SPACES = {
    "learning_rat = 1": "cannot search learning_rat: expected some of",
    'data = ["jsb"]': "cannot search data",
    "threads = [1, 2]": "cannot search threads",
    "activation = []": "activation has no choices",
    'activation = ["tanhh"]': "activation cannot be 'tanhh'",
    "learning_rate = { low = 1 }": "learning_rate is given as",
    "learning_rate = { low = 1, high = 2, step = 1 }": "learning_rate is given as",
    "learning_rate = { low = 0, high = 1, log = true }": "must begin above 0",
    "learning_rate = { low = 0.1, high = 1, log = 'yes' }": "log must be true or false",
    "learning_rate = { low = 2, high = 1 }": "low must not exceed high",
    "learning_rate = { low = -1, high = 1 }": "--learning-rate must be",
    "learning_rate = { low = 'a', high = 1 }": "must be numbers",
    "hidden_size = { low = 1.5, high = 3 }": "must be whole numbers",
    "hidden_size = [1.5]": "hidden_size cannot be 1.5",
    "leak_low = { low = 0.1, high = 0.9 }": "leak_low must not exceed leak_high",
    "momentum = 1.0": "--momentum must be",
    "learning_rate = {": "is not TOML",
}


@pytest.mark.parametrize("text", BAD_SPACES)
def test_bad_spaces_are_one_clear_line(text, tmp_path):
    file = tmp_path / "space.toml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_space(file, TrainConfig())
    assert BAD_SPACES[text] in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_space_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_space(tmp_path / "none.toml", TrainConfig())


def test_leaks_are_drawn_as_one_interval():
    base = recipes.settings("sgd+cl", "jsb")
    space = parse_space(paper_space(base), base)
    drawn = [slot_config(base, space, slot) for slot in range(1, 50)]
    ends = {name: dimension for name, dimension in space.items() if name in ("leak_low", "leak_high")}
    raw = [[end.draw(position(base.seed, slot, name), slot) for name, end in ends.items()] for slot in range(1, 50)]
    assert any(low > high for low, high in raw)
    for config, both in zip(drawn, raw, strict=True):
        assert [config.leak_low, config.leak_high] == sorted(both)
    assert all(a.leak_low != b.leak_low for a, b in itertools.pairwise(drawn))


def test_near_a_winner_the_space_is_narrow_and_holds_it():
    space = {
        "learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
        "hidden_size": {"low": 100, "high": 400},
        "momentum": {"low": 1e-3, "high": 0.95},
        "l1": {"low": 1e-6, "high": 1e-3, "log": True},
        "activation": ["tanh", "sigmoid"],
    }
    winner = TrainConfig(learning_rate=0.7, hidden_size=390, momentum=0.9, activation="sigmoid")  # and no L1
    near = space_near(winner, space)
    assert near == {
        "learning_rate": {"low": 0.248, "high": 1.97, "log": True},
        "hidden_size": {"low": 345, "high": 400},
        "momentum": {"low": 0.758, "high": 0.95},
    }
    for slot in range(1, 20):
        drawn = slot_config(winner, parse_space(near, winner), slot)
        assert (drawn.activation, drawn.l1) == ("sigmoid", 0.0)
    beyond = space_near(TrainConfig(hidden_size=450), {"hidden_size": {"low": 100, "high": 400}})
    assert beyond == {"hidden_size": {"low": 405, "high": 450}}
