"""A storage whose owner is not a friend: whatever its rows say is used, refused in one line, or means nothing."""

import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from optuna import load_study
from optuna.exceptions import StorageInternalError
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, ProgrammingError, SQLAlchemyError

from longspan.cli.study_display import show_result
from longspan.errors import InputError
from longspan.search import sqlite_files
from longspan.search.result import kept_result
from longspan.search.slots import MOST_DEATHS, MOST_SLOTS, REFERENCE_SLOTS, Outcome
from longspan.search.sqlite_files import BoundedConnection
from longspan.search.storage import Patience, default_url, explain_outage, is_outage, outages, patiently
from longspan.search.study import Study, create_or_continue, open_study
from tests.search.test_study import make_study
from tests.support.reproduction_results import JSB, study_result

ESCAPE = "\x1b]0;title\x07"


@pytest.fixture
def study(tmp_path) -> Study:
    return make_study(default_url(tmp_path), slots=2)


def attributes_of(study: Study):
    return load_study(storage=study.url, study_name="tiny")


@pytest.mark.parametrize("slots", ["x", ESCAPE, -1, 2.5, None, [1], True, 10**40])
def test_a_number_of_slots_that_is_none_is_refused(study, slots):
    attributes_of(study).set_user_attr("slots", slots)
    for use in (lambda: study.slot_count, lambda: study.concluded, lambda: study.extend(3), study.slots):
        with pytest.raises(InputError, match="is damaged"):
            use()


@pytest.mark.parametrize("result", ["x", 5, [1], True])
def test_a_result_that_is_no_document_is_refused(study, result):
    attributes_of(study).set_user_attr("result", result)
    for use in (lambda: study.concluded, lambda: kept_result(study)):
        with pytest.raises(InputError, match="is damaged"):
            use()


def test_a_result_that_lacks_something_or_contradicts_itself_is_refused(study):
    good = msgspec.to_builtins(study_result(JSB, [-8.5, -8.9]))
    attributes_of(study).set_user_attr("result", good)
    assert kept_result(study) is not None  # the control
    for change in ({"winner": 7}, {"trials": []}, {"slots": 1}, {"winner": "0"}, {"study": 5}, {"format": 9}):
        attributes_of(study).set_user_attr("result", good | change)
        with pytest.raises(InputError, match="restore the storage"):
            kept_result(study)
    attributes_of(study).set_user_attr("result", {"slots": 2})
    with pytest.raises(InputError, match="cannot be read"):
        kept_result(study)


def test_what_a_storage_says_of_slots_cannot_control_a_terminal(tmp_path, capfd):
    result = study_result(JSB, [-8.5, -8.9])
    trials = [
        msgspec.structs.replace(
            trial,
            settings={ESCAPE: ESCAPE, "[/red]": "[/red]"},
            outcome=msgspec.structs.replace(trial.outcome, reason=ESCAPE),
        )
        for trial in result.trials
    ]
    hostile = msgspec.structs.replace(result, recipe=ESCAPE, data=ESCAPE, trials=trials)
    show_result(hostile, tmp_path)
    show_result(msgspec.structs.replace(hostile, winner=None), tmp_path)
    told = capfd.readouterr().out
    assert "\\x1b]0;title" in told
    assert all(line.isprintable() for line in told.split("\n"))


@pytest.mark.parametrize(
    "outcome",
    [
        {"status": "done", "reason": "half a \ud800", "valid_log_likelihood": 1.0},
        {"status": "done", "reason": "", "valid_log_likelihood": float("inf")},
        {"status": "done", "reason": 5},
        5,
    ],
)
def test_an_outcome_that_is_none_is_refused(study, outcome):
    claim = study.claim("me")
    study.record(claim, Outcome("done", "", -1.0))
    study._attempts._note(_Connection(study), claim.attempt, {"outcome": outcome})
    with pytest.raises(InputError, match="is damaged"):
        open_study(study.url, "tiny").slots()


class _Connection:
    """Executes statements in transactions of their own."""

    def __init__(self, study: Study):
        self.engine = study._attempts.engine
        self.dialect = self.engine.dialect

    def __getattr__(self, name: str):
        def executed(*statement: object) -> None:
            with self.engine.begin() as connection:
                getattr(connection, name)(*statement)

        return executed


