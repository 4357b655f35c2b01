"""Spaces: what a slot draws is a pure function of seed and slot, within bounds, spread as promised."""

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.stats import qmc

from longspan import recipes
from longspan.config import TrainConfig
from longspan.data import target_kind
from longspan.errors import InputError
from longspan.reproduction import spaces
from longspan.search.space import (
    Choices,
    Count,
    Interval,
    changes,
    define,
    parse_space,
    position,
    positions,
    read_space,
    slot_config,
)


def paper_space(base: TrainConfig) -> dict:
    return spaces.paper_space(base, target_kind(base.data))


def test_slot_0_is_the_recipe_as_it_stands():
    for recipe, data in [("sgd+clrm", "jsb"), ("nade:sgd+crm", "nottingham"), ("sgd+clr", "ptb-words")]:
        base = recipes.settings(recipe, data)
        assert slot_config(base, parse_space(paper_space(base), base), 0) is base


def test_a_rate_that_is_not_called_effective_is_as_it_was_drawn():
    """Spaces of studies from before there were effective rates draw what they did."""
    space = {"learning_rate": {"low": 1e-3, "high": 10.0, "log": True}, "momentum": {"low": 0.5, "high": 0.9}}
    base = TrainConfig()
    config = slot_config(base, parse_space(space, base), 1)
    expected = Interval(1e-3, 10.0, log=True).draw(position(base.seed, 1, "learning_rate"), 1)
    assert config.learning_rate == expected
    space["learning_rate"]["effective"] = True
    slowed = slot_config(base, parse_space(space, base), 1)
    assert slowed.learning_rate == pytest.approx(expected * (1 - config.momentum), rel=1e-3)


def test_sobol_slots_are_scipys_scrambled_sequence():
    names = ["momentum", "learning_rate", "clip"]
    points = qmc.Sobol(3, scramble=True, rng=np.random.default_rng(5)).random_base2(4)
    for slot in range(1, 17):
        place = positions(names, 5, slot, "sobol")
        assert [place[name] for name in sorted(names)] == points[slot - 1].tolist()


def test_sobol_slots_fill_a_space_more_evenly_than_independent_ones():
    names = ["a", "b", "c"]

    def discrepancy(sampling):
        drawn = [[*positions(names, 1, slot, sampling).values()] for slot in range(1, 65)]
        return qmc.discrepancy(drawn)

    assert discrepancy("sobol") < 0.2 * discrepancy("random")


def test_sampling_is_part_of_what_a_study_is_only_where_it_is_not_the_usual_one():
    base, space = TrainConfig(), {"learning_rate": {"low": 1e-3, "high": 1.0, "log": True}}
    usual, sobol = define("a", base, space, "print"), define("a", base, space, "print", sampling="sobol")
    assert usual.identity == "20ef17db"  # as before there was a choice
    assert sobol.identity != usual.identity
    assert usual.config_of(0) == sobol.config_of(0) == base
    assert usual.config_of(1) != sobol.config_of(1)


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
        "from longspan import recipes; from longspan.reproduction.spaces import paper_space;"
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
    fewer = {name: value for name, value in plain.items() if name != "hidden_size"}
    without = slot_config(base, parse_space(fewer, base), 3)
    assert changes(without, here[0]).keys() == {"hidden_size"}


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
    root = Path(__file__).parents[2]
    base = recipes.settings("sgd+clrm", "jsb")
    example = read_space(root / "examples" / "space.toml", base)
    assert slot_config(base, parse_space(example, base), 1).clip == 5.0
    documented = (root / "docs" / "search.md").read_text().split("```toml")[1].split("```")[0]
    assert tomllib.loads(documented).items() <= example.items()


BAD_SPACES = {
    "learning_rat = 1": "cannot search learning_rat: expected some of",
    'data = ["jsb"]': "cannot search data",
    "threads = [1, 2]": "cannot search threads",
    "activation = []": "activation has 0 choices",
    f"hidden_size = {list(range(1, 1002))}": "hidden_size has 1001 choices, expected from 1 to 1000",
    'activation = ["tanhh"]': "activation cannot be 'tanhh'",
    "learning_rate = { low = 1 }": "learning_rate is given as",
    "learning_rate = { low = 1, high = 2, step = 1 }": "learning_rate is given as",
    "learning_rate = { low = 0, high = 1, log = true }": "must begin above 0",
    "learning_rate = { low = 0.1, high = 1, log = 'yes' }": "log must be true or false",
    "learning_rate = { low = 2, high = 1 }": "low must not exceed high",
    "learning_rate = { low = -1, high = 1 }": "learning_rate must be",
    "learning_rate = { low = 'a', high = 1 }": "must be numbers",
    "hidden_size = { low = 1.5, high = 3 }": "must be whole numbers",
    "hidden_size = [1.5]": "hidden_size cannot be 1.5",
    "leak_low = { low = 0.1, high = 0.9 }": "leak_low must not exceed leak_high",
    "momentum = 1.0": "momentum must be",
    "learning_rate = {": "is not TOML",
}


@pytest.mark.parametrize("text", BAD_SPACES)
@pytest.mark.usefixtures("unchecked")
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
