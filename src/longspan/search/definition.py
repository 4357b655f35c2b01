"""What a study is before any of its trials: the recipe it starts from, the space, how it is judged."""

import functools
import hashlib
from typing import Literal

import msgspec

from longspan import __version__
from longspan.config import TrainConfig, as_dict, check_output, from_dict
from longspan.errors import InputError
from longspan.search.space import Space, changes, parse_space, slot_config

FORMAT = 1


class StudyDefinition(msgspec.Struct, frozen=True, dict=True):
    """All that decides the result of every slot, wherever and in whatever order the slots are run."""

    name: str
    config: dict
    """Settings of slot 0."""
    space: dict
    """What the other slots draw, as `longspan.search.space` reads it."""
    fingerprint: str
    """Of the data, so that a worker elsewhere does not train on other ones."""
    prune: bool = False
    tested: Literal["winner", "every"] = "winner"
    """Which runs are scored on the test split once all are done."""
    heartbeat_seconds: int = 30
    longspan: str = __version__
    format: int = FORMAT

    @property
    def grace_seconds(self) -> int:
        """Silence after which a worker elsewhere is taken for dead."""
        return 4 * self.heartbeat_seconds

    @functools.cached_property
    def base(self) -> TrainConfig:
        """Settings of slot 0."""
        return from_dict(self.config)

    @functools.cached_property
    def parsed_space(self) -> Space:
        return parse_space(self.space, self.base)

    def config_of(self, slot: int) -> TrainConfig:
        """Settings of a slot."""
        return slot_config(self.base, self.parsed_space, slot)

    @property
    def identity(self) -> str:
        """Eight digits that differ between studies whose slots are not comparable.

        Settings at their default are left out, so that a setting added later does not make all studies strangers.
        """
        decisive = [changes(TrainConfig(), self.base), self.space, self.fingerprint, self.prune, self.tested]
        return hashlib.sha256(msgspec.json.encode(decisive, order="sorted")).hexdigest()[:8]


def define(name: str, base: TrainConfig, space: dict, fingerprint: str, **options) -> StudyDefinition:
    """The definition of a study, checked."""
    parse_space(space, base)
    return StudyDefinition(name, as_dict(base), space, fingerprint, **options)


def check_slots(definition: StudyDefinition, slots: int, kind: str) -> None:
    """Refuse a study one of whose slots would draw settings that do not go together, or not with data of this kind."""
    for slot in range(slots):
        try:
            check_output(definition.config_of(slot), kind)
        except InputError as error:
            raise InputError(f"the settings of slot {slot} do not work: {error}") from error


def check_same(old: StudyDefinition, new: StudyDefinition) -> None:
    """Refuse to go on with a study under other settings than it was begun with."""
    if old.format != FORMAT:
        raise InputError(f"study {old.name} has format {old.format}, this version reads {FORMAT}")
    if old.identity == new.identity:
        return
    before, after = _flat(old), _flat(new)
    different = [
        f"{name} {before.get(name)!r}, now {after.get(name)!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    raise InputError(
        f"study {old.name} was begun with other settings ({'; '.join(different)}): repeat them, or name another study"
    )


def _flat(definition: StudyDefinition) -> dict:
    space = {f"space of {name}": value for name, value in definition.space.items()}
    rest = {"data fingerprint": definition.fingerprint, "prune": definition.prune, "tested": definition.tested}
    return definition.config | space | rest
