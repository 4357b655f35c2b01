"""Every knob of a training run, as one frozen dataclass: its comments are the help of the command line.

Holds no behaviour beyond checking values. Which values a recipe sets is in `recipes.py`.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, Literal, get_type_hints

import msgspec
import tyro

from longspan.errors import InputError

Activation = Literal["tanh", "sigmoid", "rectifier"]
OutputName = Literal["bernoulli", "nade", "rbm", "softmax", "factored", "gaussian"]

OUTPUTS_FOR = {
    "music": ("bernoulli", "nade", "rbm"),
    "text": ("softmax", "factored"),
    "classes": ("softmax",),
    "numbers": ("gaussian",),
}
"""Outputs that predict each kind of data."""


@dataclass(frozen=True)
class TrainConfig:
    """All that decides what a run computes; the same config, data and machine give the same bytes."""

    recipe: Annotated[str, tyro.conf.Suppress] = "sgd+c"
    """The paper's letters this config started from: C clip, L leaky, R rectifier + L1, M momentum."""
    data: str = "bach"
    """Data set: a name from `longspan data list`, or a path to MIDI files, an .npz or a text."""
    span: int = 30
    """Synthetic tasks: about how long the sequences are, over which something is to be remembered."""
    seed: int = 0
    """Seed of initial weights, song order and everything else that is random."""

    # Model
    output: OutputName = "bernoulli"
    """Distribution of the next frame (bernoulli, nade, rbm), symbol (softmax, factored) or number (gaussian)."""
    nade_size: int = 150
    """nade: hidden units that tie the keys of a frame together."""
    rbm_size: int = 150
    """rbm: hidden units that tie the keys of a frame together."""
    cd_steps: int = 15
    """rbm: Gibbs steps of contrastive divergence."""
    tempering: int = 0
    """rbm: levels of a tempered transition halfway through those steps, which takes chains to modes that Gibbs steps
    do not reach; 0 for none."""
    classes: int = 30
    """factored: number of word classes."""
    class_rule: Literal["frequency", "square-root"] = "frequency"
    """factored: classes of equal total frequency, or of equal total square root of it, which are more even in size."""
    hidden_size: int = 200
    """Number of recurrent units."""
    activation: Activation = "tanh"
    """Non-linearity of the recurrent units."""
    leaky_share: float = 0.0
    """Share of units that are leaky integrators, 0 to 1."""
    leak_low: float = 0.02
    """Lower end of the interval leak factors (the paper's alpha) are drawn from."""
    leak_high: float = 0.2
    """Upper end of that interval."""
    input_scale: float = 0.1
    """Standard deviation of the initial input weights."""
    recurrent_init: Literal["orthogonal", "normal", "identity"] = "orthogonal"
    """Shape of the initial recurrent matrix, before scaling."""
    recurrent_scale: float = 1.0
    """Spectral scale of the initial recurrent matrix (normal: expected spectral radius)."""
    output_scale: float = 0.1
    """Standard deviation of the initial output weights."""

    # Objective
    loss: Literal["mean", "sum"] = "mean"
    """Loss of a chunk: sum over its steps divided by the chunk length, or the plain sum."""
    l1: float = 0.0
    """L1 penalty on the hidden outputs, scaled like the loss."""
    dropout: float = 0.0
    """Share of the hidden outputs that the output layer does not see in training, drawn anew at every step of every
    chunk; hf: once for all of an update."""

    # Optimization
    learning_rate: float = 0.1
    """Initial step size."""
    learning_rate_schedule: Literal["constant", "plateau", "rnnlm", "inverse", "cosine"] = "plateau"
    """plateau: halve when validation stalls, best weights restored; rnnlm: Mikolov's, halve every epoch once one gains
    under 0.3 %; inverse: 1/(1+t/tau); cosine: lower from epoch to epoch, to nothing at max_epochs, along half a
    cosine."""
    plateau_epochs: int = 2
    """plateau: evaluations without gain before the rate is halved."""
    decay_steps: float = 10_000
    """inverse: tau, in updates."""
    momentum: float = 0.0
    """Nesterov momentum, 0 to below 1; the ceiling if the schedule is a ramp."""
    momentum_schedule: Literal["constant", "ramp"] = "constant"
    """ramp: Sutskever's min(1 - 2^(-1-log2(t/250+1)), momentum)."""
    clip: float | Literal["auto", "none"] = 15.0
    """Largest gradient norm; auto: the average norm over one pass; none: no clipping."""
    averaging: float = 0.0
    """Judge and keep the mean of the weights over about the last so many updates, at most a quarter of all; 0: keep
    those after the last one."""

    # Hessian-free optimization
    optimizer: Literal["sgd", "hf"] = "sgd"
    """sgd: stochastic gradient descent, one update a chunk; hf: Hessian-free, one update a block of chunks."""
    initial_damping: float = 0.5
    """hf: first lambda, how much a large step is distrusted; it adapts."""
    minimal_damping: float = 1e-8
    """hf: lambda never falls below this; a larger one keeps steps short where few data would be learnt by heart."""
    structural_damping: float = 1.0
    """hf: mu, how much changes of the hidden units are distrusted, relative to lambda; 0 for not at all."""
    cg_iterations: int = 250
    """hf: conjugate gradient iterations per update at most."""
    curvature_sequences: int = 128
    """hf: sequences (lanes of chunks) of the block that give the curvature, drawn anew for every update."""
    slice_size: int = 32
    """hf: sequences computed at a time, which bounds the memory."""

    # Pretraining
    pretrain_frames: int = 0
    """nade, rbm: passes over shuffled frames that fit the output alone before training."""
    pretrain_recurrent: int = 0
    """nade, rbm: passes with independent keys as output that fit the recurrent network before training."""
    pretrain_rate: float = 0.05
    """nade, rbm: step size of those passes, which independent keys want smaller than an RBM does."""

    # Sequences and budget
    chunk_length: int = 100
    """Steps a gradient spans; the hidden state is carried between chunks of one song."""
    lanes: int = 1
    """Songs (or text streams) trained in parallel; 1 is the paper's regime."""
    max_epochs: int = 200
    """Passes over the training data at most."""
    patience: int = 12
    """Stop after this many evaluations without a better validation score."""
    block: int = 64
    """Chunks given to the optimizer at a time. sgd: larger is faster, smaller answers Ctrl-C sooner; hf: what the
    gradient of one update is taken over."""

    # Machine
    threads: int = 1
    """Threads of the computation, recorded because the last bits of a result depend on it."""

    def __post_init__(self) -> None:
        for rule in RULES:
            rule.check(self)
        if self.leak_low > self.leak_high:
            raise InputError(f"leak_low must not exceed leak_high: got {self.leak_low} > {self.leak_high}")
        if self.optimizer == "hf" and self.output == "rbm":
            raise InputError(
                "hf needs an output whose likelihood is exact: got rbm, which only estimates it; train it by sgd, such "
                "as rbm:sgd+c, or choose another output, such as nade:hf"
            )


