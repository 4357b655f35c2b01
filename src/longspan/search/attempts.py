"""Studies and attempts at their slots as rows of Optuna's tables, by a few statements each.

Optuna's own functions ask and write attribute by attribute, some sixty statements per slot, and read trials with all
that they have. Here a claim, a report and a record are one transaction each, and only attempts that are new or have
ended are read. The tables stay Optuna's, so its dashboard shows them.

The statements are written out, because each of many workers that join a study would otherwise compile them anew, which
takes longer than to execute them.
"""

import enum
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution, distribution_to_json
from optuna.trial import TrialState
from sqlalchemy import Connection, Engine

from longspan.bounds import Figure, Whole
from longspan.search.slots import SlotCount
from longspan.search.space import Choices, Definition, Interval, rounded
from longspan.search.storage import at_once

READ = ("slot", "worker", "outcome", "released", "from_step", "failure")
"""Attributes of an attempt that decide the state of its slot."""

ASKED_AT_ONCE = 1000
"""Attempts named in one statement."""

STATEMENTS = {
    "studies": """SELECT studies.study_id, study_name, value_json FROM studies
        JOIN study_user_attributes ON study_user_attributes.study_id = studies.study_id
        WHERE key = 'definition' ORDER BY studies.study_id""",
    "study": """SELECT studies.study_id, study_name, value_json FROM studies
        JOIN study_user_attributes ON study_user_attributes.study_id = studies.study_id
        WHERE key = 'definition' AND study_name = :name""",
    "told": "SELECT key, value_json FROM study_user_attributes WHERE study_id = :study AND key IN [names]",
    "tell": """INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (:study, :key, :value)
        ON CONFLICT (study_id, key) DO UPDATE SET value_json = excluded.value_json""",
    "states": """SELECT trial_id, state FROM trials
        WHERE study_id = :study AND (trial_id > :last OR trial_id IN [running]) ORDER BY trial_id""",
    # Joined, not asked for by the numbers of all attempts, of which there may be very many.
    "attributes": """SELECT notes.trial_id, key, value_json FROM trial_user_attributes notes
        JOIN trials ON trials.trial_id = notes.trial_id
        WHERE study_id = :study AND (notes.trial_id > :last OR notes.trial_id IN [ended]) AND key IN [names]""",
    "curves": """SELECT trial_id, step, intermediate_value, intermediate_value_type FROM trial_intermediate_values
        WHERE trial_id IN [attempts] ORDER BY step""",
    "heartbeats": "SELECT trial_id, heartbeat, {now} FROM trial_heartbeats WHERE trial_id IN [attempts]",
    "attempt": """INSERT INTO trials (number, study_id, state, datetime_start, datetime_complete)
        VALUES (:number, :study, :state, :began, :ended) RETURNING trial_id""",
    "parameter": """INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json)
        VALUES (:attempt, :name, :value, :distribution)""",
    "note": """INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (:attempt, :key, :value)
        ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json""",
    "score": """INSERT INTO trial_values (trial_id, objective, value, value_type)
        VALUES (:attempt, 0, :value, 'FINITE') ON CONFLICT DO NOTHING""",
    "step": """INSERT INTO trial_intermediate_values
        (trial_id, step, intermediate_value, intermediate_value_type) VALUES (:attempt, :step, :value, :kind)
        ON CONFLICT DO NOTHING""",
    "alive": "INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES (:attempt, {now})",
    "beat": "UPDATE trial_heartbeats SET heartbeat = {now} WHERE trial_id = :attempt",
    "state": "SELECT state FROM trials WHERE trial_id = :attempt",
    "state, to change it": "SELECT state FROM trials WHERE trial_id = :attempt {locking}",
    "end": "UPDATE trials SET state = :state, datetime_complete = :ended WHERE trial_id = :attempt",
}
"""What is asked and written; each database has its own words for parameters, lists, the time and a lock on a row."""


def _for_postgresql(statement: str) -> str:
    words = statement.format(now="timezone('utc', now())", locking="FOR UPDATE")
    return re.sub(r":(\w+)", r"%(\1)s", re.sub(r"IN \[(\w+)\]", r"= ANY(:\1)", words))


def _for_sqlite(statement: str) -> str:
    words = statement.format(now="CURRENT_TIMESTAMP", locking="")  # a transaction that writes locks the whole file
    return re.sub(r"IN \[(\w+)\]", r"IN (SELECT value FROM json_each(:\1))", words)


_IN_THE_WORDS_OF = {
    "postgresql": {name: _for_postgresql(statement) for name, statement in STATEMENTS.items()},
    "sqlite": {name: _for_sqlite(statement) for name, statement in STATEMENTS.items()},
}


