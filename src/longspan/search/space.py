"""The definition of a study: its base settings, its search space, and the settings that every slot draws from it.

A space names settings of `TrainConfig` and the values each may take. As TOML, one line each:

    learning_rate = { low = 1e-3, high = 10.0, log = true }   # an interval, uniform in the logarithm
    hidden_size = { low = 100, high = 400 }                   # integers if the setting is an integer
    activation = ["tanh", "sigmoid"]                          # a choice; a value listed twice is twice as likely
    clip = 5.0                                                # a fixed value

A learning rate may have `effective = true`: the drawn value is then multiplied by 1 - momentum, because with momentum
each gradient acts 1 / (1 - momentum) times. Slot 0 is always the recipe itself; the space applies to the others.
"""

import dataclasses
import functools
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import msgspec
import numpy as np

from longspan import __version__
from longspan.config import TYPES, Predicted, TrainConfig, as_dict, check_output, from_dict
from longspan.errors import InputError
from longspan.files import check_plain_name, read_toml

FORMAT = 1
HEARTBEAT_SECONDS, LONGEST_HEARTBEAT = 30, 86_400
Sampling = Literal["random", "sobol"]

SIGNIFICANT_DIGITS = 4
"""Significant digits of a drawn number: enough for a search, few enough to read and to be equal on every machine."""
MOST_CHOICES = 1000
"""Of a setting, each of which is checked before a study begins."""
NOT_SEARCHED = ("recipe", "data", "threads", "replicas")
EXPECTED = "expected { low = .., high = .. }, a list of choices or a value"


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, uniform in value or in the logarithm."""

    low: float
    high: float
    log: bool = False
    whole: bool = False
    effective: bool = False
    """For a learning rate: multiply the drawn value by 1 - momentum."""

    def draw(self, position: float, slot: int) -> float:
        """The number at a position in [0, 1) of the interval."""
        if self.whole and not self.log:
            return math.floor(self.low + position * (self.high - self.low + 1))
        if self.log:
            value = self.low * (self.high / self.low) ** position
        else:
            value = self.low + position * (self.high - self.low)
        value = round(value) if self.whole else rounded(value)
        return min(max(value, self.low), self.high)

    def extremes(self) -> tuple:
        return self.low, self.high


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: tuple

    def draw(self, position: float, slot: int):
        """The value at a position in [0, 1) of the list."""
        return self.values[int(position * len(self.values))]

    def extremes(self) -> tuple:
        return self.values


@dataclass(frozen=True)
class Count:
    """The start value plus the slot number; used to run the same settings with several seeds."""

    start: int

    def draw(self, position: float, slot: int) -> int:
        return self.start + slot

    def extremes(self) -> tuple:
        return (self.start,)


Space = dict[str, Interval | Choices | Count]


def position(seed: int, slot: int, name: str) -> float:
    """The position of a slot's setting in its range: uniform, and the same on every machine and in every version.

    Example:
        >>> round(position(0, 1, "learning_rate"), 6)
        0.70732
    """
    digest = hashlib.sha256(f"{seed}/{slot}/{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def positions(names: list[str], seed: int, slot: int, sampling: Sampling) -> dict[str, float]:
    """The positions of a slot's settings in their ranges; none for slot 0, which draws nothing.

    With `sobol` the slots of a study fill the space more evenly than independent draws: they are the points of SciPy's
    scrambled Sobol sequence, with the settings in the order of their names.
    """
    if sampling == "random":
        return {name: position(seed, slot, name) for name in names}
    from scipy.stats import qmc  # takes half a second, which other studies need not spend

    sequence = qmc.Sobol(len(names), scramble=True, rng=np.random.default_rng(seed))
    point = sequence.fast_forward(slot - 1).random(1)[0] if slot > 1 else sequence.random(1)[0]
    return dict(zip(sorted(names), map(float, point), strict=True))


def slot_config(base: TrainConfig, space: Space, slot: int, sampling: Sampling = "random") -> TrainConfig:
    """The settings of a slot: slot 0 is `base` itself, the others draw the settings named in the space."""
    if slot == 0 or not space:
        return base
    places = positions(list(space), base.seed, slot, sampling)
    drawn = {name: dimension.draw(places[name], slot) for name, dimension in space.items()}
    if drawn.keys() >= {"leak_low", "leak_high"}:  # two ends of one interval, drawn independently
        drawn["leak_low"], drawn["leak_high"] = sorted((drawn["leak_low"], drawn["leak_high"]))
    rate = space.get("learning_rate")
    if isinstance(rate, Interval) and rate.effective:
        drawn["learning_rate"] = rounded(drawn["learning_rate"] * (1 - drawn.get("momentum", base.momentum)))
    return dataclasses.replace(base, **drawn)


def rounded(value: float) -> float:
    """Round a number to the digits that slots draw."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def changes(base: TrainConfig, config: TrainConfig) -> dict:
    """The settings in which a config differs from its base."""
    return {name: value for name, value in as_dict(config).items() if value != getattr(base, name)}


