"""Attempts at slots as rows of Optuna's tables, by a few statements each.

Optuna's own functions ask and write attribute by attribute, some sixty statements per slot, and read trials with all
that they have. Here a claim, a report and a record are one transaction each, and only attempts that are new or were
running are read. The tables stay Optuna's, so its dashboard shows them; a test compares the columns below with those
that Optuna makes.
"""

import enum
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from optuna.distributions import distribution_to_json
from optuna.trial import TrialState
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    Enum,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    true,
)
from sqlalchemy import select as choose
from sqlalchemy.dialects import postgresql, sqlite

from longspan.bounds import Figure, Whole
from longspan.search.slots import SlotCount

READ = ("slot", "worker", "outcome", "released", "from_step", "failure")
"""Attributes of an attempt that decide the state of its slot."""

ASKED_AT_ONCE = 1000
"""Attempts named in one statement, which holds only so many parameters."""


class _ValueKind(enum.Enum):
    FINITE = 1
    INF_POS = 2
    INF_NEG = 3
    NAN = 4


TABLES = MetaData()
TRIALS = Table(
    "trials",
    TABLES,
    Column("trial_id", Integer, primary_key=True),
    Column("number", Integer),
    Column("study_id", Integer),
    Column("state", Enum(TrialState)),
    Column("datetime_start", DateTime),
    Column("datetime_complete", DateTime),
)
ATTRIBUTES = Table(
    "trial_user_attributes",
    TABLES,
    Column("trial_user_attribute_id", Integer, primary_key=True),
    Column("trial_id", Integer),
    Column("key", String),
    Column("value_json", Text),
)
PARAMETERS = Table(
    "trial_params",
    TABLES,
    Column("param_id", Integer, primary_key=True),
    Column("trial_id", Integer),
    Column("param_name", String),
    Column("param_value", Float),
    Column("distribution_json", Text),
)
VALUES = Table(
    "trial_values",
    TABLES,
    Column("trial_value_id", Integer, primary_key=True),
    Column("trial_id", Integer),
    Column("objective", Integer),
    Column("value", Float),
    Column("value_type", Enum(_ValueKind, name="trialvaluetype")),
)
CURVES = Table(
    "trial_intermediate_values",
    TABLES,
    Column("trial_intermediate_value_id", Integer, primary_key=True),
    Column("trial_id", Integer),
    Column("step", Integer),
    Column("intermediate_value", Float),
    Column("intermediate_value_type", Enum(_ValueKind, name="trialintermediatevaluetype")),
)
HEARTBEATS = Table(
    "trial_heartbeats",
    TABLES,
    Column("trial_heartbeat_id", Integer, primary_key=True),
    Column("trial_id", Integer),
    Column("heartbeat", DateTime),
)
STUDY_ATTRIBUTES = Table(
    "study_user_attributes",
    TABLES,
    Column("study_user_attribute_id", Integer, primary_key=True),
    Column("study_id", Integer),
    Column("key", String),
    Column("value_json", Text),
)


class Attempt(NamedTuple):
    """One worker's try at a slot, as it was when it was read."""

    id: int
    state: TrialState
    attributes: dict[str, Any]

    @property
    def ended(self) -> bool:
        return self.state.is_finished()


class Finished(Exception):
    """The attempt has ended already and cannot be changed."""


