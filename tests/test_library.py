"""The library from Python: what the command line refuses, shows and limits, it does too."""

import pytest

import longspan
from longspan.errors import InputError
from longspan.training.listeners import Listener
from tests.support.catalog import tiny_music

SMALL = {"hidden_size": 8, "chunk_length": 10, "block": 2, "max_epochs": 3, "dropout": 0.0}


@pytest.fixture
def trained(tmp_path):
    return longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "run", **SMALL)


def test_other_data_than_a_run_was_begun_with_are_refused(trained):
    other = tiny_music(seed=1)
    with pytest.raises(InputError, match="the data of 'tiny' have changed"):
        trained.evaluate("test", data=other)
    with pytest.raises(InputError, match="the data of 'tiny' have changed"):
        longspan.resume(trained.run.path, data=other)
    assert trained.evaluate("test", data=tiny_music()).log_likelihood < 0


class Clock:
    """Time that passes by a second a block."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("longspan.runtime.time.monotonic", lambda: self.now)

    def listener(self) -> Listener:
        clock = self

        class Tick(Listener):
            def on_block(self, progress, info, count, total):
                clock.now += 1.0

        return Tick()


def test_a_run_that_had_its_time_stops_cleanly_and_resumes_to_the_same_bytes(trained, tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    where = tmp_path / "limited"
    stopped = longspan.train(
        "sgd+c", tiny_music(), run_dir=where, listeners=[clock.listener()], max_seconds=2.5, **SMALL
    )
    assert (stopped.run.status, clock.now) == ("interrupted", 3.0)
    resumed = longspan.resume(where, data=tiny_music())
    assert resumed.run.status == "done"
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (where / name).read_bytes() == (trained.run.path / name).read_bytes()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_time_is_refused_by_its_name_in_python(seconds, tmp_path):
    with pytest.raises(InputError, match=r"^max_seconds must be above 0 and finite"):
        longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "run", max_seconds=seconds, **SMALL)


def test_progress_is_shown_where_it_is_asked_for_and_nowhere_else(tmp_path, capsys):
    longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "quiet", **SMALL)
    assert capsys.readouterr() == ("", "")
    longspan.train("sgd+c", tiny_music(), run_dir=tmp_path / "shown", progress=True, **SMALL)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in shown if line.startswith("epoch")] == [["epoch", f"{n}"] for n in (1, 2, 3)]


def test_messages_name_settings_as_python_does():
    with pytest.raises(InputError, match=r"^hidden_size must be from 1 to 65536: got 0") as error:
        longspan.train("sgd+c", tiny_music(), hidden_size=0)
    assert error.value.fields == ("hidden_size",)
