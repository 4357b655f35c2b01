"""Any cell with any output on any data: scored, sampled, inspected, and descended by the gradient it has."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.dataset import Chunks
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.models.model import SequenceModel
from longspan.models.parts import Cell, split_constants
from longspan.probes.gradients import gradient_by_lag
from longspan.probes.steps import steps_of, walk
from longspan.sampling.generate import generate
from longspan.training.setup import initial_model
from tests.contracts.parts import MODELS, WALKS, Parts, load

LAGS = 4


def make(parts: Parts) -> SequenceModel:
    data = load(parts.data)
    return initial_model(parts.config, data.record, data.base_rates())


def chunk_of(parts: Parts) -> Chunks:
    """The first of the training chunks, on the device."""
    chunks = load(parts.data).chunks("train", 10, 2)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), chunks)


def loss(model: SequenceModel, chunk: Chunks):
    _, hidden = model.run(model.start(2), chunk.inputs, chunk.resets, chunk.lengths)
    losses = model.output.loss(hidden, chunk.targets, chunk.lengths, key=jax.random.key(0))
    return jnp.sum(jnp.where(chunk.mask, losses, 0.0))


def with_generic_run(model: SequenceModel) -> SequenceModel:
    """The same model, its cell carried through time by `Cell.run` and one step at a time."""

    class Generic(Cell):
        cell: Cell

        def initial_state(self):
            return self.cell.initial_state()

        def step(self, state, inputs):
            return self.cell.step(state, inputs)

        def output(self, state):
            return self.cell.output(state)

    return eqx.tree_at(lambda model: model.cell, model, Generic(model.cell))


@pytest.mark.parametrize("parts", MODELS)
def test_a_model_is_scored_no_worse_than_far_from_its_base_rates(parts):
    data = load(parts.data)
    scores = SplitEvaluator(data, "valid").scores(make(parts))
    asked = data.record.size
    assert -4 * asked < scores.log_likelihood < 0 or parts.output == "mixture"
    assert {name for name in data.metrics if getattr(scores, name) is None} == set()
    if scores.error_rate is not None:
        assert 0 <= scores.error_rate <= 1


@pytest.mark.parametrize("parts", MODELS)
def test_the_gradient_is_the_slope_of_the_loss(parts):
    if parts.output == "quick-rbm":
        pytest.skip("contrastive divergence is the gradient of no function")
    model, chunk = make(parts), chunk_of(parts)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    value = jax.jit(lambda params: loss(eqx.combine(params, static), chunk))
    gradient = jax.grad(value)(params)
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    direction = jax.tree.map(lambda leaf: leaf / norm, gradient)

    def moved(step: float) -> float:
        return float(value(jax.tree.map(lambda leaf, way: leaf + step * way, params, direction)))

    assert (moved(0.01) - moved(-0.01)) / 0.02 == pytest.approx(float(norm), rel=0.01)


@pytest.mark.parametrize("parts", WALKS)
def test_a_chunk_is_run_as_if_step_by_step(parts):
    chunk = chunk_of(parts)

    def value_and_gradient(model):
        params, constants = split_constants(model)
        return jax.jit(jax.value_and_grad(lambda params: loss(eqx.combine(params, constants), chunk)))(params)

    found = jax.tree.leaves(value_and_gradient(make(parts)))
    for fast, slow in zip(found, jax.tree.leaves(value_and_gradient(with_generic_run(make(parts)))), strict=True):
        np.testing.assert_allclose(fast, slow, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("parts", MODELS)
def test_gradients_are_followed_back_in_time(parts):
    model, steps = make(parts), steps_of(load(parts.data), "valid", 300)
    norms = gradient_by_lag(model, steps, walk(model, steps), lags=LAGS).norms
    assert len(norms) == LAGS + 1
    assert np.isfinite(norms).all()
    assert norms[0] > 0


@pytest.mark.parametrize("parts", MODELS)
def test_samples_are_what_the_data_could_hold_or_are_refused(parts):
    data, model = load(parts.data), make(parts)
    if data.record.kind not in ("music", "text") and not data.record.next_step:
        with pytest.raises(InputError, match="cannot be sampled"):
            data.record.kind_to_sample()
        return
    drawn = generate(model, length=6, num=2, key=jax.random.key(0), end_token=data.record.end_token)
    true = data.chunks("train", 6, 2).targets[0]
    assert drawn.shape == (2, 6, *true.shape[2:])
    assert drawn.dtype == true.dtype
    if data.record.predicted == "numbers":
        assert np.isfinite(drawn).all()
        return
    assert drawn.min() >= 0
    assert drawn.max() < (2 if data.record.kind == "music" else data.record.size)
