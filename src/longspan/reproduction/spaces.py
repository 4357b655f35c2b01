"""The paper's search spaces, and a few settings added because they turned out to matter.

The paper searches (section 4) hidden size, learning rate and its schedule, momentum and its schedule, L1, the fraction
of leaky units and their alpha, and the nonlinearity for music; small grids for text. It prints alpha as up to 2, a
misprint for 0.2, and does not say which schedules were tried. Added here are the scales of the initial weights, the
size of NADE, and dropout, which the paper does not use. Clipping stays as in the recipe: the paper fixes the threshold
rather than searching it.

The paper's learning rates (up to 0.1 for music, grids up to 0.5 for text) were meant for a loss summed over a sequence.
Here the loss is the mean, for which the same steps need rates larger by a factor of the sequence length, 40 to 200. So
rates are searched from 1e-3 to 10 for every recipe; with momentum the drawn rate is the effective one. A config whose
loss is the sum gets the paper's own interval.

Gated cells are not the paper's. They keep their activation, which their equations were made for, and on text, where
clipping at a small norm and several lanes keep steps short, need larger rates. Layers also draw the dropout between
them, and cells without a recurrent matrix no scale of it.
"""

from longspan.config import TrainConfig
from longspan.data import TargetKind
from longspan.registry import parse_cell

GATED = {"lstm", "gru"}
WITHOUT_MATRIX = {"lru", "embedding"}
"""Cells that ignore `recurrent_scale`."""
MEAN_RATE = {"low": 1e-3, "high": 10.0, "log": True, "effective": True}
GATED_TEXT_RATE = {"low": 1.0, "high": 50.0, "log": True, "effective": True}
SUM_RATE = {"low": 1e-4, "high": 1e-1, "log": True}
NORMALIZED_RATE = {"low": 1e-5, "high": 1e-1, "log": True}
"""For optimizers that normalize the gradient, such as Adam."""
LEAKS = {"leak_low": {"low": 0.02, "high": 0.2}, "leak_high": {"low": 0.02, "high": 0.2}}
INITIAL_SCALES = {
    "recurrent_scale": {"low": 0.2, "high": 1.0},
    "input_scale": {"low": 0.05, "high": 0.5, "log": True},
}
DROPOUT = {"dropout": {"low": 0.0, "high": 0.8}}
SCHEDULES = {
    # Halving on a plateau is listed twice: it tolerates a rate that is too high.
    "learning_rate_schedule": ["plateau", "plateau", "constant", "inverse"],
    "decay_steps": {"low": 1e3, "high": 1e5, "log": True},
}
MOMENTUM = {"momentum": {"low": 1e-3, "high": 0.95}, "momentum_schedule": ["constant", "ramp"]}


def paper_space(config: TrainConfig, targets: TargetKind) -> dict:
    """The paper's space for a recipe and a kind of target, as a plain dictionary like that of a TOML space."""
    text = targets in ("words", "characters")
    cells = {layer.name for layer in parse_cell(config.cell)}
    space = _units(config, cells) | INITIAL_SCALES | DROPOUT
    if cells <= WITHOUT_MATRIX:
        del space["recurrent_scale"]
    if len(parse_cell(config.cell)) > 1:
        space["layer_dropout"] = DROPOUT["dropout"]
    descent = config.optimizer != "hf"
    if descent:  # Hessian-free has no rate to search
        space["learning_rate"] = _rate(config, gated_text=text and bool(cells & GATED))
    if text:
        return space
    space["hidden_size"] = {"low": 100, "high": 400}
    if config.output == "nade":
        space["nade_size"] = {"low": 100, "high": 300}
    if descent:
        space |= SCHEDULES | (MOMENTUM if config.momentum > 0 else {})
    return space


def _rate(config: TrainConfig, *, gated_text: bool) -> dict:
    if config.optimizer != "sgd":
        return NORMALIZED_RATE
    if config.loss == "sum":
        return SUM_RATE
    return GATED_TEXT_RATE if gated_text else MEAN_RATE


def _units(config: TrainConfig, cells: set[str]) -> dict:
    """The settings of the recurrent units that the recipe's letters L and R leave open."""
    space = {}
    if config.activation == "rectifier":
        space["l1"] = {"low": 1e-6, "high": 1e-3, "log": True}
    elif not cells & GATED:
        space["activation"] = ["tanh", "sigmoid"]
    if config.leaky_share > 0:
        space |= {"leaky_share": [0.0, 0.25, 0.5]} | LEAKS
    return space
