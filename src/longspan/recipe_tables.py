"""The tables behind the recipes: what each letter, method, output, cell and data set changes. Data, not code.

In order: what a letter or a method is, what outputs and cells need with it, what each kind of data needs, and what was
found by search on validation scores for descent on single data sets and for single recipes. `recipes.py` merges them.
"""

from longspan.data.dataset import TargetKind

LETTERS = {
    "c": {"clip": 15.0},
    "l": {"leaky_share": 0.5},
    "r": {"activation": "rectifier", "l1": 1e-5},
    "m": {"momentum": 0.9},
    "t": {"cues": "recall"},
    "w": {},
}
PLAIN = {"clip": "none", "momentum": 0.0, "learning_rate": 0.05, "recurrent_scale": 0.5, "input_scale": 0.3}
HESSIAN_FREE = {"optimizer": "hf", "learning_rate_schedule": "constant", "block": 1000}

LETTER_NAMES = {"": "descent", "c": "clipping", "l": "leaky units", "r": "rectifiers", "m": "momentum"}
LETTER_NAMES |= {"t": "told of the past", "w": "memory"}

ADAPTIVE = {"learning_rate": 2e-3, "momentum": 0.9, "clip": 1.0}
OPTIMIZER_SETTINGS = {"adam": ADAPTIVE, "adamw": ADAPTIVE, "rmsprop": {**ADAPTIVE, "momentum": 0.0}}
"""Settings for an optimizer other than the recipe's; the size of its steps does not depend on the size of the
gradients."""

METHODS = {"sgd": {}, "hf": HESSIAN_FREE, "adam": {"optimizer": "adam", **ADAPTIVE}}
LETTERS_OF = {"sgd": "clrmtw", "hf": "lrtw", "adam": "lrtw"}

# On music, where lags are short, curvature from few sequences makes an update six times cheaper and hardly worse. Such
# an update fits its block rather than the data set, so the mean of several is far better than the last one.
CHEAP_CURVATURE = {"block": 250, "curvature_sequences": 32, "averaging": 30}

# With few large updates the network memorizes the history before it learns which keys of a frame go together, so the
# frames are pretrained by descent with these rates.
FRAMES_FIRST = {"pretrain_frames": 20, "learning_rate": 0.1, "momentum": 0.9, "clip": 2.0}

OUTPUTS = {
    ("sgd", "rbm"): {"pretrain_frames": 60, "pretrain_recurrent": 10},
    ("hf", "bernoulli"): CHEAP_CURVATURE
    | {
        "activation": "sigmoid",
        "input_scale": 0.5,
        "dropout": 0.2,
        "structural_damping": 0.03,
        "cg_iterations": 60,
    },
    ("hf", "nade"): CHEAP_CURVATURE
    | FRAMES_FIRST
    | {"activation": "sigmoid", "nade_size": 200, "dropout": 0.3, "minimal_damping": 1e-3, "cg_iterations": 40},
}

GATED = {"activation": "tanh", "recurrent_scale": 1.0, "input_scale": 0.1}
CELLS: dict[str, dict] = dict.fromkeys(("lstm", "gru", "lru"), GATED)
CELLS |= {"multiplicative": {"activation": "tanh"}, "rate": {"activation": "rectifier"}}
"""Settings that suit other units than those of the paper; the last layer's, where there are several."""

# The states of gated units are short, so the output needs a larger rate. And they know songs by heart before NADE has
# learned what sounds together, unless much of them is hidden from it.
GATED_BEFORE_NADE = {
    "input_scale": 0.5,
    "recurrent_scale": 0.5,
    "learning_rate": 2.0,
    "dropout": 0.5,
    "averaging": 8000,
}
ONLY_LEAPS = {"clip": 3.0}  # gradients are about 1 long but for some at the start
GATED_DESCENT: dict[tuple[str, str, str], dict] = {
    ("lstm", "nade", ""): GATED_BEFORE_NADE,
    ("lstm", "nade", "c"): ONLY_LEAPS,
    ("gru", "nade", ""): GATED_BEFORE_NADE,
    ("gru", "nade", "c"): ONLY_LEAPS,
}
"""Settings of descent for gated units, keyed by cell, output, and letter ("" for plain descent)."""

