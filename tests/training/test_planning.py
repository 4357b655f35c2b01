"""Plans for a given time: they fit it, they cool down, and a planned run resumes to the same bytes."""

import itertools

import pytest

from longspan.errors import InputError
from longspan.training.listeners import Listener
from longspan.training.loop import train
from longspan.training.planning import RESERVE, Pace, measure, plan, planned, train_in
from longspan.training.runs import Given, Run
from tests.support.catalog import tiny_config, tiny_music
from tests.support.runs import essence, start

PACE = Pace(start=4.0, update=0.002, validation=0.5, updates_per_pass=1000)


def seconds_of(config, pace):
    """Time that the updates of a config and the validations between them take."""
    passes, rest = divmod(config.max_updates, pace.updates_per_pass)
    return pace.start + config.max_updates * pace.update + (passes + (rest > 0)) * pace.validation


@pytest.mark.parametrize("seconds", [7.0, 10.0, 30.0, 100.0, 400.0])
@pytest.mark.parametrize("updates_per_pass", [7, 1000, 10**6])
def test_a_plan_fits_the_time_and_uses_most_of_it(seconds, updates_per_pass):
    pace = PACE._replace(updates_per_pass=updates_per_pass, validation=0.5 if updates_per_pass > 7 else 0.01)
    config = planned(tiny_config("sgd", max_epochs=10**9), pace, seconds)
    taken = seconds_of(config, pace)
    assert taken <= (1 - RESERVE) * seconds
    assert taken > (1 - RESERVE) * seconds - pace.validation - 2 * pace.update - 0.01
    assert config.max_epochs * updates_per_pass >= config.max_updates


def test_passes_before_training_take_their_share_of_the_time():
    without = planned(tiny_config("sgd", max_epochs=10**6), PACE, 100)
    with_them = planned(tiny_config("sgd", max_epochs=10**6, pretrain_frames=4, pretrain_recurrent=1), PACE, 100)
    assert without.max_updates - with_them.max_updates == 4000  # 5 passes take 10 s: 4 passes and 4 validations


@pytest.mark.parametrize("limits", [{"max_epochs": 3}, {"max_epochs": 1000, "max_updates": 2500}])
def test_a_run_that_ends_in_time_by_itself_is_left_alone(limits):
    config = tiny_config("sgd", **limits)
    assert planned(config, PACE, 100) is config


@pytest.mark.parametrize(
    ("schedule", "after"),
    [("plateau", "plateau"), ("constant", "constant"), ("cosine", "constant"), ("rnnlm", "constant")],
)
def test_a_schedule_that_counts_on_more_epochs_becomes_a_constant_rate_that_is_cooled_down(schedule, after):
    config = planned(tiny_config("sgd", max_epochs=10**6, learning_rate_schedule=schedule), PACE, 100)
    assert (config.learning_rate_schedule, config.cooldown) == (after, 0.5)


def test_too_little_time_is_refused_with_what_it_takes():
    with pytest.raises(InputError, match=r"starting and one validation take about 4 s here.* allow more time"):
        planned(tiny_config("sgd", max_epochs=1000), PACE, 5.0)


def test_hessian_free_is_not_planned():
    config = tiny_config("hf")
    assert plan(config, tiny_music(), Given(), 1e-3) is config


def test_a_pace_is_read_off_the_clock():
    """Each reading is a second later than the last: every block and every validation takes one, compiling nothing."""
    data, config = tiny_music(), tiny_config()
    readings = itertools.count()
    pace = measure(config, data, Given(), clock=lambda: float(next(readings)))
    chunks = len(data.epoch(0, seed=0, chunk_length=config.chunk_length, lanes=config.lanes).lengths)
    assert pace == Pace(0.0, 1 / min(config.block, chunks), 1.0, chunks)


def test_the_rate_falls_in_a_straight_line_over_the_last_updates(tmp_path):
    data = tiny_music()
    config = tiny_config("sgd+c", max_updates=40, max_epochs=1000, cooldown=0.5, block=1, patience=1000)
    config = type(config)(**{**vars(config), "learning_rate_schedule": "constant", "learning_rate": 0.1})
    rates = []

    class Rates(Listener):
        def on_block(self, progress, info, count, total):
            rates.extend(float(rate) for rate in info.of_updates()["learning_rate"])

    outcome = train(start(tmp_path / "run", data, config), data, listeners=[Rates()])
    assert outcome.reason == "reached 40 updates"
    assert rates == pytest.approx([0.1] * 20 + [0.1 * (20 - step) / 20 for step in range(20)], rel=1e-6)


def test_a_planned_run_resumes_to_the_same_bytes(tmp_path):
    data = tiny_music()
    config = tiny_config("sgd+cm", max_updates=30, max_epochs=1000, cooldown=0.5, block=2)
    whole = start(tmp_path / "whole", data, config)
    train(whole, data)
    halting = start(tmp_path / "halting", data, config)
    for _ in range(100):
        if train(Run.open(halting.path), data, interrupted=lambda: True).status == "done":
            break
    assert essence(halting.path) == essence(whole.path)


@pytest.mark.parametrize("slower", [1.0, 3.0, 0.5])
def test_a_plan_is_mended_at_half_time_and_the_run_is_the_one_its_last_config_describes(slower, tmp_path):
    """A clock that runs by the updates made: ten a second were planned, and the machine is slower or faster."""
    data = tiny_music()
    config = tiny_config("sgd+cm", max_updates=100, max_epochs=1000, cooldown=0.5, block=2, patience=1000)
    run = start(tmp_path / "run", data, config)
    made = [0]

    class Steps(Listener):
        def on_block(self, progress, info, count, total):
            made[0] = progress.step

    outcome = train_in(10 / (1 - RESERVE), run, data, listeners=[Steps()], clock=lambda: made[0] * slower / 10)
    assert outcome.status == "done"
    assert made[0] == run.config.max_updates == pytest.approx(100 / slower, abs=6)
    again = start(tmp_path / "again", data, run.config)
    train(again, data)
    assert essence(again.path) == essence(run.path)


def test_cooling_down_needs_an_end():
    with pytest.raises(InputError, match="cooldown ends at max_updates"):
        tiny_config("sgd", cooldown=0.5)
