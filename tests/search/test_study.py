"""Studies: a slot is claimed by one worker at a time, survives its death, and has one outcome in the end."""

import dataclasses
import io
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import optuna
import pytest
import sqlalchemy

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.search import attempts, machine, storage
from longspan.search.slots import LAST_SLOTS, MOST_DEATHS, REFERENCE_SLOTS, Outcome
from longspan.search.space import define
from longspan.search.study import ClaimLost, create_or_continue, open_study
from tests.support import postgresql

BASE = TrainConfig(recipe="sgd+c", data="tiny", learning_rate=0.5)
SPACE = {
    "learning_rate": {"low": 1e-3, "high": 0.1, "log": True},
    "chunk_length": {"low": 50, "high": 90},
    "activation": ["tanh", "sigmoid"],
    "l1": {"low": 1e-6, "high": 1e-3, "log": True},
}
DONE = Outcome("done", "reached 3 epochs", -2.5, -2.0, 2, 3, 1.0)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'study.db'}"
    server = storage.normalized(request.getfixturevalue("server"))
    engine = sqlalchemy.create_engine(server, isolation_level="AUTOCOMMIT")
    name = f"test_{time.time_ns()}"
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.rpartition("/")[0] + f"/{name}"


@pytest.fixture
def sqlite(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


def make_study(url: str, slots: int = 6, **options):
    return create_or_continue(url, define("tiny", BASE, SPACE, "fingerprint", **options), slots)


CLAIM_ALL = """
import sys, time
from longspan.search.slots import Outcome
from tests.support import postgresql
from longspan.search.study import open_study
from longspan.search import machine
study = open_study(sys.argv[1], "tiny")
with machine.present() as name:
    while True:
        claim = study.claim(name)
        if claim is None:
            break
        print(claim.slot, flush=True)
        time.sleep(float(sys.argv[2]))
        study.record(claim, Outcome("done", "", -float(claim.slot), epochs=1))
"""


def start_claimer(url: str, seconds: float) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", CLAIM_ALL, url, str(seconds)], stdout=subprocess.PIPE, text=True)


def test_slots_are_added_with_the_lock_or_not_at_all(url, monkeypatch):
    """A host that is cut off loses the lock; what it sent may still arrive, when others have added more slots."""
    study = make_study(url, slots=2)
    tell = study._attempts.tell

    def cut_off(*told):
        tell(*told)
        raise ConnectionError

    monkeypatch.setattr(study._attempts, "tell", cut_off)
    with pytest.raises(ConnectionError):
        study.extend(5)
    assert study.slot_count == 2
    monkeypatch.undo()
    study.extend(5)
    assert open_study(url, "tiny").slot_count == 5


def test_several_workers_claim_every_slot_exactly_once(url):
    study = make_study(url, slots=10)
    workers = [start_claimer(url, 0.02) for _ in range(2)]
    claimed = [int(line) for worker in workers for line in worker.communicate()[0].split()]
    assert [worker.returncode for worker in workers] == [0] * 2
    assert sorted(claimed) == list(range(10))
    assert [(slot.status, slot.outcome.valid_log_likelihood) for slot in study.slots()] == [
        ("done", -float(number)) for number in range(10)
    ]
    assert len(optuna.load_study(study_name="tiny", storage=storage.normalized(url)).trials) == 10


def test_the_slot_of_a_worker_killed_on_this_machine_is_free_at_once(url):
    study = make_study(url)
    worker = start_claimer(url, 1000)
    assert worker.stdout.readline() == "0\n"
    assert study.claim("me").slot == 1
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    claim = study.claim("me")
    assert claim.slot == 0
    study.record(claim, DONE)
    first = study.slots()[0]
    assert (first.status, first.outcome, first.deaths) == ("done", DONE, 1)


def test_a_worker_elsewhere_is_dead_after_the_grace_period_and_not_before(url):
    study = make_study(url, heartbeat_seconds=100)
    lost = study.claim("worker-on-another-machine")
    assert study.claim("me").slot == 1
    _age_heartbeats(study, seconds=390)
    assert study.claim("me").slot == 2
    _age_heartbeats(study, seconds=20)
    assert study.claim("me").slot == 0
    with pytest.raises(ClaimLost):
        study.record(lost, DONE)
    with pytest.raises(ClaimLost):
        lost.report([{"epoch": 1, "valid_log_likelihood": -3.0}])


def _age_heartbeats(study, seconds: int) -> None:
    with study._attempts.engine.begin() as connection:
        table = sqlalchemy.Table("trial_heartbeats", sqlalchemy.MetaData(), autoload_with=connection)
        for row in connection.execute(sqlalchemy.select(table)).all():
            older = row.heartbeat.fromtimestamp(row.heartbeat.timestamp() - seconds)
            connection.execute(
                table.update().where(table.c.trial_heartbeat_id == row.trial_heartbeat_id).values(heartbeat=older)
            )


def test_heartbeats_are_sent_while_a_slot_is_run(sqlite):
    study = make_study(sqlite, heartbeat_seconds=100)
    claim = study.claim("worker-on-another-machine")
    beats = []
    claim.beat = lambda: beats.append(1)
    with claim.kept_alive(0.01):
        deadline = time.monotonic() + 10
        while len(beats) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(beats) >= 3


def test_a_worker_killed_in_the_middle_of_a_claim_leaves_the_slot_free(sqlite):
    study = make_study(sqlite)
    with study._locked() as connection:  # killed before it could sign, by a version that signed last
        study._add_attempt(connection, 0, optuna.trial.TrialState.RUNNING)
    assert study.claim("me").slot == 0
    assert [slot.status for slot in study.slots()] == ["running", *["waiting"] * 5]
    optuna.load_study(study_name="tiny", storage=sqlite).enqueue_trial({"learning_rate": 0.05})  # by hand, no slot
    assert study.claim("me").slot == 1


def test_a_worker_killed_before_it_could_finish_the_record_leaves_the_slot_free(sqlite):
    study = make_study(sqlite, slots=2)
    with machine.present() as name:
        claim = study.claim(name)
        claim.note("outcome", {"status": "done", "reason": "", "valid_log_likelihood": -1.0})
    (machine.machine_folder() / f"{name}.alive").touch()  # what a killed worker leaves behind
    again = study.claim("me")
    assert again.slot == 0
    study.record(again, DONE)
    assert study.slots()[0].outcome == DONE


def test_a_claim_that_lost_the_storage_halfway_leaves_its_slot_free(sqlite, monkeypatch):
    """The worker is alive and asks again, so nobody would ever bury the attempt for it."""
    study = make_study(sqlite, slots=2)

    def out_of_reach(*_):
        raise optuna.exceptions.StorageInternalError

    with monkeypatch.context() as patched, machine.present() as name:
        patched.setattr(attempts.Attempts, "_note", out_of_reach)
        with pytest.raises(optuna.exceptions.StorageInternalError):
            study.claim(name)
        patched.undo()
        assert study.claim(name).slot == 0


WRITTEN = {
    "trials": {"number", "study_id", "state", "datetime_start", "datetime_complete"},
    "trial_params": {"trial_id", "param_name", "param_value", "distribution_json"},
    "trial_user_attributes": {"trial_id", "key", "value_json"},
    "study_user_attributes": {"study_id", "key", "value_json"},
    "trial_values": {"trial_id", "objective", "value", "value_type"},
    "trial_intermediate_values": {"trial_id", "step", "intermediate_value", "intermediate_value_type"},
    "trial_heartbeats": {"trial_id", "heartbeat"},
}
"""The tables that are written to, with all of their columns but the number of a row, which the database gives."""


def test_rows_are_written_whole_and_once(url):
    """What is inserted twice after an outage must not be there twice, and what Optuna has a column for is not left out.

    The columns are compared with those of the tables that Optuna made.
    """
    study = make_study(url)
    for name, columns in WRITTEN.items():
        found = sqlalchemy.Table(name, sqlalchemy.MetaData(), autoload_with=study._attempts.engine)
        own = set(found.primary_key.columns.keys())
        assert set(found.columns.keys()) - own == columns
        unique = {frozenset(each.columns.keys()) for each in found.constraints if len(each.columns)}
        expected = {"trial_user_attributes": {"trial_id", "key"}, "trial_intermediate_values": {"trial_id", "step"}}
        assert expected.get(name, own) in unique
        inserts = [each for each in attempts.STATEMENTS.values() if re.search(rf"INTO {name}\b", each)]
        assert [set(re.findall(r"\w+", each.partition("(")[2].partition(")")[0])) for each in inserts] == [columns]


def test_optuna_reads_what_was_written(url):
    study = make_study(url, slots=2)
    claim = study.claim("me")
    claim.report([{"epoch": 1, "valid_log_likelihood": -3.0}, {"epoch": 2, "valid_log_likelihood": -2.0}])
    claim.report([{"epoch": 2, "valid_log_likelihood": -2.0}])
    study.record(claim, DONE)
    study.claim("me")
    first, second = optuna.load_study(study_name="tiny", storage=storage.normalized(url)).trials
    assert (first.number, second.number) == (0, 1)
    assert (first.state.name, second.state.name) == ("COMPLETE", "RUNNING")
    assert first.value == DONE.valid_log_likelihood
    assert first.intermediate_values == {1: -3.0, 2: -2.0}
    assert first.user_attrs["slot"] == 0
    assert first.params == {
        name: getattr(study.definition.config_of(0), name)
        for name in attempts.recorded_parameters(study.definition, 0)[0]
    }
    assert study.slots()[0].curve == {1: -3.0, 2: -2.0}


def test_what_a_claim_reads_does_not_grow_with_the_slots(sqlite, monkeypatch):
    study, read = make_study(sqlite, slots=60), []
    changed = attempts.Attempts.changed

    def counted(*arguments):
        found = changed(*arguments)
        read.append(len(found))
        return found

    monkeypatch.setattr(attempts.Attempts, "changed", counted)
    for _ in range(60):
        study.record(study.claim("me"), DONE)
    assert max(read) == 1
    assert study.claim("me") is None
    assert study.ended


def test_the_last_slots_begin_with_the_one_that_takes_longest(sqlite):
    """Settings that are not networks of a size are a tie, which the lower number wins."""
    definition = define("tiny", BASE, {"hidden_size": {"low": 5, "high": 500}}, "x")
    study = create_or_continue(sqlite, definition, LAST_SLOTS + 4)
    claims = [study.claim("elsewhere") for _ in range(LAST_SLOTS + 4)]
    slots = [claim.slot for claim in claims]
    assert slots[:4] == [0, 1, 2, 3]
    sizes = [definition.config_of(slot).hidden_size for slot in slots[4:]]
    assert sizes == sorted(sizes, reverse=True)
    assert sorted(slots) == list(range(LAST_SLOTS + 4))
    study.release(claims[-1])
    study.release(claims[2])
    assert [study.claim("me").slot for _ in range(2)] == sorted([claims[-1].slot, 2])
    assert study.claim("me") is None


def test_what_a_claim_reads_does_not_grow_with_the_workers(sqlite, monkeypatch):
    study, read = make_study(sqlite, slots=60), []
    for number in range(20):
        study.claim(f"elsewhere-{number}")
    decoded = attempts.decoded
    monkeypatch.setattr(attempts, "decoded", lambda text: read.append(text) or decoded(text))
    claim = study.claim("me")
    assert 0 < len(read) < 10  # what the last attempt says, and the number of slots
    study.record(claim, DONE)
    assert study.leaders()[0].number == claim.slot


def test_who_joins_asks_once_what_the_study_is(sqlite):
    """Many workers join at once, and each used to ask some ten things before its first claim."""
    make_study(sqlite)
    asked = []
    listened = (sqlalchemy.Engine, "before_cursor_execute", lambda *about: asked.append(about[2]))
    sqlalchemy.event.listen(*listened)
    try:
        open_study(storage.normalized(sqlite), "tiny")
    finally:
        sqlalchemy.event.remove(*listened)
    assert len(asked) == 1


def test_a_folder_of_locks_that_somebody_else_made_is_refused(tmp_path, monkeypatch):
    """Whoever makes it first in a shared folder could put links there, through which locks would open other files."""
    monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    machine.machine_folder().symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="belongs to somebody else"), machine.present():
        pass
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_diverged_slot_is_finished_and_never_wins(sqlite):
    study = make_study(sqlite, slots=1)
    study.record(study.claim("me"), Outcome("diverged", "update 3: loss nan", epochs=2))
    assert study.claim("me") is None
    assert study.slots()[0].status == "diverged"
    assert study.slots()[0].outcome.reason == "update 3: loss nan"


