"""The running mean of weights: alone against plain arithmetic, and in the loop against the path it averages."""

import jax
import numpy as np
import pytest

from longspan.evaluation import SplitEvaluator
from longspan.models.parts import split_constants
from longspan.optim.blocks import FirstOrder
from longspan.optim.transforms import running_mean
from longspan.training.loop import train
from longspan.training.runs import Run
from tests.support.catalog import tiny_config, tiny_music


def averaged(path: list[float], reach: float) -> float:
    mean = 0.0
    for made, value in enumerate(path, start=1):
        mean = running_mean(mean, value, made=made, since=1, reach=reach)
    return float(mean)


def test_where_it_starts_is_forgotten():
    assert averaged([5.0] * 4, reach=1000) == 5.0


def test_of_steady_weights_it_lags_by_its_reach():
    assert averaged([float(step) for step in range(1, 2001)], reach=20) == pytest.approx(2000 - 19, abs=1e-2)


def test_it_takes_away_noise_as_a_mean_over_twice_its_reach_does():
    """Of independent noise of variance 1, an exponential mean with step s keeps s / (2 - s)."""
    random = np.random.default_rng(0)
    ends = [averaged(list(random.normal(size=200)), reach=10) for _ in range(300)]
    assert np.var(ends) == pytest.approx(0.1 / 1.9, rel=0.3)


def test_it_never_reaches_back_over_more_than_a_quarter_of_all_updates():
    late = [0.0] * 300 + [1.0] * 100
    assert averaged(late, reach=1e9) == pytest.approx(1 - (300 / 400) ** 4, abs=0.01)


@pytest.fixture(scope="module")
def music():
    return tiny_music()


def start(path, music, **changes) -> Run:
    return Run.create(path, tiny_config("sgd+clm", **changes), music.record, {})


def test_the_loop_judges_and_keeps_the_mean_of_the_path(music, tmp_path, monkeypatch):
    """Averaging changes no update, so an unaveraged run of the same seed shows the path."""
    changes = {"learning_rate": 0.1, "learning_rate_schedule": "constant", "max_epochs": 4}
    path = []
    advance = FirstOrder.advance

    def recorded(self, params, state, carry, chunks, count, context):
        params, *rest = advance(self, params, state, carry, chunks, count, context)
        path.append((count, [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(params)]))
        return params, *rest

    with monkeypatch.context() as patched:
        patched.setattr(FirstOrder, "advance", recorded)
        train(start(tmp_path / "plain", music, **changes), music)
    made, mean = 0, path[0][1]
    for count, weights in path:
        made += count
        share = min(1.0, count / min(30, made / 4))
        mean = [old + share * (new - old) for old, new in zip(mean, weights, strict=True)]

    run = start(tmp_path / "averaged", music, averaging=30.0, **changes)
    outcome = train(run, music)
    found = jax.tree.leaves(split_constants(outcome.model)[0])
    assert run.metrics()[-1]["best"]
    for ours, theirs in zip(found, mean, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    score = SplitEvaluator(music, "valid").log_likelihood(outcome.model)
    assert run.metrics()[-1]["valid_log_likelihood"] == pytest.approx(score, rel=1e-6)


@pytest.mark.parametrize("changes", [{}, {"learning_rate": 300.0, "plateau_epochs": 1, "max_epochs": 6}])
def test_an_averaged_run_stopped_after_every_block_ends_in_the_same_bytes(changes, music, tmp_path):
    """Also where the rate is so large that the best weights, which are a mean, are restored."""
    whole = start(tmp_path / "whole", music, averaging=8.0, **changes)
    train(whole, music)
    assert changes == {} or not all(record["best"] for record in whole.metrics())
    cut = start(tmp_path / "cut", music, averaging=8.0, **changes)
    while train(Run.open(cut.path), music, interrupted=lambda: True).status == "interrupted":
        pass
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes()
