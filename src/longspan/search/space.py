"""Search spaces: what a slot's settings are drawn from, as a pure function of seed and slot (section 4.1.1).

A space names settings of `TrainConfig` and says for each what it may be. As TOML, one line each:

    learning_rate = { low = 1e-4, high = 1e-1, log = true }   # an interval, even in its logarithm
    hidden_size = { low = 100, high = 400 }                   # of whole numbers where the setting is one
    activation = ["tanh", "sigmoid"]                          # a choice; a value named twice is twice as likely
    clip = 5.0                                                # a value

Slot 0 is always the recipe as it stands; the space speaks of the others.
"""

import dataclasses
import hashlib
import math
import tomllib
import typing
from dataclasses import dataclass
from pathlib import Path

from longspan.config import TrainConfig, as_dict, from_dict
from longspan.errors import InputError

SIGNIFICANT_DIGITS = 4
"""Digits a drawn number keeps: enough for a search, few enough to read and to be the same on every machine."""
NOT_SEARCHED = ("recipe", "data", "threads")
EXPECTED = "expected { low = .., high = .. }, a list of choices or a value"


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, evenly or evenly in their logarithm."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, position: float, slot: int) -> float:
        """The number at a position from 0 to below 1 of the interval."""
        if self.whole and not self.log:
            return math.floor(self.low + position * (self.high - self.low + 1))
        if self.log:
            value = self.low * (self.high / self.low) ** position
        else:
            value = self.low + position * (self.high - self.low)
        value = round(value) if self.whole else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
        return min(max(value, self.low), self.high)

    def extremes(self) -> tuple:
        return self.low, self.high


@dataclass(frozen=True)
class Choices:
    """One of some values."""

    values: tuple

    def draw(self, position: float, slot: int):
        """The value at a position from 0 to below 1 of the list."""
        return self.values[int(position * len(self.values))]

    def extremes(self) -> tuple:
        return self.values


@dataclass(frozen=True)
class Count:
    """One more with every slot: how the same settings are run with several seeds."""

    start: int

    def draw(self, position: float, slot: int) -> int:
        return self.start + slot

    def extremes(self) -> tuple:
        return (self.start,)


Space = dict[str, Interval | Choices | Count]


def position(seed: int, slot: int, name: str) -> float:
    """Where in its range a setting of a slot lies: evenly spread, and the same on every machine and in every version.

    Example:
        >>> round(position(0, 1, "learning_rate"), 6)
        0.70732
    """
    digest = hashlib.sha256(f"{seed}/{slot}/{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def slot_config(base: TrainConfig, space: Space, slot: int) -> TrainConfig:
    """The settings of a slot: slot 0 is `base` itself, the others draw what the space names."""
    if slot == 0:
        return base
    drawn = {name: dimension.draw(position(base.seed, slot, name), slot) for name, dimension in space.items()}
    if drawn.keys() >= {"leak_low", "leak_high"}:  # two ends of one interval, drawn apart
        drawn["leak_low"], drawn["leak_high"] = sorted((drawn["leak_low"], drawn["leak_high"]))
    return dataclasses.replace(base, **drawn)


def changes(base: TrainConfig, config: TrainConfig) -> dict:
    """The settings in which a config differs from its base."""
    return {name: value for name, value in as_dict(config).items() if value != getattr(base, name)}


def read_space(path: Path, base: TrainConfig) -> dict:
    """The plain content of a TOML space, checked against the settings it will change."""
    try:
        plain = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a TOML file of a search space") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML ({error}); {EXPECTED} for each setting") from error
    try:
        parse_space(plain, base)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return plain


def parse_space(plain: dict, base: TrainConfig) -> Space:
    """The space a plain dictionary describes; whatever it could draw is checked to be a valid setting of `base`."""
    known = [field.name for field in dataclasses.fields(TrainConfig) if field.name not in NOT_SEARCHED]
    unknown = sorted(set(plain) - set(known))
    if unknown:
        raise InputError(f"cannot search {', '.join(unknown)}: expected some of {', '.join(known)}")
    hints = typing.get_type_hints(TrainConfig)
    space = {name: _dimension(name, value, whole=hints[name] is int) for name, value in plain.items()}
    for name, dimension in space.items():
        for value in dimension.extremes():
            _check_setting(base, space, name, value)
    return space


def _dimension(name: str, value: object, *, whole: bool) -> Interval | Choices | Count:
    if isinstance(value, list):
        if not value:
            raise InputError(f"{name} has no choices; {EXPECTED}")
        return Choices(tuple(value))
    if not isinstance(value, dict):
        return Choices((value,))
    if value.keys() == {"start"} and whole:
        return Count(value["start"])
    if not {"low", "high"} <= value.keys() <= {"low", "high", "log"}:
        raise InputError(f"{name} is given as {value}; {EXPECTED}")
    interval = Interval(value["low"], value["high"], value.get("log", False), whole)
    numbers = int if whole else (int, float)
    if not all(isinstance(end, numbers) and not isinstance(end, bool) for end in interval.extremes()):
        raise InputError(f"{name}: low and high must be {'whole ' if whole else ''}numbers, got {value}")
    if not isinstance(interval.log, bool):
        raise InputError(f"{name}: log must be true or false, got {value}")
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