def test_a_released_slot_is_free_and_no_death(sqlite):
    study = make_study(sqlite, slots=1)
    for _ in range(MOST_DEATHS + 1):
        study.release(study.claim("me"))
    assert study.slots()[0].deaths == 0
    assert study.claim("me").slot == 0


def test_a_slot_that_kills_every_worker_is_given_up(sqlite):
    study = make_study(sqlite, slots=2)
    (machine.machine_folder()).mkdir(parents=True, exist_ok=True)
    for number in range(MOST_DEATHS):
        (machine.machine_folder() / f"dead-{number}.alive").touch()
        assert study.claim(f"dead-{number}").slot == 0
    assert study.claim("me").slot == 1
    lost = study.slots()[0]
    assert (lost.status, lost.finished) == ("lost", True)
    assert f"{MOST_DEATHS} workers died" in lost.outcome.reason
    assert not list(machine.machine_folder().glob("dead-*.alive"))


def test_with_pruning_the_reference_slots_come_first(sqlite):
    study = make_study(sqlite, slots=REFERENCE_SLOTS + 2, prune=True)
    claims = [study.claim("me") for _ in range(REFERENCE_SLOTS)]
    assert study.claim("me") is None
    for claim in claims[:-1]:
        study.record(claim, DONE)
    assert study.claim("me") is None
    study.record(claims[-1], Outcome("diverged", ""))
    assert study.claim("me").slot == REFERENCE_SLOTS


