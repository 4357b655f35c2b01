"""Every setting of a training run, as one frozen dataclass whose field docstrings are the command line's help.

It checks values and does nothing else. `recipes.py` says which values a recipe sets.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict, get_args, get_origin, get_type_hints

import msgspec
import tyro

from longspan.errors import InputError
from longspan.registry import parse_cell

Activation = Literal["tanh", "sigmoid", "rectifier"]
Predicted = Literal["keys", "symbols", "numbers"]
"""What is predicted at a step: keys that are on or off, one symbol of a vocabulary, or numbers."""

LONGEST_NAME = 4096
"""Characters of a setting that is text; `data` may be a path."""
OUTPUTS_FOR: dict[Predicted, tuple[str, ...]] = {
    "keys": ("bernoulli", "nade", "rbm"),
    "symbols": ("softmax", "factored", "tree"),
    "numbers": ("gaussian", "normal", "mdn", "rnade"),
}
"""The package's outputs, keyed by what they predict; users may register others."""
TIEABLE = ("softmax", "factored")
"""Outputs with one vector per symbol, which may be that of an embedding."""
NOT_CONVEX = ("normal", "mdn", "rnade")
"""Outputs whose loss is not convex in the logits, as Hessian-free optimization needs it."""
OUTPUT_NAMES = tuple(name for names in OUTPUTS_FOR.values() for name in names)
CELL_NAMES = ("leaky", "lstm", "gru", "multiplicative", "delayed", "band-pass", "lru", "rate", "embedding")
"""The package's cells; users may register others."""


LARGEST, LARGEST_WHOLE = 1e38, 2**62
"""Magnitude of a setting without a narrower interval: what float32 and int64 can hold."""


