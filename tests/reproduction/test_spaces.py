"""The paper's spaces, and the part of a space around a winner."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

from longspan import recipes
from longspan.config import TrainConfig
from longspan.data import target_kind
from longspan.errors import InputError
from longspan.reproduction import spaces, tables
from longspan.search.space import parse_space, position, slot_config
from longspan.training.setup import initial_model
from longspan.training.state import to_named
from tests.support.catalog import tiny_music

BOUNDS = {
    "hidden_size": (100, 400),
    "momentum": (1e-3, 0.95),
    "l1": (1e-6, 1e-3),
    "leak_low": (0.02, 0.2),
    "leak_high": (0.02, 0.2),
    "recurrent_scale": (0.2, 1.0),
    "input_scale": (0.05, 0.5),
}
MUSIC_RECIPES = ["sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm", "nade:sgd", "nade:sgd+cr", "nade:sgd+crm"]


def paper_space(base: TrainConfig) -> dict:
    return spaces.paper_space(base, target_kind(base.data))


@pytest.mark.parametrize("recipe", MUSIC_RECIPES)
def test_music_draws_stay_within_their_intervals_and_letters(recipe):
    base = recipes.settings(recipe, "jsb")
    space = parse_space(paper_space(base), base)
    drawn = [slot_config(base, space, slot) for slot in range(1, 200)]
    for name, (low, high) in BOUNDS.items():
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


@pytest.mark.parametrize(
    ("recipe", "data"),
    [(recipe, "jsb") for recipe in MUSIC_RECIPES] + [("sgd+cl", "ptb-words"), ("sgd+cl", "ptb-chars")],
)
def test_effective_rates_are_even_in_their_logarithm_from_a_thousandth_to_ten(recipe, data):
    """With momentum each gradient acts 1 / (1 - momentum) times, so that is what the rate is divided by."""
    base = recipes.settings(recipe, data)
    space = parse_space(paper_space(base), base)
    drawn = [slot_config(base, space, slot) for slot in range(1, 400)]
    effective = np.array([config.learning_rate / (1 - config.momentum) for config in drawn])
    assert stats.kstest((np.log10(effective) + 3) / 4, "uniform").pvalue > 1e-3
    if data != "jsb":
        assert {config.hidden_size for config in drawn} == {base.hidden_size}
        assert {config.learning_rate_schedule for config in drawn} == {base.learning_rate_schedule}


def test_hessian_free_searches_no_rate_and_a_summed_loss_the_papers_own():
    assert "learning_rate" not in paper_space(recipes.settings("hf", "jsb"))
    summed = dataclasses.replace(recipes.settings("sgd+c", "jsb"), loss="sum")
    assert paper_space(summed)["learning_rate"] == {"low": 1e-4, "high": 1e-1, "log": True}


@pytest.mark.parametrize("recipe", sorted({row for row, _ in tables.TABLE1}))
def test_every_row_we_have_has_a_space(recipe):
    try:
        base = recipes.settings(recipe, "jsb")
    except InputError:
        pytest.skip(f"{recipe} is not a recipe yet")
    space = parse_space(paper_space(base), base)
    assert slot_config(base, space, 3) != base


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


@pytest.mark.parametrize("cell", ["lstm", "gru", "2xlstm", "lstm+leaky", "leaky", "delayed"])
def test_gated_cells_keep_their_activation_and_layers_draw_the_dropout_between_them(cell):
    base = recipes.settings(f"{cell}/nade:sgd+cm", "jsb")
    space = parse_space(paper_space(base), base)
    drawn = [slot_config(base, space, slot) for slot in range(1, 50)]
    gated = cell not in ("leaky", "delayed")
    assert {config.activation for config in drawn} == ({base.activation} if gated else {"tanh", "sigmoid"})
    assert len({config.recurrent_scale for config in drawn}) > 40
    layered = cell in ("2xlstm", "lstm+leaky")
    assert (len({config.layer_dropout for config in drawn}) > 40) == layered
    assert {config.cell for config in drawn} == {cell}


@pytest.mark.parametrize(
    ("cell", "ignored"), [("lru", True), ("embedding", True), ("lstm", False), ("embedding+gru", False)]
)
def test_a_scale_that_no_layer_reads_is_not_searched(cell, ignored):
    """By the weights themselves: with a scale that is ignored they are the same."""
    base, music = recipes.settings(f"{cell}/sgd+c", "jsb"), tiny_music()
    scaled = [dataclasses.replace(base, hidden_size=6, recurrent_scale=scale) for scale in (0.3, 0.9)]
    weights = [to_named(initial_model(config, music.record, music.base_rates())) for config in scaled]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0]) == ignored
    assert ("recurrent_scale" in paper_space(base)) == (not ignored)


@pytest.mark.parametrize(
    ("recipe", "data"), [("embedding+lstm/sgd+c", "ptb-words"), ("lstm/sgd+c", "ptb-chars"), ("lstm/sgd+cm", "jsb")]
)
def test_gated_cells_on_text_draw_larger_rates(recipe, data):
    base = recipes.settings(recipe, data)
    space = parse_space(paper_space(base), base)
    drawn = [slot_config(base, space, slot) for slot in range(1, 200)]
    rates = np.array([config.learning_rate / (1 - config.momentum) for config in drawn])
    low, high = (1e-3, 10) if data == "jsb" else (1, 50)
    assert low <= min(rates) < 1.5 * low < high / 1.5 < max(rates) <= 1.001 * high
    if data != "jsb":
        assert low < base.learning_rate < high
