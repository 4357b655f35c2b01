"""The classical proof: a plain tanh network, not one of ours, learns to bridge a time lag."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.synthetic import TASKS, TaskBatch, is_solved
from longspan.optim.curvature import WithStructure
from longspan.optim.hessian_free import HessianFree, HessianFreeSettings

HIDDEN, SPAN = 50, 30
TASK = TASKS["temporal-order"]


def network(params, batch):
    def step(hidden, drive):
        pre = hidden @ params["recurrent"] + drive
        return jnp.tanh(pre), (jnp.tanh(pre), pre)

    drives = batch.inputs @ params["input"] + params["bias"]
    last, (hidden, pre) = jax.lax.scan(step, jnp.zeros(drives.shape[1:]), drives)
    return WithStructure(last @ params["output"], pre, 1 - hidden**2)


def loss(outputs, batch):
    right = jnp.take_along_axis(outputs, batch.targets[-1][:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(outputs, axis=-1) - right)


def draw_params(seed):
    rng = np.random.default_rng(seed)
    shapes = {
        "input": (TASK.input_size, HIDDEN),
        "recurrent": (HIDDEN, HIDDEN),
        "bias": (HIDDEN,),
        "output": (HIDDEN, TASK.output_size),
    }
    return {name: jnp.asarray(rng.uniform(-0.2, 0.2, shape), jnp.float32) for name, shape in shapes.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_temporal_order_over_thirty_steps_is_solved(seed):
    method = HessianFree(network, loss, HessianFreeSettings(structural_damping=1.0), batch_axis=1)
    params = draw_params(seed)
    state = method.init(params)
    for step in range(25):
        sequences = TASK.batch(SPAN, 1000, seed=seed, step=step)
        params, state, info = method.update(
            params, state, sequences, TaskBatch(*(array[:, :300] for array in sequences))
        )
        if info.objective_after < 0.01:
            break
    tested = TASK.batch(SPAN, 10_000, seed=seed, step=0, split="test")
    outputs = np.zeros((SPAN, 10_000, TASK.output_size), np.float32)
    outputs[-1] = jax.jit(network)(params, tested).outputs
    assert is_solved(TASK.wrong_sequences(outputs, tested))