def test_parameters_are_recorded_for_the_dashboard_and_hold_what_the_slot_runs(sqlite):
    study = make_study(sqlite)
    for _ in range(6):
        study.claim("me")
    trials = optuna.load_study(study_name="tiny", storage=sqlite).trials
    assert [trial.user_attrs["slot"] for trial in trials] == list(range(6))
    for trial in trials[1:]:
        config = study.definition.config_of(trial.user_attrs["slot"])
        assert trial.params == {name: getattr(config, name) for name in SPACE}
    assert trials[0].params == {"learning_rate": 0.5, "chunk_length": 100, "activation": "tanh"}  # l1 = 0 has no log


def test_scores_are_reported_once_per_epoch(sqlite):
    study = make_study(sqlite)
    claim = study.claim("me")
    metrics = [{"epoch": number, "valid_log_likelihood": -10.0 + number} for number in (1, 2, 3)]
    claim.report(metrics[:2])
    claim.report(metrics)
    assert study.slots()[0].curve == {1: -9.0, 2: -8.0, 3: -7.0}


def test_a_study_goes_on_only_under_the_same_settings(sqlite):
    make_study(sqlite, slots=2)
    assert make_study(sqlite, slots=5).slot_count == 5
    assert make_study(sqlite, slots=3).slot_count == 5
    other = dataclasses.replace(BASE, hidden_size=7)
    with pytest.raises(InputError, match="hidden_size 200, now 7"):
        create_or_continue(sqlite, define("tiny", other, SPACE, "fingerprint"), 2)
    with pytest.raises(InputError, match="space of activation"):
        create_or_continue(sqlite, define("tiny", BASE, SPACE | {"activation": ["tanh"]}, "fingerprint"), 2)
    with pytest.raises(InputError, match="data fingerprint"):
        create_or_continue(sqlite, define("tiny", BASE, SPACE, "other"), 2)


