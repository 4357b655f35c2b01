"""One update of an LSTM and of a GRU: forward, loss, backward, clip, Nesterov; 88 keys, chunks of 100 frames.

Against PyTorch's `nn.LSTM` and `nn.GRU`, and against JAX as one writes it by hand: a scan with a derivative rule of its
own that leaves the gradient of the recurrent weights to one product. All start from the same weights, and are timed
only after they found the same loss and the same length of the gradient.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch import nn
from torch.nn import functional

from longspan import recipes

from . import ours
from .contest import Turn, ratios, seconds_per_update
from .peers import update_of

REGIMES = {(1, 200): 8, (16, 200): 2, (1, 500): 4, (64, 500): 1}
"""Batch and units, and chunks a turn."""
KEYS, LENGTH, ROUNDS = 88, 100, 5


def contestants(cell: str, batch: int, units: int) -> tuple[dict[str, Turn], dict[str, tuple[float, float]]]:
    """The same work for everybody, on the same numbers; and the loss and gradient length each finds at first."""
    chunks = REGIMES[batch, units]
    config = dataclasses.replace(
        recipes.settings(f"{cell}/bernoulli:sgd+cm", "random", "frames"),
        dropout=0.0,
        learning_rate=1e-3,
        clip=15.0,
        learning_rate_schedule="constant",
        hidden_size=units,
        lanes=batch,
        block=chunks,
        chunk_length=LENGTH,
    )
    data = ours.random_songs(batch, chunks * LENGTH)
    source = ours.ChunkSource(config, data).epoch(0)
    model = ours.initial_model(config, data.record, data.base_rates())
    weights = {
        "w": model.cell.input_weights,
        "u": model.cell.recurrent,
        "b": model.cell.bias,
        "v": model.output.weights,
        "c": model.output.bias,
    }
    rows = (source.inputs, source.targets, {name: np.asarray(value) for name, value in weights.items()}, cell)
    made = {
        "longspan": (ours.training(config, data), ours.first_gradient(config, data)),
        "PyTorch": in_pytorch(*rows),
        "JAX by hand": in_jax(*rows),
    }
    return {name: turn for name, (turn, _) in made.items()}, {name: found for name, (_, found) in made.items()}


def in_pytorch(inputs, targets, weights, cell) -> tuple[Turn, tuple[float, float]]:
    """`nn.LSTM` or `nn.GRU` as they are."""
    units = len(weights["u"])
    network = (nn.LSTM if cell == "lstm" else nn.GRU)(KEYS, units)
    readout = nn.Linear(units, KEYS)
    with torch.no_grad():
        network.weight_ih_l0.copy_(torch.from_numpy(weights["w"].T.copy()))
        network.weight_hh_l0.copy_(torch.from_numpy(weights["u"].T.copy()))
        network.bias_ih_l0.copy_(torch.from_numpy(weights["b"].copy()))
        network.bias_hh_l0.zero_()
        readout.weight.copy_(torch.from_numpy(weights["v"].T.copy()))
        readout.bias.copy_(torch.from_numpy(weights["c"].copy()))
    chunks, wanted = ([torch.from_numpy(chunk).float() for chunk in some] for some in (inputs, targets))
    state = None

    def loss(number: int) -> torch.Tensor:
        nonlocal state
        hidden, state = network(chunks[number], state)
        state = tuple(part.detach() for part in state) if cell == "lstm" else state.detach()
        found = functional.binary_cross_entropy_with_logits(readout(hidden), wanted[number], reduction="sum")
        return found / (inputs.shape[1] * inputs.shape[2])

    parameters = [*network.parameters(), *readout.parameters()]
    value = loss(0)
    value.backward()
    # PyTorch has two biases where one would do, and both have the same gradient.
    once = [parameter for parameter in parameters if parameter is not network.bias_hh_l0]
    length = sum(float((parameter.grad**2).sum()) for parameter in once) ** 0.5
    if cell == "gru":  # but the candidate's second one is inside the reset gate, and not the same
        length = (length**2 + float((network.bias_hh_l0.grad[2 * units :] ** 2).sum())) ** 0.5
    state = None
    return update_of(loss, parameters, len(inputs)), (value.item(), length)


def in_jax(inputs, targets, weights, cell) -> tuple[Turn, tuple[float, float]]:
    """A scan with a derivative rule by hand; Optax; all chunks of a turn in one compiled call."""
    rule, units = (lstm_by_hand if cell == "lstm" else gru_by_hand), len(weights["u"])
    params = jax.tree.map(jnp.asarray, weights)
    if cell == "gru":
        params["d"] = jnp.zeros(units)
    chain = optax.chain(optax.clip_by_global_norm(15.0), optax.sgd(1e-3, momentum=0.9, nesterov=True))
    steps, batch = inputs.shape[1] * inputs.shape[2], inputs.shape[2]

    def loss(params, state, inputs, targets):
        drive = inputs.astype(jnp.float32) @ params["w"] + params["b"]
        hidden, state = rule(drive, state, params["u"], *([params["d"]] if cell == "gru" else []))
        losses = optax.sigmoid_binary_cross_entropy(hidden @ params["v"] + params["c"], targets)
        return losses.sum() / steps, jax.lax.stop_gradient(state)

    def update(running, chunk):
        params, optimizer, state = running
        (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(params, state, *chunk)
        changes, optimizer = chain.update(gradient, optimizer)
        return (optax.apply_updates(params, changes), optimizer, state), value

    state = tuple(jnp.zeros((batch, units)) for _ in range(2)) if cell == "lstm" else jnp.zeros((batch, units))
    chunks = (jnp.asarray(inputs), jnp.asarray(targets))
    (value, _), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params, state, chunks[0][0], chunks[1][0])
    advance = jax.jit(lambda running, chunks: jax.lax.scan(update, running, chunks), donate_argnums=0)
    running = (params, chain.init(params), state)

    def turn() -> int:
        nonlocal running
        running, values = advance(running, chunks)
        np.asarray(values)
        return len(inputs)

    return turn, (float(value), float(optax.global_norm(gradient)))


@jax.custom_vjp
def lstm_by_hand(drive, state, recurrent):
    """Hidden states and the last state; the derivative of the state before the chunk is not wanted."""
    return _lstm_forward(drive, state, recurrent)[0]


def _lstm_forward(drive, state, recurrent):
    def step(state, now):
        hidden, cell = state
        i, f, g, o = jnp.split(hidden @ recurrent + now, 4, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        new = f * cell + i * g
        shown = jnp.tanh(new)
        return (o * shown, new), (o * shown, hidden, cell, i, f, g, o, shown)

    last, (hidden, *kept) = jax.lax.scan(step, state, drive)
    return (hidden, last), (recurrent, kept)


def _lstm_backward(kept, cotangents):
    recurrent, (before, *gates) = kept

    def step(errors, now):
        by_hidden, by_cell = errors
        wanted, cell, i, f, g, o, shown = now
        by_hidden = by_hidden + wanted
        by_cell = by_cell + by_hidden * o * (1 - shown * shown)
        parts = [by_cell * g * i * (1 - i), by_cell * cell * f * (1 - f), by_cell * i * (1 - g * g)]
        drive = jnp.concatenate([*parts, by_hidden * shown * o * (1 - o)], axis=-1)
        return (drive @ recurrent.T, by_cell * f), drive

    nothing = jnp.zeros_like(before[0])
    _, drive = jax.lax.scan(step, (nothing, nothing), (cotangents[0], *gates), reverse=True)
    return drive, (nothing, nothing), jnp.einsum("tbi,tbj->ij", before, drive)


lstm_by_hand.defvjp(_lstm_forward, _lstm_backward)


@jax.custom_vjp
def gru_by_hand(drive, state, recurrent, bias):
    """Hidden states and the last one."""
    return _gru_forward(drive, state, recurrent, bias)[0]


def _gru_forward(drive, state, recurrent, bias):
    units = len(recurrent)

    def step(hidden, now):
        recurred = hidden @ recurrent
        gates = jax.nn.sigmoid(recurred[:, : 2 * units] + now[:, : 2 * units])
        r, z = gates[:, :units], gates[:, units:]
        inner = recurred[:, 2 * units :] + bias
        n = jnp.tanh(now[:, 2 * units :] + r * inner)
        new = n + z * (hidden - n)
        return new, (new, hidden, r, z, n, inner)

    last, (hidden, *kept) = jax.lax.scan(step, state, drive)
    return (hidden, last), (recurrent, kept)


def _gru_backward(kept, cotangents):
    recurrent, (before, *gates) = kept

    def step(error, now):
        wanted, hidden, r, z, n, inner = now
        error = error + wanted
        by_candidate = error * (1 - z) * (1 - n * n)
        shared = [by_candidate * inner * r * (1 - r), error * (hidden - n) * z * (1 - z)]
        through = jnp.concatenate([*shared, by_candidate * r], axis=-1)
        return error * z + through @ recurrent.T, (jnp.concatenate([*shared, by_candidate], axis=-1), through)

    nothing = jnp.zeros_like(before[0])
    _, (drive, through) = jax.lax.scan(step, nothing, (cotangents[0], before, *gates), reverse=True)
    of_bias = through[..., 2 * len(recurrent) :].sum((0, 1))
    return drive, nothing, jnp.einsum("tbi,tbj->ij", before, through), of_bias


gru_by_hand.defvjp(_gru_forward, _gru_backward)


def regime(cell: str, batch: int, units: int) -> dict:
    """Seconds and ratios of one regime, once all are known to compute the same."""
    turns, found = contestants(cell, batch, units)
    for name, numbers in found.items():
        np.testing.assert_allclose(numbers, found["longspan"], rtol=1e-3, err_msg=f"{name} computes something else")
    seconds = seconds_per_update(turns, ROUNDS)
    return {"cell": cell, "batch": batch, "units": units, "seconds": seconds, "ratios": ratios(seconds)}


def measure() -> dict:
    """Seconds of one update by cell, regime and contestant."""
    return {"regimes": [regime(cell, *size) for cell in ("lstm", "gru") for size in REGIMES]}


def table(figures: dict) -> list[list[str]]:
    """Milliseconds of ours and how many times as long the others take."""
    others = list(figures["regimes"][0]["ratios"])
    rows = [["cell", "batch", "units", "longspan ms", *others]]
    for found in figures["regimes"]:
        own = f"{1e3 * found['seconds']['longspan']:.2f}"
        times = [f"{found['ratios'][name]:.2f}x" for name in others]
        rows.append([found["cell"], str(found["batch"]), str(found["units"]), own, *times])
    return rows
