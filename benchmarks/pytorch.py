"""The step in PyTorch: `nn.RNN` as it is, the loop over time compiled, and all of it by hand, without autograd."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional

from .contest import Contestant, Task, Weights


def eager(task: Task, threads: int) -> Contestant:
    """`nn.RNN`, `clip_grad_norm_` and `SGD`."""
    tensors = _tensors(task.weights)
    inputs, units = task.weights["w"].shape
    rnn, readout = nn.RNN(inputs, units), nn.Linear(units, task.weights["v"].shape[1])
    named = {"weight_ih_l0": tensors["w"].T, "weight_hh_l0": tensors["u"].T, "bias_ih_l0": tensors["b"]}
    rnn.load_state_dict(named | {"bias_hh_l0": torch.zeros(units)})
    readout.load_state_dict({"weight": tensors["v"].T, "bias": tensors["c"]})
    rnn.bias_hh_l0.requires_grad_(False)  # a second bias would move the sum of the two twice as far
    chunks, wanted = _chunks(task)
    if task.symbols:
        chunks = functional.one_hot(chunks, inputs).float()
    first = torch.zeros(1, task.inputs.shape[2], units)

    def loss(number: int) -> torch.Tensor:
        nonlocal first
        states, first = rnn(chunks[number], first)
        first = first.detach()
        return _loss(task, readout(states), wanted[number])

    def weights() -> Weights:
        named = {"w": rnn.weight_ih_l0.T, "u": rnn.weight_hh_l0.T, "b": rnn.bias_ih_l0}
        return _arrays(named | {"v": readout.weight.T, "c": readout.bias})

    trained = [rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, *readout.parameters()]
    return Contestant(_updates(task, loss, trained, threads), weights)


def compiled(task: Task, threads: int) -> Contestant:
    """The loop over time and the loss written out and compiled as one graph, or an error; then as in `eager`."""
    params = {name: nn.Parameter(tensor) for name, tensor in _tensors(task.weights).items()}
    chunks, wanted = _chunks(task)
    first = torch.zeros(task.inputs.shape[2], task.weights["u"].shape[0])

    def walk(hidden: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor):
        read = params["w"][inputs] if task.symbols else inputs @ params["w"]
        states = []
        for now in (read + params["b"]).unbind():
            hidden = torch.tanh(torch.addmm(now, hidden, params["u"]))
            states.append(hidden)
        return _loss(task, torch.stack(states) @ params["v"] + params["c"], targets), hidden.detach()

    graph = torch.compile(walk, fullgraph=True, dynamic=False)
    graphs = counters["stats"]["unique_graphs"]

    def loss(number: int) -> torch.Tensor:
        nonlocal first
        value, first = graph(first, chunks[number], wanted[number])
        assert counters["stats"]["unique_graphs"] > graphs, "torch.compile captured no graph"
        return value

    turn = _updates(task, loss, list(params.values()), threads)
    return Contestant(turn, lambda: _arrays(params))


def by_hand(task: Task, threads: int) -> Contestant:
    """No autograd: two operations a step into memory that is there, dU as one product, one vector of all weights."""
    sizes = [value.size for value in task.weights.values()]
    everything, gradient, velocity = (torch.zeros(sum(sizes)) for _ in range(3))

    def views(flat: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = zip(task.weights.items(), flat.split(sizes), strict=True)
        return {name: part.view(value.shape) for (name, value), part in parts}

    params, slopes = views(everything), views(gradient)
    for name, value in task.weights.items():
        params[name].copy_(torch.from_numpy(value))
    chunks, wanted = _chunks(task)
    time, lanes = task.inputs.shape[1:3]
    inputs, units = task.weights["w"].shape
    states, errors = torch.zeros(time + 1, lanes, units), torch.zeros(time + 1, lanes, units)
    walked, before, found = states[1:], states[:-1], errors[:-1]
    flat_walked, flat_before, flat_found = (part.reshape(-1, units) for part in (walked, before, found))
    rows = list(pairwise(states))
    back = list(pairwise(errors))

    def walk(drive: torch.Tensor) -> None:
        states[0].copy_(states[-1])
        for now, (old, new) in zip(drive.view(time, lanes, units).unbind(), rows, strict=True):
            torch.addmm(now, old, params["u"], out=new)
            new.tanh_()

    def walk_back(cotangents: torch.Tensor) -> None:
        slope = torch.addcmul(torch.ones(()), walked, walked, value=-1).unbind()
        cotangent, transposed = cotangents.view(time, lanes, units).unbind(), params["u"].T.contiguous()
        for t in range(time - 1, -1, -1):
            new, old = back[t]
            torch.addmm(cotangent[t], old, transposed, out=new)
            new.mul_(slope[t])

    def update(number: int) -> None:
        read, target = chunks[number], wanted[number]
        if task.symbols:
            drive = params["w"].index_select(0, read.flatten()).add_(params["b"])
        else:
            drive = torch.addmm(params["b"], read.reshape(-1, inputs), params["w"])
        walk(drive)
        logits = torch.addmm(params["c"], flat_walked, params["v"])
        if task.symbols:
            logits = torch.softmax(logits, -1)
            logits.scatter_add_(1, target.reshape(-1, 1), torch.full((len(logits), 1), -1.0))
        else:
            logits.sigmoid_().sub_(target.reshape(logits.shape))
        logits.div_(task.steps)
        torch.mm(flat_walked.T, logits, out=slopes["v"])
        torch.sum(logits, 0, out=slopes["c"])
        walk_back(logits @ params["v"].T)
        torch.mm(flat_before.T, flat_found, out=slopes["u"])
        torch.sum(flat_found, 0, out=slopes["b"])
        if task.symbols:
            slopes["w"].zero_().index_add_(0, read.flatten(), flat_found)
        else:
            torch.mm(read.reshape(-1, inputs).T, flat_found, out=slopes["w"])
        rate = task.learning_rate * min(1.0, task.threshold / float(torch.linalg.vector_norm(gradient)))
        velocity.mul_(task.momentum).sub_(gradient, alpha=rate)
        everything.add_(velocity, alpha=task.momentum).sub_(gradient, alpha=rate)

    def turn() -> int:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            for number in range(len(chunks)):
                update(number)
        return len(chunks)

    return Contestant(turn, lambda: _arrays(params))


def _tensors(weights: Weights) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value.copy()) for name, value in weights.items()}


def _arrays(tensors: dict) -> Weights:
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


def _chunks(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = torch.from_numpy(task.inputs.copy()), torch.from_numpy(task.targets.copy())
    return (inputs.long(), targets.long()) if task.symbols else (inputs.float(), targets.float())


def _loss(task: Task, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if task.symbols:
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / task.steps
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / task.steps


def _updates(task: Task, loss: Callable[[int], torch.Tensor], parameters: list, threads: int) -> Callable[[], int]:
    optimizer = torch.optim.SGD(parameters, lr=task.learning_rate, momentum=task.momentum, nesterov=True)

    def turn() -> int:
        torch.set_num_threads(threads)
        for number in range(len(task.inputs)):
            optimizer.zero_grad(set_to_none=True)
            loss(number).backward()
            nn.utils.clip_grad_norm_(parameters, task.threshold)
            optimizer.step()
        return len(task.inputs)

    return turn