def test_what_cannot_be_opened_is_one_clear_line(sqlite):
    make_study(sqlite)
    with pytest.raises(InputError, match=r"no study 'other'.*there are: tiny"):
        open_study(sqlite, "other")
    optuna.create_study(study_name="foreign", storage=sqlite)
    assert open_study(sqlite).definition.name == "tiny"
    create_or_continue(sqlite, define("second", BASE, SPACE, "fingerprint"), 2)
    with pytest.raises(InputError, match=r"expected the name of a study.*there are: tiny, second"):
        open_study(sqlite)
    with pytest.raises(InputError, match="no study 'foreign' of longspan"):
        open_study(sqlite, "foreign")
    with pytest.raises(InputError, match=r"cannot use storage mysql://u:\*\*\*@h/d"):
        storage.normalized("mysql://u:secret@h/d")
    with pytest.raises(InputError, match="cannot open storage postgresql") as error:
        open_study(storage.normalized("postgresql://nobody:secret@127.0.0.1:9/none?connect_timeout=2"), "x")
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["empty", "not a database", "another program's"])
def test_a_file_that_is_no_storage_is_refused_and_left_as_it_is(kind, tmp_path):
    file = tmp_path / "no.db"
    if kind == "another program's":
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE photos (name TEXT)")
    else:
        file.write_bytes(b"" if kind == "empty" else b"this is not a database" * 100)
    before = file.read_bytes()
    with pytest.raises(InputError, match=r"expected a study's storage, got .*no\.db, which has no studies in it"):
        open_study(f"sqlite:///{file}", "x")
    assert file.read_bytes() == before