class _ValueKind(enum.Enum):
    FINITE = 1
    INF_POS = 2
    INF_NEG = 3
    NAN = 4


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
        self.at_once = at_once(engine)
        """For what needs no transaction."""
        self.study = study

    def told(self, *names: str) -> dict[str, Any]:
        """Those of the study's attributes that it has."""
        with self.at_once.connect() as connection:
            return self._told(connection, names)

    def _told(self, connection: Connection, names: Iterable[str]) -> dict[str, Any]:
        rows = execute(connection, "told", study=self.study, names=list(names))
        return {key: decoded(value) for key, value in rows}

    def tell(self, name: str, value: object, connection: Connection | None = None) -> None:
        """Set an attribute of the study."""
        with nullcontext(connection) if connection is not None else self.at_once.connect() as connected:
            execute(connected, "tell", study=self.study, key=name, value=json.dumps(value))

    def slot_count(self, connection: Connection) -> int:
        return msgspec.convert(self._told(connection, ("slots",))["slots"], SlotCount)

    def changed(self, connection: Connection, last: int, running: Iterable[int]) -> list[Attempt]:
        """The attempts after number `last`, and those of `running` that have ended, in the order they were made."""
        rows = execute(connection, "states", study=self.study, last=last, running=list(running))
        states = {attempt: TrialState[state] for attempt, state in rows}
        states = {number: state for number, state in states.items() if number > last or state.is_finished()}
        attributes: dict[int, dict] = {number: {} for number in states}
        ended = [number for number in states if number <= last]
        for attempt, key, value in self._attributes(connection, READ, last, ended) if states else ():
            if attempt in attributes:  # not one that has just been added
                attributes[attempt][key] = value
        return [Attempt(number, state, attributes[number]) for number, state in states.items()]

    def attribute(self, connection: Connection, name: str) -> dict[int, Any]:
        """The attribute of that name of every attempt that has it."""
        return {attempt: value for attempt, _, value in self._attributes(connection, (name,), 0, ())}

    def _attributes(
        self, connection: Connection, names: Iterable[str], last: int, ended: Iterable[int]
    ) -> Iterator[tuple]:
        which = {"study": self.study, "last": last, "ended": list(ended), "names": list(names)}
        for attempt, key, value in execute(connection, "attributes", **which):
            yield attempt, key, decoded(value)

    def curves(self, connection: Connection, attempts: list[int]) -> dict[int, dict[int, float]]:
        """The validation scores of attempts by epoch."""
        found: dict[int, dict[int, float]] = {number: {} for number in attempts}
        for first in range(0, len(attempts), ASKED_AT_ONCE):
            some = attempts[first : first + ASKED_AT_ONCE]
            for attempt, *measured, kind in execute(connection, "curves", attempts=some):
                epoch, value = msgspec.convert(measured, tuple[Whole, Figure | None])  # SQLite keeps values of any type
                found[attempt][epoch] = _restored(value, _ValueKind[kind])
        return found

    def silent(self, connection: Connection, attempts: list[int], seconds: float) -> list[int]:
        """Those of the attempts whose last heartbeat is longer ago than that, by the clock of the database.

        Every attempt begins with one; one that has none was not made by a worker that lives.
        """
        if not attempts:
            return []
        rows = execute(connection, "heartbeats", attempts=attempts)
        longest = timedelta(seconds=seconds)
        alive = {attempt for attempt, heartbeat, now in rows if _time(now) - _time(heartbeat) <= longest}
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
        began = _now()
        ended = began if state.is_finished() else None
        row = {"number": number, "study": self.study, "state": state.name, "began": began, "ended": ended}
        [(attempt,)] = execute(connection, "attempt", **row)
        values, distributions = parameters
        kept = [
            {
                "attempt": attempt,
                "name": name,
                "value": distributions[name].to_internal_repr(value),
                "distribution": distribution_to_json(distributions[name]),
            }
            for name, value in values.items()
        ]
        execute_many(connection, "parameter", kept)
        self._note(connection, attempt, attributes)
        if score is not None:
            execute(connection, "score", attempt=attempt, value=score)
        if not state.is_finished():
            execute(connection, "alive", attempt=attempt)
        return attempt

    def beat(self, attempt: int) -> None:
        with self.at_once.connect() as connection:
            execute(connection, "beat", attempt=attempt)

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
            if self._has_ended(begun, "state, to change it", attempt):
                raise Finished
            self._note(begun, attempt, attributes or {})
            steps = [{"attempt": attempt, "step": step, **_kept_step(score)} for step, score in (curve or {}).items()]
            execute_many(begun, "step", steps)
            if score is not None:
                execute(begun, "score", attempt=attempt, value=score)
            if state is not None:
                execute(begun, "end", attempt=attempt, state=state.name, ended=_now())

    def has_ended(self, attempt: int) -> bool:
        with self.at_once.connect() as connection:
            return self._has_ended(connection, "state", attempt)

    def _has_ended(self, connection: Connection, statement: str, attempt: int) -> bool:
        [(state,)] = execute(connection, statement, attempt=attempt)
        return TrialState[state].is_finished()

    @contextmanager
    def _begun(self, connection: Connection | None) -> Iterator[Connection]:
        if connection is not None:
            yield connection
            return
        with self.engine.begin() as begun:
            yield begun

    def _note(self, connection: Connection, attempt: int, attributes: Mapping[str, object]) -> None:
        rows = [{"attempt": attempt, "key": key, "value": json.dumps(value)} for key, value in attributes.items()]
        execute_many(connection, "note", rows)