@pytest.mark.parametrize("name", [["a"], {"a": 1}, 5, True, "音" * 110, "/etc/passwd", "\ud800", ESCAPE])
def test_a_worker_without_a_name_of_a_worker_is_waited_for_like_one_elsewhere(study, name):
    first = study.claim("me")
    assert first is not None
    study._attempts._note(_Connection(study), first.attempt, {"worker": name})
    if name == "\ud800":
        with pytest.raises(InputError, match="is damaged"):
            open_study(study.url, "tiny").claim("other")
        return
    joined = open_study(study.url, "tiny")
    assert joined.claim("other").slot == 1
    assert joined.claim("other") is None


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE trial_user_attributes SET value_json = '{DEEP}' WHERE key = 'slot'",
        f"UPDATE study_user_attributes SET value_json = '{DEEP}' WHERE key = 'slots'",
        f"UPDATE study_user_attributes SET value_json = '{DEEP}' WHERE key = 'definition'",
        "UPDATE trial_intermediate_values SET intermediate_value = 'x'",
        "UPDATE trial_intermediate_values SET intermediate_value = x'ff'",
        "UPDATE trial_intermediate_values SET intermediate_value = 1e300",
        "UPDATE trial_intermediate_values SET step = 'x'",
        "UPDATE trial_intermediate_values SET step = 1e300",
        "UPDATE trial_intermediate_values SET step = -1",
    ],
    ids=lambda statement: statement[:60],
)
def test_what_no_worker_has_written_is_damage(study, statement):
    """Lists in lists end the interpreter's stack, and SQLite keeps words in a column of numbers."""
    claim = study.claim("me")
    claim.report([{"epoch": 1, "valid_log_likelihood": -1.0}])
    assert open_study(study.url, "tiny").slots()[0].curve == {1: -1.0}  # the control
    with closing(sqlite3.connect(study.url.removeprefix("sqlite:///"))) as database, database:
        database.execute(statement)
    with pytest.raises(InputError, match="is damaged"):
        open_study(study.url, "tiny").slots()


def test_the_reason_for_giving_a_slot_up_is_as_short_as_reasons_are(study):
    """One of a megabyte was shown, and made a result that could not be read again."""
    for _ in range(MOST_DEATHS):
        study.fail(study.claim("me"), "x" * 10**6)
    slot = open_study(study.url, "tiny").slots()[0]
    assert slot.status == "lost"
    assert msgspec.convert(msgspec.to_builtins(slot.outcome), Outcome) == slot.outcome


@pytest.mark.parametrize(
    ("field", "value"), [("heartbeat_seconds", 10**30), ("heartbeat_seconds", 0), ("format", 99), ("name", "../x")]
)
def test_a_definition_that_no_study_can_have_is_refused(study, field, value):
    found = attributes_of(study)
    found.set_user_attr("definition", found.user_attrs["definition"] | {field: value})
    with pytest.raises(InputError, match=r"tiny|named"):
        open_study(study.url, "tiny")


@pytest.mark.parametrize("slot", [-1, 2, 10**6])
def test_an_attempt_at_a_slot_that_does_not_exist_is_refused(study, slot):
    claim = study.claim("me")
    study._attempts._note(_Connection(study), claim.attempt, {"slot": slot})
    with pytest.raises(InputError, match="is damaged"):
        open_study(study.url, "tiny").leaders()


def test_a_heartbeat_that_is_no_time_is_refused(study):
    study.claim("me")
    _Connection(study).execute(text("UPDATE trial_heartbeats SET heartbeat = 'abc'"))
    with pytest.raises(InputError, match="is damaged"):
        open_study(study.url, "tiny").claim("other")


def test_an_attempt_without_a_heartbeat_is_not_waited_for(study):
    first = study.claim("a worker of another machine")
    joined = open_study(study.url, "tiny")
    assert joined.claim("other").slot == 1  # the control: the first one may still live
    _Connection(study).execute(text("DELETE FROM trial_heartbeats"))
    assert joined.claim("other").slot == first.slot


def test_references_are_asked_for_alone_however_many_slots_there_are(study):
    attributes_of(study).set_user_attr("slots", MOST_SLOTS)
    assert [slot.number for slot in open_study(study.url, "tiny").slots(REFERENCE_SLOTS)] == list(
        range(REFERENCE_SLOTS)
    )
    attributes_of(study).set_user_attr("slots", MOST_SLOTS + 1)
    with pytest.raises(InputError, match="is damaged"):
        open_study(study.url, "tiny").slots()


