"""Gradient profiles against explicit products of Jacobians, and models whose gradients vanish or explode by design."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.cli.inspect import _bar as bar
from longspan.cli.inspect import _show as show_flow
from longspan.diagnostics import gradient_flow, longest_chunk
from longspan.models.model import build
from tests.support.catalog import tiny_config, tiny_music


@pytest.fixture
def problem():
    data = tiny_music()
    model = build(tiny_config("sgd+cl", output_scale=0.5), 88, data.base_rates(), key=jax.random.key(0))
    return model, longest_chunk(data, "valid", 5)


def test_profile_equals_explicit_derivatives_of_every_loss_by_every_earlier_state(problem):
    model, chunk = problem
    length = int(chunk.lengths)
    inputs, targets = jnp.asarray(chunk.inputs[:, 0]), jnp.asarray(chunk.targets)

    def loss_of_step(nudge, step, origin):
        """Loss of `step` when the state after step `origin` is nudged."""
        state = model.cell.initial_state()
        for now in range(step + 1):
            state = model.cell.step(state, inputs[now])
            if now == origin:
                state = state + nudge
        hidden = jnp.zeros((length, 1, len(state))).at[step, 0].set(state)
        return model.output.loss(hidden, targets[:length], length, key=None)[step, 0]

    expected = []
    for lag in range(4):
        norms = [np.linalg.norm(jax.grad(loss_of_step)(jnp.zeros(8), step, step - lag)) for step in range(lag, length)]
        expected.append(np.mean(norms))
    found = gradient_flow(model, chunk, lags=3).profile
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize(("scale", "verdict"), [(0.3, "vanish"), (3.0, "grow")])
def test_a_linear_like_network_vanishes_or_explodes_with_its_spectral_radius(scale, verdict, problem):
    model, chunk = problem
    cell = dataclasses.replace(
        model.cell,
        recurrent=scale * jnp.eye(8),
        input_weights=jnp.zeros((88, 8)),
        bias=jnp.full(8, 1e-6),
        activation="rectifier",
    )
    flow = gradient_flow(eqx.tree_at(lambda m: m.cell, model, cell), chunk, lags=5)
    assert verdict in flow.verdict
    assert flow.spectral_radius == pytest.approx(scale, rel=1e-5)
    assert flow.dead == 0


def test_dead_rectifiers_are_counted(problem):
    model, chunk = problem
    cell = dataclasses.replace(model.cell, bias=jnp.array([-1e3] * 2 + [1.0] * 6), activation="rectifier")
    assert gradient_flow(eqx.tree_at(lambda m: m.cell, model, cell), chunk, lags=2).dead == pytest.approx(2 / 8)


def test_gradients_that_underflow_are_shown_without_a_bar(problem, capsys):
    model, chunk = problem
    forgetful = eqx.tree_at(lambda model: model.cell.recurrent, model, jnp.zeros_like(model.cell.recurrent))
    forgetful = eqx.tree_at(lambda model: model.cell.leak.value, forgetful, jnp.zeros_like(model.cell.leak.value))
    flow = gradient_flow(forgetful, chunk, 5)
    assert flow.profile[1] == 0
    show_flow(flow)
    lines = capsys.readouterr().out.splitlines()
    assert "█" in lines[1]
    assert lines[2].split() == ["1", "0"]


def test_bars_are_logarithmic():
    assert [len(bar(value, 2.0)) for value in (2.0, 2e-2, 2e-4, 1e-8, 0.0)] == [40, 30, 20, 0, 0]
    assert bar(0.0, 0.0) == ""