MUSIC = {"output": "bernoulli"}
WORDS = {"output": "factored", "chunk_length": 40, "learning_rate_schedule": "rnnlm"}
CHARACTERS = {"output": "softmax", "chunk_length": 150, "hidden_size": 500}

TASKS = {
    "hidden_size": 50,
    "recurrent_init": "normal",
    "recurrent_scale": 0.8,
    "input_scale": 0.12,
    "output_scale": 0.12,
    "lanes": 20,
    "curvature_sequences": 250,
    "slice_size": 250,
    "learning_rate_schedule": "constant",
    "patience": 200,
    "max_epochs": 1000,
}

# A user's own sequences, whatever they are.
OWN = {"hidden_size": 100, "chunk_length": 100, "lanes": 8, "recurrent_scale": 0.9, "input_scale": 0.3}

TARGETS: dict[TargetKind, dict] = {
    "frames": MUSIC,
    "words": WORDS,
    "characters": CHARACTERS,
    "classes": {"output": "softmax", **TASKS},
    "numbers": {"output": "gaussian", **TASKS},
    "measurements": {"output": "normal", **OWN},
    "switches": {"output": "bernoulli", **OWN},
    "labels": {"output": "softmax", **OWN},
}

USUAL: dict[TargetKind, str] = {
    "frames": "nade:sgd+w",
    "words": "sgd+c",
    "characters": "sgd+c",
    "classes": "hf",
    "numbers": "hf",
    "measurements": "adam",
    "switches": "adam",
    "labels": "adam",
}
"""The default recipes: the best on each kind of data for the time they take."""

PATIENT = {"plateau_epochs": 4, "patience": 16, "averaging": 2000}
"""For a few dozen to a few hundred songs: one epoch says little, and a mean of weights much more than the last ones."""

JOINT_KEYS = {"activation": "sigmoid", "nade_size": 200, "learning_rate": 1.0, "dropout": 0.4, **PATIENT}
"""For NADE on anybody's music, chosen on corpora that are in no table (docs/own-data.md)."""

SEPARATE_KEYS = {"hidden_size": 300, "activation": "sigmoid", "learning_rate": 0.6, "dropout": 0.3, **PATIENT}
"""The same for independent keys."""

# With what the results on the paper's data sets were made: before NADE, and for independent keys.
BRIEF = {"learning_rate": 0.6, "dropout": 0.3, "plateau_epochs": 2, "patience": 6, "averaging": 0.0}
BRIEF_SEPARATE = {"dropout": 0.1, "plateau_epochs": 2, "patience": 12, "averaging": 0.0}

# For descent on synthetic tasks, by letter: starts from which gradients survive long spans.
SPANNING: dict[str, dict] = {
    "": {"recurrent_init": "orthogonal", "recurrent_scale": 1.0, "input_scale": 0.1},
    "c": {"clip": 1.0},
    "r": {"recurrent_init": "identity", "learning_rate": 0.03, "l1": 0.0},
}

CHORALES = BRIEF | PATIENT
RECTIFIED_CHORALES = {
    "learning_rate": 3.0,
    "l1": 0.0474,
    "recurrent_scale": 1.0,
    "input_scale": 0.03,
    "output_scale": 0.03,
}

WORDS_BY_DESCENT = {
    "activation": "sigmoid",
    "learning_rate": 2.0,
    "recurrent_scale": 1.0,
    "input_scale": 0.1,
    "output_scale": 0.05,
    "dropout": 0.2,
}

# For an RBM: dropout slows learning on few songs, and on songs that are alike the weights grow until Z is hard to
# estimate.
SMALL_MACHINE = {"hidden_size": 150, "activation": "tanh", "dropout": 0.0}

