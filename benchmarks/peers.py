"""RNN-NADE in PyTorch."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .contest import Turn


def nade_training(inputs: np.ndarray, targets: np.ndarray, units: int, nade_units: int, ragged: bool) -> Turn:
    """RNN-NADE, one turn an update for every chunk.

    The dense form has a hidden vector for each key, by a cumulative sum; the ragged one only for each distinct vector
    of a frame, all frames in one matrix, with what depends on the targets alone prepared beforehand.
    """
    keys = inputs.shape[-1]
    rnn, visible, hidden = nn.RNN(keys, units), nn.Linear(units, keys), nn.Linear(units, nade_units)
    weights = nn.Parameter(0.1 * torch.randn(keys, nade_units))
    readout = nn.Parameter(0.1 * torch.randn(nade_units, keys))
    chunks = [torch.from_numpy(chunk).float() for chunk in inputs]
    frames = [torch.from_numpy(chunk).float().reshape(-1, keys) for chunk in targets]
    prepared = [_distinct(frame) for frame in frames]
    first = torch.zeros(1, inputs.shape[2], units)

    def logits(number: int, states: torch.Tensor) -> torch.Tensor:
        visible_bias, hidden_bias = visible(states), hidden(states)
        if ragged:
            frame_of, before, row_of = prepared[number]
            distinct = torch.sigmoid(hidden_bias[frame_of] + before @ weights)
            return visible_bias + (distinct @ readout).gather(0, row_of)
        on = frames[number][:, :, None] * weights
        every = torch.sigmoid(torch.cumsum(on, 1) - on + hidden_bias[:, None, :])
        return visible_bias + (every * readout.T).sum(-1)

    def loss(number: int) -> torch.Tensor:
        nonlocal first
        states, first = rnn(chunks[number], first)
        first = first.detach()
        found = logits(number, states.reshape(-1, units))
        wanted = frames[number]
        return functional.binary_cross_entropy_with_logits(found, wanted, reduction="sum") / len(wanted)

    modules = (rnn, visible, hidden)
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return update_of(loss, [*parameters, weights, readout], len(inputs))


def _distinct(frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Frame of each distinct hidden vector, the keys on before it, and the vector that each key of a frame reads."""
    notes_before = (torch.cumsum(frames, 1) - frames).long()
    counts = notes_before[:, -1] + 1
    starts = torch.cumsum(counts, 0) - counts
    row_of = starts[:, None] + notes_before
    frame_of = torch.repeat_interleave(torch.arange(len(frames)), counts)
    place = torch.arange(int(counts.sum())) - starts[frame_of]
    before = frames[frame_of] * (notes_before[frame_of] < place[:, None])
    return frame_of, before, row_of


def update_of(loss: Callable[[int], torch.Tensor], parameters: list, chunks: int) -> Turn:
    """One turn is a clipped step of Nesterov's method for every chunk."""
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, nesterov=True)

    def turn() -> int:
        for number in range(chunks):
            optimizer.zero_grad(set_to_none=True)
            loss(number).backward()
            nn.utils.clip_grad_norm_(parameters, 15.0)
            optimizer.step()
        return chunks

    return turn