def test_outcomes_from_elsewhere_are_adopted_where_nothing_is_known(sqlite):
    study = make_study(sqlite, slots=4)
    study.record(study.claim("me"), DONE)
    better = Outcome("done", "elsewhere", -1.0, -1.0, 1, 1)
    study.adopt({0: better, 1: better, 2: Outcome("diverged", "nan")}, {"slots": 3})
    assert [slot.status for slot in study.slots()] == ["done", "done", "diverged", "waiting"]
    assert [slot.outcome for slot in study.slots()[:2]] == [DONE, better]
    assert study.claim("me").slot == 3
    assert study.result == {"slots": 3}
    assert not study.concluded
    study.adopt({0: better}, {"slots": 4})
    assert study.result == {"slots": 3}


def test_presence_tells_the_living_from_the_dead_and_the_unknown():
    with machine.present() as name:
        assert not machine.is_gone(name)
        probe = f"from longspan.search import machine; print(machine.is_gone({name!r}))"
        seen = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
        assert seen.stdout == "False\n"
    assert not machine.is_gone(name)  # left in peace, so nothing is known of it
    with pytest.raises(RuntimeError), machine.present() as crashed:
        raise RuntimeError
    assert machine.is_gone(crashed)
    machine.forget(crashed)
    assert not machine.is_gone(crashed)


def test_the_dead_are_known_until_the_storage_has_it(sqlite, monkeypatch):
    """A worker that dies while it claims the slot of a dead one leaves that slot to be claimed at once by the next."""
    study, next_one = make_study(sqlite, slots=1), open_study(sqlite)
    with pytest.raises(RuntimeError), machine.present() as crashed:
        raise RuntimeError
    study.claim(crashed)

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(study, "_add_attempt", die)
        with pytest.raises(KeyboardInterrupt):
            study.claim("dies while it claims")
    assert machine.is_gone(crashed)
    assert next_one.claim("the next").slot == 0
    assert study.claim("comes too late") is None
    assert not machine.is_gone(crashed)


def test_urls_are_brought_to_one_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert storage.normalized("sqlite:///a/../b.db") == f"sqlite:///{Path.cwd() / 'b.db'}"
    for url in ("postgres://h/d", "postgresql://h/d", "postgresql+psycopg://h/d"):
        assert storage.normalized(url) == "postgresql+psycopg://h/d"
    monkeypatch.setenv("LONGSPAN_STORAGE", "postgres://h/d")
    assert storage.url_from(None) == "postgresql+psycopg://h/d"
    monkeypatch.delenv("LONGSPAN_STORAGE")
    with pytest.raises(InputError, match="expected the URL"):
        storage.url_from(None)