# For more than ten times the frames of jsb: a tenth of the passes takes about as many updates.
SHORT_START = {"pretrain_frames": 6, "pretrain_recurrent": 1}

# Settings of descent, keyed by output, by kind of data or data set (which overrides its kind), and by letter ("" for
# plain descent). These and all that follow, if nothing else is said, were found by search on validation scores.
DESCENT: dict[tuple[str, str, str], dict] = {
    ("bernoulli", "frames", ""): SEPARATE_KEYS,
    ("bernoulli", "frames", "r"): {"learning_rate": 0.05},
    ("bernoulli", "jsb", ""): {"learning_rate": 1.5, "patience": 12},
    ("bernoulli", "jsb", "c"): {"clip": 5.0},
    ("bernoulli", "jsb", "r"): {"learning_rate": 0.0173},
    ("bernoulli", "nottingham", ""): BRIEF_SEPARATE,
    ("bernoulli", "musedata", ""): BRIEF_SEPARATE,
    ("bernoulli", "nottingham", "r"): {"learning_rate": 0.106, "input_scale": 0.1, "dropout": 0.3},
    ("bernoulli", "piano-midi", ""): BRIEF_SEPARATE | {"learning_rate": 1.0, "dropout": 0.6},
    ("nade", "frames", ""): JOINT_KEYS,
    ("nade", "frames", "c"): {"clip": 1.0},
    ("nade", "frames", "r"): {"learning_rate": 0.3, "l1": 1e-3, "input_scale": 0.05, "output_scale": 0.03},
    ("nade", "bach", ""): CHORALES,
    ("nade", "bach", "c"): {"clip": 0.5},
    ("nade", "bach", "r"): RECTIFIED_CHORALES,
    ("nade", "jsb", ""): CHORALES,
    ("nade", "jsb", "c"): {"clip": 0.5},
    ("nade", "jsb", "r"): RECTIFIED_CHORALES,
    ("nade", "nottingham", ""): BRIEF,
    ("nade", "musedata", ""): BRIEF,
    ("nade", "piano-midi", ""): BRIEF | {"dropout": 0.5},
    ("nade", "piano-midi", "c"): {"clip": 0.5},
    ("nade", "piano-midi", "r"): {
        "hidden_size": 300,
        "learning_rate": 0.6,
        "recurrent_scale": 0.2,
        "dropout": 0.6,
        "l1": 0.01,
    },
    ("rbm", "frames", ""): {
        "hidden_size": 200,
        "activation": "sigmoid",
        "learning_rate": 0.3,
        "output_scale": 0.03,
        "dropout": 0.3,
        "plateau_epochs": 4,
    },
    ("rbm", "frames", "c"): {"clip": 3.0},
    ("rbm", "bach", ""): SMALL_MACHINE,
    ("rbm", "jsb", ""): SMALL_MACHINE,
    ("rbm", "piano-midi", ""): {
        "dropout": 0.5,
        "averaging": 2000,
        "learning_rate_schedule": "cosine",
        "max_epochs": 60,
        "patience": 60,
    },
    # These songs are so much alike that the weights grow strong, and Gibbs steps alone stay where they start.
    ("rbm", "nottingham", ""): SMALL_MACHINE
    | SHORT_START
    | {
        "tempering": 10,
        "averaging": 4000,
        "learning_rate_schedule": "cosine",
        "max_epochs": 45,
        "patience": 45,
    },
    ("rbm", "musedata", ""): SHORT_START,
    ("softmax", "classes", ""): SPANNING[""],
    ("softmax", "classes", "c"): SPANNING["c"],
    ("softmax", "classes", "r"): SPANNING["r"],
    ("gaussian", "numbers", ""): SPANNING[""],
    ("gaussian", "numbers", "c"): SPANNING["c"],
    ("gaussian", "numbers", "r"): SPANNING["r"],
    ("factored", "words", ""): WORDS_BY_DESCENT,
    ("factored", "words", "c"): {"clip": 1.0},
    ("factored", "words", "l"): {"input_scale": 0.05},
    ("tree", "words", ""): WORDS_BY_DESCENT,
    ("tree", "words", "c"): {"clip": 1.0},
    # 0.03 nats better than halving by the gain of single epochs, given that the number of passes needed is known.
    ("factored", "ptb-words", ""): {"learning_rate_schedule": "cosine", "max_epochs": 30},
    # For rectifiers, halving by the gain of single epochs ends far too early.
    ("factored", "words", "r"): {
        "learning_rate": 0.5,
        "learning_rate_schedule": "cosine",
        "max_epochs": 44,
        "recurrent_scale": 0.5,
        "input_scale": 0.1,
    },
    # Large initial weights and many updates on short chunks.
    ("softmax", "characters", ""): {
        "activation": "sigmoid",
        "learning_rate": 3.0,
        "recurrent_scale": 5.0,
        "input_scale": 2.0,
        "output_scale": 0.05,
        "chunk_length": 50,
    },
    ("softmax", "characters", "c"): {"clip": 1.0},
    ("softmax", "characters", "r"): {"learning_rate": 0.5, "recurrent_scale": 1.0, "input_scale": 1.0},
    ("softmax", "ptb-chars", ""): {"learning_rate_schedule": "inverse", "decay_steps": 50_000, "max_epochs": 12},
}