VIEW = (
    "ALTER TABLE study_user_attributes RENAME TO kept",
    "CREATE VIEW study_user_attributes AS SELECT * FROM kept UNION ALL "
    "SELECT 99, 1, 'big', '\"' || hex(zeroblob(400000000)) || '\"'",
)
TRIGGER = ("CREATE TRIGGER later AFTER INSERT ON trials BEGIN DELETE FROM studies; END",)
VIRTUAL = ("CREATE VIRTUAL TABLE words USING fts5(word)",)
SLOW = "instr(hex(zeroblob(4000000)), hex(zeroblob(2000000)) || '1')"
GENERATED = (f"ALTER TABLE studies ADD COLUMN big TEXT GENERATED ALWAYS AS ({SLOW})",)
SHORT = (f"ALTER TABLE studies ADD COLUMN big TEXT AS ({SLOW})",)
CHECKED = (f"CREATE TABLE more (a INTEGER CHECK ({SLOW} = 0))",)
DEFAULT = (f"CREATE TABLE more (a INTEGER DEFAULT ({SLOW}))",)
COMMENTED = (f"CREATE TABLE more (a INTEGER DEFAULT/* */({SLOW}))",)
INDEXED = ("CREATE INDEX more ON studies (hex(study_name))",)
PARTIAL = ("CREATE INDEX more ON studies (study_name) WHERE study_name > 'a'",)
NAMED = (
    "CREATE VIEW other AS SELECT 1",
    "PRAGMA writable_schema = 1",
    "UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT) WHERE name = 'other'",
)


@pytest.mark.parametrize(
    "statements",
    [VIEW, TRIGGER, VIRTUAL, GENERATED, SHORT, CHECKED, DEFAULT, COMMENTED, INDEXED, PARTIAL, NAMED],
)
def test_a_storage_with_more_than_tables_is_refused(study, statements):
    open_study(study.url, "tiny")  # the control
    with closing(sqlite3.connect(study.url.removeprefix("sqlite:///"))) as plain, plain:
        for statement in statements:
            plain.execute(statement)
    with pytest.raises(InputError, match=r"more in it than the tables of a study|has no studies in it"):
        open_study(study.url, "tiny")


def test_a_value_has_a_bounded_length(study):
    long = "INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (1, 'result', hex(zeroblob(10000000)))"
    with closing(sqlite3.connect(study.url.removeprefix("sqlite:///"))) as plain, plain:
        plain.execute(long)  # the control: SQLite has no objection
    with pytest.raises(InputError, match="too big"):
        _ = open_study(study.url, "tiny").result


def test_a_storage_that_a_killed_process_left_half_written_is_checked_after_it_is_undone(study, tmp_path):
    file = Path(study.url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(file)) as plain:
        with plain:
            plain.execute("CREATE VIEW other AS SELECT 1")
        plain.execute("PRAGMA cache_size = 1")  # so that it writes into the file before it commits
        plain.execute("PRAGMA cache_spill = 1")
        plain.execute("BEGIN IMMEDIATE")
        plain.execute("DROP VIEW other")
        plain.execute("CREATE TABLE filled AS SELECT hex(randomblob(100000)) AS long")
        copy = tmp_path / "copied"
        copy.mkdir()
        for part in ("study.db", "study.db-journal"):
            shutil.copy(file.with_name(part), copy / part)
        plain.rollback()
    with pytest.raises(InputError, match="more in it than the tables of a study"):
        open_study(default_url(copy), "tiny")


def test_a_storage_larger_than_any_is_refused(study, monkeypatch):
    monkeypatch.setattr(sqlite_files, "STORAGE_BYTES", 1000)
    with pytest.raises(InputError, match="more than the 1000 of a storage"):
        open_study(study.url, "tiny")