def test_definitions_survive_the_storage(sqlite):
    study = make_study(sqlite, prune=True, heartbeat_seconds=7)
    again = open_study(sqlite, "tiny")
    assert again.definition == study.definition
    assert again.definition.identity == study.definition.identity
    assert json.dumps(again.definition.space) == json.dumps(SPACE)


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_a_worker_name_in_the_storage_cannot_delete_a_file(sqlite, tmp_path, relative):
    study = make_study(sqlite, slots=1)
    claim = study.claim("host-1-ab")
    assert claim is not None
    precious = tmp_path / "precious.txt"
    precious.write_text("kept")
    up = Path(*[".."] * len(machine.machine_folder().parts))
    claim.note("worker", str(up / precious.relative_to("/") if relative else precious))
    assert open_study(sqlite).claim("host-2-cd") is None  # nobody here knows that worker to be dead
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "", "a\x1b[31mb"])
def test_a_study_whose_name_leads_out_of_its_folder_is_refused(sqlite, name):
    definition = make_study(sqlite).definition
    with pytest.raises(InputError, match="cannot be named"):
        define(name, definition.base, definition.space, definition.fingerprint)
    made = optuna.create_study(storage=sqlite, study_name=name)
    made.set_user_attr("slots", 1)
    made.set_user_attr("definition", {**msgspec.to_builtins(definition), "name": name})
    with pytest.raises(InputError, match="cannot be named"):
        open_study(sqlite, name)
    made.set_user_attr("definition", msgspec.to_builtins(definition))
    with pytest.raises(InputError, match="says that it is"):
        open_study(sqlite, name)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:SECRET@host/x",
        "postgresql://me:SEC@RET@host/x",
        "postgresql://me:SECRET%40@host/x",
        "postgresql://host/x?user=me&password=SECRET",
        "postgresql:/me:SECRET@host/x",
        "postgres//me:SECRET@host",
        "mysql://me:SECRET@host/x",
        "postgresql://me/SECRET@host/x",
        "postgresql://host/x&password=SECRET",
        "postgresql://host/x;password=SECRET",
        "postgresql://me SECRET@host/x",
        "postgresql://host/x?password=SECRET&password=SECRET2",
        "SECRET",
    ],
)
def test_no_form_of_a_url_shows_its_password(url):
    shown = [storage.hide_password(url)]
    try:
        storage.make_storage(storage.normalized(url))
    except InputError as error:
        shown.append(str(error))
    assert len(shown) == 2
    for text in shown:
        assert "SEC" not in text
        assert "RET" not in text


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://me:SEC%40RET@host/kept/", "404 for https://me:SEC%40RET@host/kept"),
        ("https://me:SEC%40RET@host/kept/", "SEC@RET is wrong"),
        ("simplecache::https://me:SECRET@host/kept", "404 for https://me:SECRET@host/kept/x"),
        ("s3://bucket/kept?token=SEC%2FRET", "no token=SEC%2FRET, SEC/RET"),
        ("postgresql+psycopg://me:SEC%40RET@host/x", "postgresql://me:SEC%40RET@host:5432/x failed"),
        ("sftp://me:SEC:RET@host/kept", "no SEC:RET"),
    ],
)
def test_an_error_is_told_without_the_secrets_of_a_url_however_it_writes_them(url, told):
    reason = storage.reason_of(OSError(told), url)
    assert "SEC" not in reason
    assert "RET" not in reason
    assert reason.count("***") == told.count("SEC")


def test_what_is_no_secret_is_shown():
    assert (
        storage.hide_password("postgresql+psycopg://me:x@host:5433/studies") == "postgresql://me:***@host:5433/studies"
    )
    assert storage.hide_password("sqlite:////tmp/study.db") == "sqlite:////tmp/study.db"


def test_a_worker_needs_tables_and_no_more_rights_than_the_page_names(tmp_path):
    """The statements of docs/reliability.md, as they stand there."""
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    statements = page.partition("```sql\n")[2].partition("```")[0].replace("DATABASE studies", "DATABASE postgres")
    with postgresql.running_server() as server:
        with pytest.raises(InputError, match=r"no study of longspan in postgresql://.*`longspan search` makes one"):
            open_study(storage.normalized(server.url), "tiny")
        owner = make_study(server.url, slots=2)
        owner.artifacts(None)
        with owner._attempts.engine.begin() as connection:
            connection.execute(sqlalchemy.text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
            for statement in filter(str.strip, statements.split(";")):
                connection.execute(sqlalchemy.text(statement))
        study = open_study(storage.normalized(server.url.replace("longspan@", "worker@")), "tiny")
        kept = study.artifacts(None)
        claim = study.claim("me")
        claim.report([{"epoch": 1, "valid_log_likelihood": -3.0}])
        claim.beat()
        kept.store.write("x", io.BytesIO(b"content"), claim)
        kept.store.remove("x")
        study.record(claim, DONE)
        study.set_result({"slots": 2})
        assert study.slots()[0].outcome == DONE
        with (
            pytest.raises(sqlalchemy.exc.ProgrammingError, match="permission denied"),
            study._attempts.engine.begin() as connection,
        ):
            connection.execute(sqlalchemy.text("CREATE TABLE mine (id INTEGER)"))


@pytest.mark.parametrize("name", ["~nobody-of-this-name/study.db", "loop/study.db"])
def test_a_place_that_leads_nowhere_is_a_storage_that_is_not_there(tmp_path, monkeypatch, name):
    """A home of nobody and a link to itself were errors of other types."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="storage"):
        open_study(storage.normalized(f"sqlite:///{name}"))