def read_space(path: Path, base: TrainConfig) -> dict:
    """Read a TOML space as a plain dictionary, checked against the settings it will change."""
    plain = read_toml(path, f"{EXPECTED} for each setting")
    try:
        parse_space(plain, base)
    except InputError as error:
        raise InputError(f"{path}: {error}", fields=error.fields) from error
    return plain


def parse_space(plain: dict, base: TrainConfig) -> Space:
    """Parse a plain dictionary as a space; all that it could draw is checked to be valid settings of `base`."""
    known = [field.name for field in dataclasses.fields(TrainConfig) if field.name not in NOT_SEARCHED]
    unknown = sorted(set(plain) - set(known))
    if unknown:
        raise InputError(f"cannot search {', '.join(unknown)}: expected some of {', '.join(known)}")
    space = {name: _dimension(name, value, whole=TYPES[name] is int) for name, value in plain.items()}
    for name, dimension in space.items():
        for value in dimension.extremes():
            _check_setting(base, space, name, value)
    return space


def _dimension(name: str, value: object, *, whole: bool) -> Interval | Choices | Count:
    if isinstance(value, list):
        if not 1 <= len(value) <= MOST_CHOICES:
            raise InputError(f"{name} has {len(value)} choices, expected from 1 to {MOST_CHOICES}; {EXPECTED}")
        return Choices(tuple(value))
    if not isinstance(value, dict):
        return Choices((value,))
    if value.keys() == {"start"} and whole:
        return Count(value["start"])
    known = {"low", "high", "log"} | ({"effective"} if name == "learning_rate" else set())
    if not {"low", "high"} <= value.keys() <= known:
        raise InputError(f"{name} is given as {value}; {EXPECTED}")
    interval = Interval(value["low"], value["high"], value.get("log", False), whole, value.get("effective", False))
    numbers = int if whole else (int, float)
    if not all(isinstance(end, numbers) and not isinstance(end, bool) for end in interval.extremes()):
        raise InputError(f"{name}: low and high must be {'whole ' if whole else ''}numbers, got {value}")
    for flag in ("log", "effective"):
        if not isinstance(getattr(interval, flag), bool):
            raise InputError(f"{name}: {flag} must be true or false, got {value}")
    if not interval.low <= interval.high:
        raise InputError(f"{name}: low must not exceed high, got {value}")
    if interval.log and interval.low <= 0:
        raise InputError(f"{name}: an interval with log = true must begin above 0, got {value}")
    return interval


def _check_setting(base: TrainConfig, space: Space, name: str, value: object) -> None:
    settings = as_dict(base) | {name: value}
    if space.keys() >= {"leak_low", "leak_high"} and name in ("leak_low", "leak_high"):
        settings |= {"leak_low": value, "leak_high": value}
    from_dict(settings)