@dataclass(frozen=True)
class Interval:
    """Where a number must lie, as a part of a field's annotation."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def check(self, name: str, value: float) -> None:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        if not (above and below and abs(value) <= (LARGEST if isinstance(value, float) else LARGEST_WHOLE)):
            raise InputError(f"{name} must be {self}: got {value}", fields=[name])

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"a finite number {'above' if self.open_low else 'of at least'} {self.low:g}"
        low, high = "above" if self.open_low else "from", "to below" if self.open_high else "to"
        return f"{low} {self.low:.10g} {high} {self.high:.10g}"


@dataclass(frozen=True)
class TrainConfig:
    """Everything that determines what a run computes: the same config, data and machine give the same bytes."""

    recipe: Annotated[str, tyro.conf.Suppress] = "sgd+c"
    """The recipe this config started from: C clipping, L leaky units, R rectifiers + L1, M momentum, T told of the
    past, W with memory."""
    data: str = "bach"
    """Data set: a name from `longspan data list`, or a path to MIDI files, an .npz file or a text file."""
    span: Annotated[int, Interval(1, 100_000)] = 30
    """Synthetic tasks: approximate sequence length, over which something must be remembered."""
    seed: Annotated[int, Interval(0, 2**32 - 1)] = 0
    """Seed of the initial weights, the song order and everything else that is random."""

    # Model
    cell: str = "leaky"
    """Recurrent cell: leaky (the paper's), lstm, gru, multiplicative, delayed, band-pass, lru, rate, or one registered
    by a plugin; with settings of its own, as in gru,reset=before, and layers, as in 2xlstm,size=100, delayed+gru or
    embedding+lstm (docs/cells.md)."""
    output: str = "bernoulli"
    """Distribution of the keys of a frame (bernoulli, nade, rbm), of a symbol or class (softmax, factored by
    classes, a tree of decisions), or of numbers: gaussian (unit variance, so least squares), normal (learned variance),
    mdn (a mixture of Gaussians), rnade (number by number)."""
    nade_size: Annotated[int, Interval(1, 65536)] = 150
    """nade, rnade: number of hidden units that model how the keys or numbers of a step depend on each other."""
    components: Annotated[int, Interval(1, 1000)] = 5
    """mdn, rnade: number of Gaussians in a mixture."""
    rbm_size: Annotated[int, Interval(1, 65536)] = 150
    """rbm: number of hidden units that model how the keys of a frame depend on each other."""
    cd_steps: Annotated[int, Interval(1, 10_000)] = 15
    """rbm: number of Gibbs steps in contrastive divergence."""
    tempering: Annotated[int, Interval(0, 10_000)] = 0
    """rbm: levels of a tempered transition halfway through the Gibbs steps, which lets chains reach modes that Gibbs
    steps alone do not; 0 disables it."""
    classes: Annotated[int, Interval(1, 1_000_000)] = 30
    """factored: number of word classes."""
    class_rule: Literal["frequency", "square-root"] = "frequency"
    """factored: give classes equal total word frequency, or equal total square root of it, which makes their sizes more
    even."""
    tied: Literal["none", "embedding"] = "none"
    """softmax, factored: matrix that the output shares; embedding: that of the first layer, as in embedding+lstm, so
    that a symbol has one vector for being read and for being predicted."""
    hidden_size: Annotated[int, Interval(1, 65536)] = 200
    """Number of recurrent units."""
    activation: Activation = "tanh"
    """Nonlinearity of the recurrent units."""
    leaky_share: Annotated[float, Interval(0, 1)] = 0.0
    """Fraction of units that are leaky integrators, 0 to 1."""
    leak_low: Annotated[float, Interval(0, 1, open_high=True)] = 0.02
    """Lower end of the interval from which leak factors (the paper's alpha) are drawn."""
    leak_high: Annotated[float, Interval(0, 1, open_high=True)] = 0.2
    """Upper end of that interval."""
    leak_spread: Literal["uniform", "time-scales"] = "uniform"
    """How leak factors are drawn: uniformly, or with time constants 1 / (1 - alpha) uniform on a logarithmic scale,
    such as from alpha 0.5 to 0.999."""
    input_scale: Annotated[float, Interval(0)] = 0.1
    """Standard deviation of the initial input weights."""
    recurrent_init: Literal["orthogonal", "normal", "identity"] = "orthogonal"
    """Kind of initial recurrent matrix, before scaling."""
    recurrent_scale: Annotated[float | Literal["auto"], Interval(0)] = 1.0
    """Spectral scale of the initial recurrent matrix (normal: expected spectral radius); auto: the one at which
    gradients neither grow nor vanish at first, which depends on the nonlinearity."""
    output_scale: Annotated[float, Interval(0)] = 0.1
    """Standard deviation of the initial output weights."""

    # Objective
    loss: Literal["mean", "sum"] = "mean"
    """Loss of a chunk: the sum over its steps divided by the chunk length, or the plain sum."""
    l1: Annotated[float, Interval(0)] = 0.0
    """L1 penalty on the hidden outputs, scaled like the loss."""
    omega: Annotated[float, Interval(0)] = 0.0
    """Weight of Pascanu's penalty on gradients that change their length from one step back to the next; sgd only."""
    dropout: Annotated[float, Interval(0, 1, open_high=True)] = 0.0
    """Fraction of the hidden outputs hidden from the output layer in training, redrawn at every step of every chunk;
    hf: drawn once per update."""
    layer_dropout: Annotated[float, Interval(0, 1, open_high=True)] = 0.0
    """Fraction of each layer's outputs hidden from the next layer in training, likewise; for cells with layers."""

    # Memory
    memory: str = "none"
    """Memory added to the trained model, its few weights fitted to the validation split: recall (copies of earlier
    steps), cache (text: symbols used recently in a similar state), dynamic (the network keeps learning from what it
    reads), recall+dynamic, cache+dynamic, one of your own, or none."""

    cues: str = "none"
    """Further inputs of a music network beside the last frame: recall (the frame that followed the latest earlier
    passage like the present one, and the length of the match), meter (the step's position in groups of 2, 3, 4, 8 and
    16), recall+meter, or none."""
    cue_dropout: Annotated[float, Interval(0, 1)] = 0.5
    """recall: fraction of the training steps at which nothing is recalled, so that the network does not rely on it."""

    # Optimization
    learning_rate: Annotated[float, Interval(0, open_low=True)] = 0.1
    """Initial step size."""
    learning_rate_schedule: Literal["constant", "plateau", "rnnlm", "inverse", "cosine"] = "plateau"
    """plateau: halve and restore the best weights when validation stalls; rnnlm: Mikolov's, halve after every epoch
    once one gains less than 0.3 %; inverse: 1/(1+t/tau); cosine: half a cosine over epochs, down to zero at
    max_epochs."""
    plateau_epochs: Annotated[int, Interval(1)] = 2
    """plateau: evaluations without improvement before the rate is halved."""
    decay_steps: Annotated[float, Interval(0, open_low=True)] = 10_000
    """inverse: tau, in updates."""
    cooldown: Annotated[float, Interval(0, 1)] = 0.0
    """Fraction of max_updates, at the end, over which the rate falls in a straight line to zero, on top of the
    schedule; 0: none."""
    momentum: Annotated[float, Interval(0, 1, open_high=True)] = 0.0
    """Nesterov momentum, from 0 to below 1; the upper limit if the schedule is a ramp."""
    momentum_schedule: Literal["constant", "ramp"] = "constant"
    """ramp: Sutskever's min(1 - 2^(-1-log2(t/250+1)), momentum)."""
    clip: Annotated[float | Literal["auto", "none"], Interval(0, open_low=True)] = 15.0
    """Largest gradient norm; auto: the average norm over one pass of the data; none: no clipping."""
    averaging: Annotated[float, Interval(0)] = 0.0
    """Validate and keep the mean of the weights over about this many recent updates, but at most a quarter of all
    updates so far; 0: use the current weights."""

    # Hessian-free optimization
    optimizer: str = "sgd"
    """sgd: clipped descent with Nesterov momentum, one update per chunk; hf: Hessian-free, one update per block of
    chunks; adam, adamw: as in Optax, with `momentum` as b1; rmsprop: as in Optax, with this momentum."""
    initial_damping: Annotated[float, Interval(0, open_low=True)] = 0.5
    """hf: initial lambda, the penalty on large steps; it adapts."""
    minimal_damping: Annotated[float, Interval(0)] = 1e-8
    """hf: lower limit of lambda; a larger one keeps steps short where a small data set would be overfitted."""
    structural_damping: Annotated[float, Interval(0)] = 1.0
    """hf: mu, the penalty on changes of the hidden units, relative to lambda; 0 disables it."""
    cg_iterations: Annotated[int, Interval(1, 100_000)] = 250
    """hf: maximum number of conjugate-gradient iterations per update."""
    curvature_sequences: Annotated[int, Interval(1, 1_000_000)] = 128
    """hf: number of the block's sequences (lanes of chunks) that give the curvature, redrawn for every update."""
    slice_size: Annotated[int, Interval(1, 1_000_000)] = 32
    """hf: number of sequences computed at a time; bounds the memory."""

    # Pretraining
    pretrain_frames: Annotated[int, Interval(0)] = 0
    """nade, rbm: passes over shuffled frames that fit the output layer alone before training."""
    pretrain_recurrent: Annotated[int, Interval(0)] = 0
    """nade, rbm: passes that fit the recurrent network with independent keys as its output before training."""
    pretrain_rate: Annotated[float, Interval(0, open_low=True)] = 0.05
    """nade, rbm: step size of the pretrain_recurrent passes; independent keys need a smaller one than an RBM does."""

    # Sequences and budget
    chunk_length: Annotated[int, Interval(1, 1_000_000)] = 100
    """Steps that a gradient spans; the hidden state is carried between the chunks of a song."""
    segment: Annotated[int, Interval(0, 1_000_000)] = 0
    """Steps of a chunk whose intermediate values are kept at a time; those of the others are computed again for the
    gradient, which takes about a third longer and bounds the memory of long chunks. 0: keep all."""
    lanes: Annotated[int, Interval(1, 65536)] = 1
    """Songs (or text streams) trained in parallel; 1 is the paper's regime."""
    replicas: Annotated[int, Interval(1, 256)] = 1
    """Copies of the network that are trained at once, each on its share of the lanes and a core of its own, and joined
    after every block: a weight takes the mean of the changes of those that changed it. Not for hf."""
    max_epochs: Annotated[int, Interval(1)] = 200
    """Maximum number of passes over the training data."""
    max_updates: Annotated[int, Interval(0)] = 0
    """Maximum number of updates, which may cut the last pass short; 0 means no limit."""
    patience: Annotated[int, Interval(1)] = 12
    """Stop after this many evaluations without a better validation score."""
    block: Annotated[int, Interval(1, 65536)] = 64
    """Chunks given to the optimizer at a time. sgd: larger is faster, smaller responds to Ctrl-C sooner; hf: the chunks
    that one update's gradient covers."""

    # Observation
    watch_lags: Annotated[int, Interval(0, 100_000)] = 0
    """After every epoch, record the gradient by lag up to this lag and the share of dead units; 0: do not."""

    # Machine
    threads: Annotated[int, Interval(1, 1024)] = 1
    """Number of compute threads, recorded because the last bits of a result depend on it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: training reads the recurrent matrix of leaky cells from a rounded copy, which is faster with one lane;
    what is trained, kept and scored stays float32. Not for hf."""

    @property
    def cores(self) -> int:
        """Number of cores that training keeps busy."""
        return self.threads * self.replicas

    @property
    def units(self) -> str:
        """The recurrent units in words: `200 tanh units`, or `50 tanh + 30 sigmoid units` where layers differ."""
        layers = [dict(layer.options) for layer in parse_cell(self.cell)]
        sizes = [layer.get("size") or str(self.hidden_size) for layer in layers]
        kinds = [layer.get("activation") or self.activation for layer in layers]
        alike = sizes if len(set(kinds)) == 1 else [" ".join(each) for each in zip(sizes, kinds, strict=True)]
        return " + ".join(alike) + (f" {kinds[0]} units" if alike is sizes else " units")

    def __post_init__(self) -> None:
        for name, value in as_dict(self).items():
            if hasattr(value, "item"):  # a NumPy scalar
                object.__setattr__(self, name, value.item())
        check_types(as_dict(self))
        for name in ("recipe", "data"):
            if getattr(self, name).startswith("-"):  # in a command that repeats the run, it would be an option
                raise InputError(f"{name} cannot begin with a hyphen: got {getattr(self, name)}", fields=[name])
        for name, value in as_dict(self).items():
            if isinstance(value, str) and len(value) > LONGEST_NAME:
                raise InputError(f"{name} has {len(value)} characters: expected at most {LONGEST_NAME}", fields=[name])
        if len(parse_cell(self.cell)) == 1 and self.layer_dropout > 0:
            raise InputError(
                f"layer_dropout hides a layer from the next one, and {self.cell} is a single one: choose layers, such "
                "as embedding+lstm, or dropout, which hides units from the output",
                fields=["layer_dropout", "cell"],
            )
        for name, interval in INTERVALS.items():
            if not isinstance(value := getattr(self, name), str):
                interval.check(name, value)
        if self.tied == "embedding" and (self.output not in TIEABLE or parse_cell(self.cell)[0].name != "embedding"):
            raise InputError(
                f"tied shares the matrix of an embedding with the output {' or '.join(TIEABLE)}: got cell {self.cell} "
                f"and output {self.output}; choose both, such as cell embedding+lstm with output factored",
                fields=["tied", "cell", "output"],
            )
        if self.lanes % self.replicas or (self.replicas > 1 and self.optimizer == "hf"):
            raise InputError(
                f"replicas share the lanes of a first-order method equally: got {self.replicas} replicas, {self.lanes} "
                f"lanes and {self.optimizer}; choose lanes {max(self.lanes // self.replicas, 1) * self.replicas}",
                fields=["replicas", "lanes", "optimizer"],
            )
        if self.leak_low > self.leak_high:
            message = f"leak_low must not exceed leak_high: got {self.leak_low} > {self.leak_high}"
            raise InputError(message, fields=["leak_low", "leak_high"])
        if self.cooldown > 0 and self.max_updates == 0:
            message = "cooldown ends at max_updates, which is 0: set max_updates"
            raise InputError(message, fields=["cooldown", "max_updates"])
        if self.omega > 0 and (self.optimizer == "hf" or self.segment > 0):
            other, field = ("hf", "optimizer") if self.optimizer == "hf" else (f"segment {self.segment}", "segment")
            raise InputError(f"omega needs the gradients of whole chunks: got {other}", fields=["omega", field])
        others = {"hf"} if self.optimizer == "hf" else {layer.name for layer in parse_cell(self.cell)} - {"leaky"}
        if self.precision != "float32" and others:
            message = f"precision {self.precision} is for leaky cells trained by first-order methods: got {min(others)}"
            raise InputError(message, fields=["precision"])
        if self.optimizer == "hf" and self.output in ("rbm", *NOT_CONVEX):
            needed = "likelihood is exact" if self.output == "rbm" else "loss is convex"
            instead = f"train it by sgd, such as {self.output}:sgd+c, or choose another output"
            raise InputError(f"hf needs an output whose {needed}: got {self.output}; {instead}")


def check_output(config: TrainConfig, predicted: Predicted) -> None:
    """Refuse a built-in output that cannot predict what a data set asks for."""
    if config.output in OUTPUT_NAMES and config.output not in OUTPUTS_FOR[predicted]:
        raise InputError(
            f"output {config.output} does not predict {predicted}, which {config.data!r} asks for: "
            f"expected {' or '.join(OUTPUTS_FOR[predicted])}",
            fields=["output"],
        )


NAMES = tuple(field.name for field in dataclasses.fields(TrainConfig))
FIELDS = frozenset(NAMES)
TYPES = get_type_hints(TrainConfig)
INTERVALS = {
    name: part
    for name, hint in get_type_hints(TrainConfig, include_extras=True).items()
    for part in getattr(hint, "__metadata__", ())
    if isinstance(part, Interval)
}


def as_dict(config: TrainConfig) -> dict:
    """The config as plain values, ready for JSON or TOML."""
    return {name: getattr(config, name) for name in NAMES}  # none is a container, which `asdict` looks for at length


def from_dict(values: dict) -> TrainConfig:
    """Inverse of `as_dict`; unknown names are refused rather than ignored."""
    unknown = sorted(set(values) - FIELDS)
    if unknown:
        raise InputError(f"unknown setting {', '.join(unknown)}: expected some of {', '.join(sorted(FIELDS))}")
    return TrainConfig(**values)


def check_types(values: dict) -> None:
    """Refuse values of the wrong type, such as text for a number."""
    for name, value in values.items():
        try:
            msgspec.convert(value, TYPES[name])
        except msgspec.ValidationError as error:
            choices = get_args(TYPES[name]) if get_origin(TYPES[name]) is Literal else ()
            expected = f"expected one of {', '.join(map(str, choices))}" if choices else str(error)
            raise InputError(f"{name} cannot be {value!r}: {expected}", fields=[name]) from error


class Settings(TypedDict, total=False):
    """Any field of `TrainConfig` except those that are separate arguments of `train`: recipe, data, optimizer."""

    span: int
    seed: int
    cell: str
    output: str
    nade_size: int
    components: int
    rbm_size: int
    cd_steps: int
    tempering: int
    classes: int
    class_rule: Literal["frequency", "square-root"]
    tied: Literal["none", "embedding"]
    hidden_size: int
    activation: Activation
    leaky_share: float
    leak_low: float
    leak_high: float
    leak_spread: Literal["uniform", "time-scales"]
    input_scale: float
    recurrent_init: Literal["orthogonal", "normal", "identity"]
    recurrent_scale: float | Literal["auto"]
    output_scale: float
    loss: Literal["mean", "sum"]
    l1: float
    omega: float
    dropout: float
    layer_dropout: float
    memory: str
    cues: str
    cue_dropout: float
    learning_rate: float
    learning_rate_schedule: Literal["constant", "plateau", "rnnlm", "inverse", "cosine"]
    plateau_epochs: int
    decay_steps: float
    cooldown: float
    momentum: float
    momentum_schedule: Literal["constant", "ramp"]
    clip: float | Literal["auto", "none"]
    averaging: float
    initial_damping: float
    minimal_damping: float
    structural_damping: float
    cg_iterations: int
    curvature_sequences: int
    slice_size: int
    pretrain_frames: int
    pretrain_recurrent: int
    pretrain_rate: float
    chunk_length: int
    segment: int
    lanes: int
    replicas: int
    max_epochs: int
    max_updates: int
    patience: int
    block: int
    watch_lags: int
    threads: int
    precision: Literal["float32", "bfloat16"]