class Attempts:
    """The attempts of a study; every method takes the connection of a transaction, or begins one."""

    def __init__(self, engine: Engine, study: int):
        self.engine = engine
        self.study = study
        self._insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
        utc = func.timezone("utc", func.now()) if engine.dialect.name == "postgresql" else func.current_timestamp()
        self._now = utc

    def slot_count(self, connection: Connection) -> int:
        wanted = (STUDY_ATTRIBUTES.c.study_id == self.study) & (STUDY_ATTRIBUTES.c.key == "slots")
        found = json.loads(connection.execute(choose(STUDY_ATTRIBUTES.c.value_json).where(wanted)).scalar_one())
        return msgspec.convert(found, SlotCount)

    def changed(self, connection: Connection, last: int, running: Iterable[int]) -> list[Attempt]:
        """The attempts after number `last`, and those of `running`, in the order they were made."""
        which = (TRIALS.c.trial_id > last) | TRIALS.c.trial_id.in_(list(running))
        wanted = choose(TRIALS.c.trial_id, TRIALS.c.state).where((TRIALS.c.study_id == self.study) & which)
        states = {row.trial_id: row.state for row in connection.execute(wanted.order_by(TRIALS.c.trial_id))}
        attributes: dict[int, dict] = {number: {} for number in states}
        for attempt, key, value in self._attributes(connection, READ, which) if states else ():
            if attempt in attributes:  # not one that has just been added
                attributes[attempt][key] = value
        return [Attempt(number, state, attributes[number]) for number, state in states.items()]

    def attribute(self, connection: Connection, name: str) -> dict[int, Any]:
        """The attribute of that name of every attempt that has it."""
        return {attempt: value for attempt, _, value in self._attributes(connection, (name,), true())}

    def _attributes(self, connection: Connection, keys: Iterable[str], which: ColumnElement[bool]) -> Iterator[tuple]:
        # Joined, not asked for by the numbers of the attempts: a statement holds only so many parameters.
        fields = choose(ATTRIBUTES.c.trial_id, ATTRIBUTES.c.key, ATTRIBUTES.c.value_json)
        joined = fields.join(TRIALS, TRIALS.c.trial_id == ATTRIBUTES.c.trial_id)
        of_study = (TRIALS.c.study_id == self.study) & which & ATTRIBUTES.c.key.in_(list(keys))
        for row in connection.execute(joined.where(of_study)):
            yield row.trial_id, row.key, _decoded(row.value_json)

    def curves(self, connection: Connection, attempts: list[int]) -> dict[int, dict[int, float]]:
        """The validation scores of attempts by epoch."""
        found: dict[int, dict[int, float]] = {number: {} for number in attempts}
        fields = CURVES.c.trial_id, CURVES.c.step, CURVES.c.intermediate_value, CURVES.c.intermediate_value_type
        for first in range(0, len(attempts), ASKED_AT_ONCE):
            some = attempts[first : first + ASKED_AT_ONCE]
            wanted = choose(*fields).where(CURVES.c.trial_id.in_(some)).order_by(CURVES.c.step)
            for row in connection.execute(wanted):
                epoch, value = msgspec.convert(row[1:3], tuple[Whole, Figure | None])  # SQLite keeps values of any type
                found[row.trial_id][epoch] = _restored(value, row.intermediate_value_type)
        return found

    def silent(self, connection: Connection, attempts: list[int], seconds: float) -> list[int]:
        """Those of the attempts whose last heartbeat is longer ago than that, by the clock of the database.

        Every attempt begins with one; one that has none was not made by a worker that lives.
        """
        if not attempts:
            return []
        fields = HEARTBEATS.c.trial_id, HEARTBEATS.c.heartbeat, self._now.label("now")
        rows = connection.execute(choose(*fields).where(HEARTBEATS.c.trial_id.in_(attempts)))
        alive = {row.trial_id for row in rows if row.now - row.heartbeat <= timedelta(seconds=seconds)}
        return [attempt for attempt in attempts if attempt not in alive]

    def add(
        self,
        connection: Connection,
        number: int,
        state: TrialState,
        parameters: tuple[dict, dict],
        attributes: Mapping[str, object],
        score: float | None = None,
    ) -> int:
        """Insert an attempt, the `number`-th of the study, with its parameters and a first heartbeat."""
        now = datetime.now(UTC).replace(tzinfo=None)
        ended = now if state.is_finished() else None
        row = {"number": number, "study_id": self.study, "state": state, "datetime_start": now}
        made = connection.execute(TRIALS.insert().returning(TRIALS.c.trial_id), {**row, "datetime_complete": ended})
        attempt = made.scalar_one()
        values, distributions = parameters
        if values:
            connection.execute(
                PARAMETERS.insert(),
                [
                    {
                        "trial_id": attempt,
                        "param_name": name,
                        "param_value": distributions[name].to_internal_repr(value),
                        "distribution_json": distribution_to_json(distributions[name]),
                    }
                    for name, value in values.items()
                ],
            )
        self._note(connection, attempt, attributes)
        if score is not None:
            self._score(connection, attempt, score)
        if not state.is_finished():
            connection.execute(HEARTBEATS.insert().values(trial_id=attempt, heartbeat=self._now))
        return attempt

    def beat(self, attempt: int) -> None:
        with self.engine.begin() as connection:
            of_it = HEARTBEATS.c.trial_id == attempt
            connection.execute(HEARTBEATS.update().where(of_it).values(heartbeat=self._now))

    def change(
        self,
        attempt: int,
        attributes: Mapping[str, object] | None = None,
        curve: Mapping[int, float] | None = None,
        state: TrialState | None = None,
        score: float | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Add to an attempt, or end it with a state, all at once; raises `Finished` if it has ended already."""
        with self._begun(connection) as begun:
            of_it = TRIALS.c.trial_id == attempt
            if begun.execute(choose(TRIALS.c.state).where(of_it).with_for_update()).scalar_one().is_finished():
                raise Finished
            if attributes:
                self._note(begun, attempt, attributes)
            if curve:
                rows = [{"trial_id": attempt, "step": step, **_kept_step(score)} for step, score in curve.items()]
                begun.execute(self._insert(CURVES).on_conflict_do_nothing(), rows)
            if score is not None:
                self._score(begun, attempt, score)
            if state is not None:
                now = datetime.now(UTC).replace(tzinfo=None)
                begun.execute(TRIALS.update().where(of_it).values(state=state, datetime_complete=now))

    def has_ended(self, attempt: int) -> bool:
        with self.engine.connect() as connection:
            state = connection.execute(choose(TRIALS.c.state).where(TRIALS.c.trial_id == attempt)).scalar_one()
        return state.is_finished()

    @contextmanager
    def _begun(self, connection: Connection | None) -> Iterator[Connection]:
        if connection is not None:
            yield connection
            return
        with self.engine.begin() as begun:
            yield begun

    def _note(self, connection: Connection, attempt: int, attributes: Mapping[str, object]) -> None:
        row = self._insert(ATTRIBUTES)
        row = row.on_conflict_do_update(
            index_elements=["trial_id", "key"], set_={"value_json": row.excluded.value_json}
        )
        rows = [{"trial_id": attempt, "key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]
        connection.execute(row, rows)

    def _score(self, connection: Connection, attempt: int, score: float) -> None:
        row = {"trial_id": attempt, "objective": 0, "value": score, "value_type": _ValueKind.FINITE}
        connection.execute(self._insert(VALUES).on_conflict_do_nothing(), row)


def _decoded(text: str) -> Any:
    """A value of the storage; half a character, which JSON can hold and no file, is a ValueError."""
    value = json.loads(text)
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _kept_step(score: float) -> dict[str, object]:
    if math.isfinite(score):
        kind = _ValueKind.FINITE
    else:
        kind = _ValueKind.NAN if math.isnan(score) else _ValueKind.INF_POS if score > 0 else _ValueKind.INF_NEG
    kept = score if kind is _ValueKind.FINITE else None
    return {"intermediate_value": kept, "intermediate_value_type": kind}


def _restored(value: float | None, kind: _ValueKind) -> float:
    special = {_ValueKind.INF_POS: math.inf, _ValueKind.INF_NEG: -math.inf, _ValueKind.NAN: math.nan}
    return special.get(kind, value if value is not None else math.nan)