class Definition(Protocol):
    """What a study says of its slots; `StudyDefinition` is that of a search."""

    @property
    def name(self) -> str: ...

    @property
    def format(self) -> int: ...

    @property
    def identity(self) -> str:
        """Differs between studies whose slots are not comparable."""
        ...

    @property
    def heartbeat_seconds(self) -> int: ...

    @property
    def grace_seconds(self) -> int: ...

    @property
    def prune(self) -> bool: ...

    @property
    def tested(self) -> "Literal['winner', 'every', 'none']": ...

    @property
    def base(self) -> TrainConfig: ...

    @property
    def parsed_space(self) -> Space: ...

    def config_of(self, slot: int) -> TrainConfig: ...

    def described(self) -> dict:
        """All that must be the same to continue the study, by name."""
        ...


class StudyDefinition(msgspec.Struct, frozen=True, dict=True):
    """Everything that determines the result of every slot, wherever and in whatever order the slots are run."""

    name: str
    config: dict
    """Settings of slot 0."""
    space: dict
    """What the other slots draw, in the form that `parse_space` reads."""
    fingerprint: str
    """Fingerprint of the data, so that no worker trains on different data."""
    prune: bool = False
    sampling: Sampling = "random"
    tested: Literal["winner", "every"] = "winner"
    """Which runs are scored on the test split once all slots are done."""
    heartbeat_seconds: int = HEARTBEAT_SECONDS
    longspan: str = __version__
    format: int = FORMAT

    @property
    def grace_seconds(self) -> int:
        """Time without a heartbeat after which a worker on another machine is considered dead."""
        return 4 * self.heartbeat_seconds

    @property
    def base(self) -> TrainConfig:
        """Settings of slot 0."""
        return self._parsed[0]

    @property
    def parsed_space(self) -> Space:
        return self._parsed[1]

    @functools.cached_property
    def _parsed(self) -> tuple[TrainConfig, Space]:
        base = from_dict(self.config)
        return base, parse_space(self.space, base)

    def config_of(self, slot: int) -> TrainConfig:
        """Settings of a slot."""
        return slot_config(self.base, self.parsed_space, slot, self.sampling)

    @property
    def identity(self) -> str:
        """Eight hexadecimal digits that differ between studies whose slots are not comparable.

        Settings at their default are left out, so that adding a setting later does not change the identity of all
        studies.
        """
        decisive = [changes(TrainConfig(), self.base), self.space, self.fingerprint, self.prune, self.tested]
        decisive += [] if self.sampling == "random" else [self.sampling]
        return hashlib.sha256(msgspec.json.encode(decisive, order="sorted")).hexdigest()[:8]

    def described(self) -> dict:
        space = {f"space of {name}": value for name, value in self.space.items()}
        rest = {name: getattr(self, name) for name in ("prune", "sampling", "tested")}
        return self.config | space | {"data fingerprint": self.fingerprint} | rest


def define(name: str, base: TrainConfig, space: dict, fingerprint: str, **options) -> StudyDefinition:
    """Make the definition of a study, checked."""
    parse_space(space, base)
    check_plain_name(name, "study")
    return StudyDefinition(name, as_dict(base), space, fingerprint, **options)


def effort_of(config: TrainConfig) -> float:
    """A number that grows with the time that a run takes, as far as it can be told beforehand: weights to read."""
    return config.hidden_size * (config.hidden_size + config.nade_size)


def check_slots(definition: StudyDefinition, slots: int, predicted: Predicted) -> None:
    """Refuse a study with a slot whose settings are incompatible with each other or with the data."""
    for slot in range(slots):
        try:
            check_output(definition.config_of(slot), predicted)
        except InputError as error:
            raise InputError(f"the settings of slot {slot} do not work: {error}", fields=error.fields) from error


def check_format(definition: Definition) -> None:
    """Refuse a study that another version made in a way that this one does not know."""
    if definition.format != FORMAT:
        raise InputError(f"study {definition.name} has format {definition.format}, this version reads {FORMAT}")


def check_same(old: Definition, new: Definition) -> None:
    """Refuse to continue a study with settings other than those it was started with."""
    check_format(old)
    if old.identity == new.identity:
        return
    before, after = old.described(), new.described()
    different = [
        f"{name} {before.get(name)!r}, now {after.get(name)!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    raise InputError(
        f"study {old.name} was started with other settings ({'; '.join(different)}): repeat them, or name another study"
    )