# The following were set by hand, by what is usual for such networks, and are not tuned yet. The loss is a mean over the
# steps and lanes of a chunk, so gradients are short: the rate is large, and the norm is clipped where it is small.
GATED_WORDS = {
    "hidden_size": 256,
    "activation": "tanh",
    "lanes": 20,
    "chunk_length": 35,
    "learning_rate": 25.0,
    "clip": 0.2,
    "dropout": 0.3,
    "layer_dropout": 0.3,
    "classes": 100,
    "class_rule": "square-root",
    "learning_rate_schedule": "cosine",
    "max_epochs": 30,
}
GATED_CHARACTERS = {
    "lanes": 16,
    "chunk_length": 100,
    "learning_rate": 10.0,
    "clip": 0.25,
    "learning_rate_schedule": "cosine",
    "max_epochs": 12,
}

# Settings of a single recipe on a single data set, on top of the above.
TUNED: dict[tuple[str, str], dict] = {
    # One update covers the whole training split.
    ("hf", "jsb"): {
        "hidden_size": 150,
        "minimal_damping": 0.02,
        "block": 1000,
        "curvature_sequences": 128,
        "averaging": 10,
        "patience": 4,
    },
    ("hf", "piano-midi"): {"hidden_size": 300, "dropout": 0.5, "minimal_damping": 0.02},
    ("sgd+cl", "musedata"): {"leaky_share": 0.25},
    # Four parallel streams make twice as many passes in the same time and tolerate a larger rate.
    ("sgd+c", "ptb-chars"): {
        "lanes": 4,
        "learning_rate": 10.0,
        "learning_rate_schedule": "cosine",
        "max_epochs": 36,
    },
    ("nade:sgd", "jsb"): {"dropout": 0.5, "averaging": 8000},
    ("nade:sgd", "bach"): {"dropout": 0.5, "averaging": 8000},
    ("lstm/nade:sgd+cm", "jsb"): {"dropout": 0.7},
    ("gru/nade:sgd+cm", "jsb"): {"dropout": 0.7},
    ("nade:hf", "jsb"): {"block": 1000, "curvature_sequences": 128, "averaging": 10, "patience": 4},
    # The curvature of 32 sequences needs more damping here.
    ("nade:hf", "piano-midi"): {"dropout": 0.5, "minimal_damping": 0.01, "averaging": 60},
    ("nade:hf", "musedata"): {"max_epochs": 100},
    ("embedding+lstm/sgd+c", "ptb-words"): GATED_WORDS,
    ("embedding+gru/sgd+c", "ptb-words"): GATED_WORDS,
    ("lstm/sgd+c", "ptb-chars"): GATED_CHARACTERS,
    ("gru/sgd+c", "ptb-chars"): GATED_CHARACTERS,
}