@dataclass(frozen=True)
class Rule:
    """The interval a numeric field must lie in."""

    field: str
    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def check(self, config: TrainConfig) -> None:
        value = getattr(config, self.field)
        if isinstance(value, str):
            return
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        if not (above and below and math.isfinite(value)):
            flag = "--" + self.field.replace("_", "-")
            raise InputError(f"{flag} must be {self}: got {value}")

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"a finite number {'above' if self.open_low else 'of at least'} {self.low:g}"
        low, high = "above" if self.open_low else "from", "to below" if self.open_high else "to"
        return f"{low} {self.low:g} {high} {self.high:g}"


RULES = (
    Rule("seed", 0, 2**32 - 1),
    Rule("span", 1, 100_000),
    Rule("hidden_size", 1, 65536),
    Rule("nade_size", 1, 65536),
    Rule("rbm_size", 1, 65536),
    Rule("cd_steps", 1, 10_000),
    Rule("tempering", 0, 10_000),
    Rule("classes", 1, 1_000_000),
    Rule("leaky_share", 0, 1),
    Rule("leak_low", 0, 1, open_high=True),
    Rule("leak_high", 0, 1, open_high=True),
    Rule("input_scale", 0),
    Rule("recurrent_scale", 0),
    Rule("output_scale", 0),
    Rule("l1", 0),
    Rule("dropout", 0, 1, open_high=True),
    Rule("learning_rate", 0, open_low=True),
    Rule("plateau_epochs", 1),
    Rule("decay_steps", 0, open_low=True),
    Rule("momentum", 0, 1, open_high=True),
    Rule("clip", 0, open_low=True),
    Rule("averaging", 0),
    Rule("initial_damping", 0, open_low=True),
    Rule("minimal_damping", 0),
    Rule("structural_damping", 0),
    Rule("cg_iterations", 1, 100_000),
    Rule("curvature_sequences", 1, 1_000_000),
    Rule("slice_size", 1, 1_000_000),
    Rule("pretrain_frames", 0),
    Rule("pretrain_recurrent", 0),
    Rule("pretrain_rate", 0, open_low=True),
    Rule("chunk_length", 1, 1_000_000),
    Rule("lanes", 1, 65536),
    Rule("max_epochs", 1),
    Rule("patience", 1),
    Rule("block", 1, 65536),
    Rule("threads", 1, 1024),
)


def check_output(config: TrainConfig, kind: str) -> None:
    """Refuse an output that cannot predict this kind of data."""
    if config.output not in OUTPUTS_FOR[kind]:
        raise InputError(
            f"--output {config.output} does not predict {kind} such as {config.data!r}: "
            f"expected {' or '.join(OUTPUTS_FOR[kind])}"
        )


FIELDS = frozenset(field.name for field in dataclasses.fields(TrainConfig))
TYPES = get_type_hints(TrainConfig)


def as_dict(config: TrainConfig) -> dict:
    """The config as plain values, ready for JSON or TOML."""
    return dataclasses.asdict(config)


def from_dict(values: dict) -> TrainConfig:
    """The config of `as_dict`; unknown names are refused rather than ignored."""
    unknown = sorted(set(values) - FIELDS)
    if unknown:
        raise InputError(f"unknown setting {', '.join(unknown)}: expected some of {', '.join(sorted(FIELDS))}")
    check_types(values)
    return TrainConfig(**values)


def check_types(values: dict) -> None:
    """Refuse settings read from a file whose values are of another kind, such as text for a number."""
    for name, value in values.items():
        try:
            msgspec.convert(value, TYPES[name])
        except msgspec.ValidationError as error:
            raise InputError(f"{name} cannot be {value!r}: {error}") from error
