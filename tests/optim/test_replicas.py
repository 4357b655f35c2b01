"""Replicas: each trains its lanes as if it were alone, then they are joined entry by entry."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.optim.blocks import ClippedNesterov, FirstOrder
from longspan.optim.replicas import Replicas
from longspan.search.pool import claimed_cores
from longspan.training.loop import train
from longspan.training.objective import Context, Objective
from longspan.training.optimizers import make_optimizer
from longspan.training.runs import Run
from longspan.training.setup import ChunkSource, first_carry, initial_model
from tests.support.catalog import tiny_config, tiny_music, tiny_text
from tests.support.runs import essence, start

LANES, CHUNKS, ROWS = 6, 5, 7


def rows_loss(params, carry, chunk, context):
    """Linear in one row of a table for each lane, and quadratic in a weight that all of them use."""
    symbols, numbers = chunk  # (time, lane) each
    value = jnp.sum(params["table"][symbols] * numbers[..., None]) + 0.5 * params["shared"] ** 2 * numbers.sum()
    return value, (carry + symbols[-1].astype(jnp.float32), value)


def rows_data():
    random = np.random.default_rng(0)
    symbols = random.integers(0, ROWS - 1, (CHUNKS, 3, LANES)).astype(np.int32)  # nobody meets the last row
    others = symbols[:, :, LANES // 3 :]
    others[others == 0] = 1
    symbols[0, 0, 0] = 0  # the first replica alone meets row 0
    return symbols, random.uniform(0.5, 1.5, symbols.shape).astype(np.float32)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_entries_take_the_mean_of_the_changes_of_those_that_changed_them(count, momentum):
    params = {
        "table": jnp.asarray(np.random.default_rng(1).normal(size=(ROWS, 4)), jnp.float32),
        "shared": jnp.ones(()),
    }
    driver = FirstOrder(rows_loss, ClippedNesterov(0.1, momentum, 1.0))
    replicas, chunks, carry = Replicas(driver, count), rows_data(), jnp.arange(LANES, dtype=jnp.float32)
    given = jax.tree.map(jnp.copy, params)  # is consumed
    found, state, after, info = replicas.advance(given, replicas.init(given), carry, chunks, CHUNKS - 1, None)

    share, alone = LANES // count, []
    for first in range(0, LANES, share):
        own = tuple(leaf[:, :, first : first + share] for leaf in chunks)
        copy = jax.tree.map(jnp.copy, params)
        alone.append(driver.advance(copy, driver.init(copy), carry[first : first + share], own, CHUNKS - 1, None))
    for name, before in params.items():
        ends = np.stack([np.asarray(each[0][name], float) for each in alone])
        changes = ends - np.asarray(before, float)
        want = np.asarray(before, float) + changes.sum(0) / np.maximum((changes != 0).sum(0), 1)
        np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["table"][-1], params["table"][-1])
    if count > 1 and momentum == 0:  # row 0 moved as far as in the one replica that met it
        np.testing.assert_allclose(found["table"][0], alone[0][0]["table"][0], rtol=1e-6)
        assert np.abs(found["table"][0] - params["table"][0]).max() > 1e-3
    np.testing.assert_array_equal(after, np.concatenate([each[2] for each in alone]))
    assert int(state.step) == CHUNKS - 1 == int(info.updates)
    np.testing.assert_allclose(info.observed, sum(np.asarray(each[3].observed) for each in alone), rtol=1e-5)
    norms = np.mean([np.asarray(each[3].figures["gradient_norm"]) for each in alone], axis=0)
    np.testing.assert_allclose(info.figures["gradient_norm"], norms, rtol=1e-5)


def test_every_replica_has_keys_of_its_own():
    def loss(params, carry, chunk, context):
        drawn = jax.random.uniform(context["key"], ())
        return params * drawn, (carry, jnp.stack([drawn, context["number"]]))

    replicas = Replicas(FirstOrder(loss, ClippedNesterov(0.0)), 2)
    context = {"key": jax.random.key(3), "number": jnp.asarray(5.0)}
    *_, info = replicas.advance(
        jnp.ones(()), replicas.init(jnp.ones(())), jnp.zeros(2), np.zeros((1, 1, 2)), 1, context
    )
    first, second = (float(jax.random.uniform(jax.random.fold_in(jax.random.key(3), n), ())) for n in (0, 1))
    assert first != second
    np.testing.assert_allclose(info.observed[0], [first + second, 10.0], rtol=1e-6)


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_a_share_has_the_loss_of_as_many_lanes(loss):
    """With all lanes alike and one update a block, replicas end where one of them would with its lanes alone."""
    data = tiny_music()
    config = tiny_config("sgd+c", lanes=2, replicas=2, loss=loss, clip=0.5)
    alone = dataclasses.replace(config, lanes=1, replicas=1)
    one = jax.tree.map(lambda leaf: leaf[:1], ChunkSource(alone, data).epoch(0))
    both = type(one)(*(np.repeat(leaf, 2, axis=2) if leaf.ndim > 2 else leaf for leaf in one))
    model = initial_model(config, data.record, data.base_rates())
    ends = []
    for settings, chunks in ((config, both), (alone, one)):
        optimizer = make_optimizer(settings, Objective.of(settings), 0.5, lambda: False)
        params = jax.tree.map(jnp.copy, model)
        context = Context(jax.tree.map(lambda _: None, model), jax.random.key(0))
        ends.append(optimizer.advance(params, optimizer.init(params), first_carry(model, settings), chunks, 1, context))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), ends[0][0], ends[1][0])
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), ends[1][0], model)
    assert max(jax.tree.leaves(moved)) > 1e-4


@pytest.mark.parametrize(("recipe", "changes"), [("sgd+crm", {"dropout": 0.3}), ("sgd+c", {"optimizer": "adam"})])
@pytest.mark.parametrize("make_data", [tiny_music, tiny_text])
def test_a_run_learns_and_ends_in_the_same_bytes_however_often_it_is_stopped(make_data, recipe, changes, tmp_path):
    data = make_data()
    output = "bernoulli" if make_data is tiny_music else "softmax"
    config = tiny_config(recipe, output=output, lanes=4, replicas=2, block=2, **changes)
    whole, cut = (start(tmp_path / name, data, config) for name in ("whole", "cut"))
    assert train(whole, data).status == "done"
    blocks = iter(range(1000))
    while train(cut, data, interrupted=lambda: next(blocks) % 2 == 1).status == "interrupted":
        cut = Run.open(cut.path)
    assert essence(cut.path) == essence(whole.path)
    scores = [record["valid_log_likelihood"] for record in whole.metrics()]
    assert scores[-1] > scores[0]
    assert next(blocks) > 5


@pytest.mark.parametrize("changes", [{"lanes": 3, "replicas": 2}, {"lanes": 1, "replicas": 2}])
def test_lanes_that_cannot_be_shared_are_refused(changes):
    with pytest.raises(InputError, match=r"replicas share the lanes .*; choose lanes 2$"):
        TrainConfig(**changes)


def test_hessian_free_has_none():
    with pytest.raises(InputError, match="replicas share the lanes of a first-order method"):
        TrainConfig(lanes=2, replicas=2, optimizer="hf")


def test_a_search_gives_every_worker_the_cores_of_its_replicas():
    with claimed_cores(1, TrainConfig(lanes=4, replicas=2).cores) as cores:
        assert cores in ([{0, 1}], [set()])  # of two cores or more; none to pin on fewer