class Found(NamedTuple):
    """A study of longspan in a storage."""

    number: int
    name: str
    definition: str
    """In JSON."""


def defined_studies(connection: Connection, name: str | None = None) -> list[Found]:
    """The studies that have a definition, or the one of that name."""
    rows = execute(connection, "studies") if name is None else execute(connection, "study", name=name)
    return [Found(*row) for row in rows]


def execute(connection: Connection, statement: str, **parameters: Any) -> Iterator[tuple]:
    """Execute one of `STATEMENTS`; its rows."""
    if connection.dialect.name == "sqlite":  # which has no lists
        parameters = {k: json.dumps(v) if isinstance(v, list) else v for k, v in parameters.items()}
    done = connection.exec_driver_sql(_IN_THE_WORDS_OF[connection.dialect.name][statement], parameters)
    return map(tuple, done) if done.returns_rows else iter(())


def execute_many(connection: Connection, statement: str, rows: list[dict[str, Any]]) -> None:
    """Execute one of `STATEMENTS` for every row."""
    if rows:
        connection.exec_driver_sql(_IN_THE_WORDS_OF[connection.dialect.name][statement], rows)


def _now() -> str:
    """The time as both databases read it."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def _time(kept: datetime | str) -> datetime:
    """A time of the database; SQLite has text."""
    return kept if isinstance(kept, datetime) else datetime.fromisoformat(kept)


def decoded(text: str) -> Any:
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
    return {"value": score if kind is _ValueKind.FINITE else None, "kind": kind.name}


def _restored(value: float | None, kind: _ValueKind) -> float:
    special = {_ValueKind.INF_POS: math.inf, _ValueKind.INF_NEG: -math.inf, _ValueKind.NAN: math.nan}
    return special.get(kind, value if value is not None else math.nan)


def recorded_parameters(definition: Definition, slot: int) -> tuple[dict, dict]:
    """Parameters and distributions of a slot as Optuna records them and its dashboard shows them.

    The recipe of slot 0 may lie outside the space, so ranges are widened to include it; a value that no range can
    include (zero on a logarithmic axis) is left out. The trial's run folder has every setting in any case.
    """
    config, space = definition.config_of(slot), definition.parsed_space
    parameters, distributions = {}, {}
    for name, dimension in space.items():
        value, shipped = getattr(config, name), getattr(definition.base, name)
        if isinstance(dimension, Choices):
            distributions[name] = CategoricalDistribution(tuple(dict.fromkeys((*dimension.values, shipped))))
        elif isinstance(dimension, Interval) and _fits(value, dimension):
            distributions[name] = _range(dimension, [shipped, *_slowed(dimension, definition)])
        if name in distributions:
            parameters[name] = value
    return parameters, distributions


def _range(interval: Interval, others: list):
    """The range of an interval, widened to include other values if possible."""
    held = [interval.low, interval.high, *(value for value in others if _fits(value, interval))]
    low, high = min(held), max(held)
    if interval.whole:
        return IntDistribution(int(low), int(high), log=interval.log)
    return FloatDistribution(low, high, log=interval.log)


def _fits(value: object, interval: Interval) -> bool:
    """Whether an interval can be widened to include a value."""
    return isinstance(value, int | float) and (value > 0 or not interval.log)


def _slowed(rate: Interval, definition: Definition) -> list[float]:
    """The lowest learning rate that an effective rate can become with momentum."""
    if not rate.effective:
        return []
    momentum = definition.parsed_space.get("momentum")
    highest = max(momentum.extremes()) if momentum else definition.base.momentum
    return [rounded(rate.low * (1 - highest))]