def repeat_pages(file: Path, levels: int, each: int = 100) -> None:
    """Put inner pages above the first page of a storage's schema, each of which names the one below many times."""
    content = bytearray(file.read_bytes())
    size = int.from_bytes(content[16:18], "big")

    def inner(child: int, header: int = 0) -> bytearray:
        page = bytearray(size)
        cells = [child.to_bytes(4, "big") + bytes([number]) for number in range(each)]
        places = [size - 5 * (number + 1) for number in range(each)]
        page[header : header + 12] = struct.pack(">BHHHBI", 5, 0, each, places[-1], 0, child)
        for number, (place, cell) in enumerate(zip(places, cells, strict=True)):
            page[place : place + 5] = cell
            page[header + 12 + 2 * number : header + 14 + 2 * number] = place.to_bytes(2, "big")
        return page

    first, count = content[:size], len(content) // size
    assert first[100] == 5, "the schema has more than one page"
    below = int.from_bytes(first[108:112], "big")
    pages = [inner(child) for child in [*range(count + 2, count + levels), below]]
    content[:size] = first[:100] + inner(count + 1, 100)[100:]
    content += b"".join(pages)
    content[28:32] = (len(content) // size).to_bytes(4, "big")
    file.write_bytes(content)


def test_a_table_without_end_is_given_up(study):
    """135 KB whose schema has a million million rows: reading it had no end, and Ctrl-C did not end it either."""
    file = Path(study.url.removeprefix("sqlite:///"))
    study._attempts.engine.dispose()
    repeat_pages(file, levels=6)
    assert file.stat().st_size < 200_000
    with pytest.raises(InputError, match="has no studies in it"):
        open_study(study.url, "tiny")
    with pytest.raises(InputError, match="cannot open storage"):
        create_or_continue(study.url, study.definition, 2)


def test_ordinary_statements_take_few_steps_for_the_size_of_their_storage(study, monkeypatch):
    """The control: the limit is no hindrance, though it is that of a statement and not of a connection."""
    most, counted = 0, BoundedConnection._is_endless

    def count(connection):
        nonlocal most
        ended, most = counted(connection), max(most, connection._steps)
        return ended

    monkeypatch.setattr(BoundedConnection, "_is_endless", count)
    monkeypatch.setattr(sqlite_files, "STEPS_AT_ONCE", 100)
    attributes_of(study).set_user_attr("slots", 100)
    joined = open_study(study.url, "tiny")
    for number in range(100):
        joined.record(joined.claim("me"), Outcome("done", "", -1.0 - number))
    assert len(open_study(study.url, "tiny").slots()) == 100
    assert 0 < most < sqlite_files.STEPS_BY_BYTE * Path(study.url.removeprefix("sqlite:///")).stat().st_size


@pytest.mark.parametrize(
    "statement",
    ["DROP TABLE trial_user_attributes", "DROP TABLE study_user_attributes", "ALTER TABLE trials RENAME state TO x"],
)
def test_damage_is_no_outage_that_is_waited_for(study, statement):
    joined = open_study(study.url, "tiny")
    joined.claim("me")
    _Connection(study).execute(text(statement))
    with explain_outage(study.url), pytest.raises(InputError, match="is damaged"):
        patiently(joined.slots, patience=Patience(outage_seconds=0))


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def sqlite_error(kind: type[SQLAlchemyError], code: int) -> Exception:
    made = sqlite3.OperationalError("told")
    made.sqlite_errorcode = code
    return kind("SELECT", {}, made)


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (OperationalError("SELECT", {}, Exception("the server closed the connection")), True),
        (caused(StorageInternalError(), OperationalError("SELECT", {}, Exception("no route to host"))), True),
        (caused(StorageInternalError(), ProgrammingError("SELECT", {}, Exception("no such column"))), False),
        (StorageInternalError("told"), True),
        (sqlite_error(OperationalError, sqlite3.SQLITE_BUSY), True),
        (sqlite_error(OperationalError, sqlite3.SQLITE_IOERR_FSYNC), True),
        (sqlite_error(OperationalError, sqlite3.SQLITE_FULL), True),
        (sqlite_error(OperationalError, sqlite3.SQLITE_ERROR), False),
        (caused(StorageInternalError(), sqlite_error(OperationalError, sqlite3.SQLITE_ERROR)), False),
        (ValueError(), False),
    ],
)
def test_what_may_come_back_is_an_outage(error, outage):
    assert is_outage(error) is outage
    with (
        pytest.raises(InputError if isinstance(error, outages()) else ValueError) as told,
        explain_outage("sqlite:///x"),
    ):
        raise error
    assert ("out of reach" in str(told.value)) is outage
