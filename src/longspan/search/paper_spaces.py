"""The spaces the paper searched, and the few settings we add because they turned out to matter.

The paper's (section 4): hidden size, learning rate and its schedule, momentum and its schedule, L1, share of leaky
units and their alpha, and the non-linearity for music; small grids for text. It prints alpha as up to 2, a misprint
for 0.2, and does not say which schedules were tried. Ours: the scales of the initial weights, the size of NADE, and
dropout, which the paper does not know.
Clipping stays as the recipe has it, for the paper fixes the threshold rather than searching it.
"""

from longspan.config import TrainConfig
from longspan.data import TargetKind

LEAKS = {"leak_low": {"low": 0.02, "high": 0.2}, "leak_high": {"low": 0.02, "high": 0.2}}
INITIAL_SCALES = {
    "recurrent_scale": {"low": 0.2, "high": 1.0},
    "input_scale": {"low": 0.05, "high": 0.5, "log": True},
}
DROPOUT = {"dropout": {"low": 0.0, "high": 0.8}}
FIRST_ORDER = {
    "learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
    # Halving on a plateau is named twice: it forgives a rate that was chosen too high.
    "learning_rate_schedule": ["plateau", "plateau", "constant", "inverse"],
    "decay_steps": {"low": 1e3, "high": 1e5, "log": True},
}
MOMENTUM = {"momentum": {"low": 1e-3, "high": 0.95}, "momentum_schedule": ["constant", "ramp"]}

# The paper's rates for text are 0.1, 0.01, 0.001 by words and 0.5, 0.1, 0.01 by characters, and it does not say
# whether the loss of a sequence is a sum or a mean. Ours is a mean; as sums, they would be 40 and 150 times as large
# here. These grids hold both readings, without the rates under which nothing moves or everything diverges.
WORD_RATES = [0.04, 0.1, 0.4, 1.0, 4.0]
CHARACTER_RATES = [0.1, 0.5, 1.5]


def paper_space(config: TrainConfig, targets: TargetKind) -> dict:
    """The paper's space for a recipe and what it predicts, as a plain dictionary such as a TOML space holds."""
    if targets == "words":
        return {"learning_rate": WORD_RATES} | _units(config) | INITIAL_SCALES | DROPOUT
    if targets == "characters":
        return {"learning_rate": CHARACTER_RATES} | _units(config) | INITIAL_SCALES | DROPOUT
    space = {"hidden_size": {"low": 100, "high": 400}} | _units(config) | INITIAL_SCALES | DROPOUT
    if config.output == "nade":
        space["nade_size"] = {"low": 100, "high": 300}
    if _is_hessian_free(config):
        return space
    return space | FIRST_ORDER | (MOMENTUM if config.momentum > 0 else {})


def _units(config: TrainConfig) -> dict:
    """What the recipe's letters L and R leave open about the recurrent units."""
    space = {}
    if config.activation == "rectifier":
        space["l1"] = {"low": 1e-6, "high": 1e-3, "log": True}
    else:
        space["activation"] = ["tanh", "sigmoid"]
    if config.leaky_share > 0:
        space |= {"leaky_share": [0.0, 0.25, 0.5]} | LEAKS
    return space


def _is_hessian_free(config: TrainConfig) -> bool:
    """Hessian-free has no learning rate to search."""
    return config.recipe.rpartition(":")[2].startswith("hf")
