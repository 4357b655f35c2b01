"""Conditions on figures made by hand: each fires on its own evidence and not without it; causes come first."""

import msgspec
import pytest

from longspan.diagnostics.course import Course
from longspan.diagnostics.data_checks import DataChecks
from longspan.diagnostics.diagnosis import findings_of
from longspan.diagnostics.landscape import Cut, Landscape
from longspan.diagnostics.measures import Measures, Standards
from longspan.diagnostics.remedies import Prescriber, measured
from longspan.probes.gradients import GradientByLag, Lyapunov
from longspan.probes.memory import History
from longspan.probes.units import Units
from longspan.training.runs import Run
from tests.support.catalog import tiny_config, tiny_music
from tests.support.runs import start

replace = msgspec.structs.replace

DISTANCES = [-0.1, 0.0, 0.1, 0.2]
HEALTHY = Measures(
    run="runs/x",
    recipe="sgd+c",
    data="tiny",
    kind="music",
    split="valid",
    steps=1000,
    sequences=10,
    weights="best",
    gradient=GradientByLag([0.5**lag for lag in range(20)], 500),
    lyapunov=Lyapunov([-0.3, -0.5], 8, 100),
    history=History([1, 2, 4], [-8.0, -7.0, -6.1], [0.1] * 3, -6.0, 500),
    repeats=None,
    units=Units(50, 0.0, 20.0, 0.2, "saturated", 0.5),
    standards=Standards(train=-5.5, valid=-6.0, rates=-11.0, stake=11.0),
    course=Course(
        "done",
        "no better validation score for 4 epochs",
        [-8.0, -7.0, -6.0, -5.9, -5.8, -5.7, -5.6],
        [-8.0, -7.0, -6.0, -6.01, -6.0, -6.02, -6.01],
        [0.1] * 7,
        [0.1] * 7,
        [1.0] * 7,
    ),
    data_checks=DataChecks({0: 0.1, 1: 1.0, 2: 0.1}, None, 0.0, 100, 100, 0.2, 0.0, 0.0, (0.2, 0.9)),
    landscape=Landscape(
        norms=[1.0] * 8,
        threshold=5.0,
        loss=5.6,
        along_gradient=Cut(DISTANCES, [5.7, 5.6, 5.5, 5.5], [5.6] * 4, 0.1, 0.1),
        along_update=None,
        multiples=[0.25, 1.0, 4.0],
        multiple_losses=[5.59, 5.58, 5.7],
        farther=[1.0, 4.0, 64.0],
        farther_losses=[5.61, 5.60, 5.62, 6.0],
        update_ratios={},
        rate_scale=1.0,
    ),
)


@pytest.fixture
def run(tmp_path) -> Run:
    return start(tmp_path / "run", tiny_music(), tiny_config("sgd+c"))


def names(run: Run, seen: Measures, **changes) -> list[str]:
    config = tiny_config("sgd+c", **changes)
    return [each.name for each in findings_of(seen, config, Prescriber(run, "frames", in_python=False))]


def with_checks(**changes) -> Measures:
    return replace(HEALTHY, data_checks=replace(HEALTHY.data_checks, **changes))


def with_course(**changes) -> Measures:
    return replace(HEALTHY, course=replace(HEALTHY.course, **changes))


def with_landscape(**changes) -> Measures:
    return replace(HEALTHY, landscape=replace(HEALTHY.landscape, **changes))


def with_standards(valid: float, seen: Measures = HEALTHY, train: float | None = None) -> Measures:
    standards = replace(seen.standards, valid=valid, train=valid if train is None else train)
    return replace(seen, standards=standards)


FADING = replace(HEALTHY, gradient=GradientByLag([0.1**lag for lag in range(20)], 500))
FORGETFUL = History([1, 2, 4], [-6.0, -6.0, -6.0], [0.0] * 3, -6.0, 500)
CONDITIONS = {
    "misaligned": with_checks(echo={0: 0.1, 1: 0.1, 2: 1.0}),
    "state not carried": with_checks(cut=0.9),
    "splits overlap": with_checks(overlap=0.9),
    "exploding": replace(HEALTHY, lyapunov=Lyapunov([0.4], 8, 100), gradient=GradientByLag([1.0, 10.0, 500.0], 500)),
    "rate too large": with_standards(-40.0),
    "cliff": with_course(valid=[-8.0, -6.0, -10.0, -9.0, -10.0, -10.0, -10.0], clipped=[None] * 7),
    "clipped throughout": replace(
        with_course(clipped=[1.0] * 7, norms=[100.0] * 7),
        landscape=replace(HEALTHY.landscape, multiples=[1.0, 64.0], multiple_losses=[5.59, 5.0]),
    ),
    "rate too small": with_standards(-10.9, with_landscape(farther_losses=[5.61, 5.60, 5.59, 5.5])),
    "dead units": replace(HEALTHY, units=replace(HEALTHY.units, dead=0.7)),
    "saturated": replace(HEALTHY, units=replace(HEALTHY.units, flat=0.9)),
    "vanishing": with_standards(-10.9, replace(FADING, history=FORGETFUL)),
    "memory unused": replace(HEALTHY, history=FORGETFUL),
    "overfitting": with_course(train=[-8.0, -7.0, -6.5] + [-4.0] * 4, valid=[-8.0, -6.0] + [-6.8] * 5),
    "nothing learned": replace(
        with_landscape(multiples=[1.0, 64.0, 256.0], multiple_losses=[5.5999, 5.599, 5.61]),
        standards=Standards(train=-11.0, valid=-10.99, rates=-11.0, stake=11.0),
        course=replace(HEALTHY.course, valid=[-11.2, -10.99, -11.1, -11.0, -11.05, -11.0, -11.1], train=[-11.0] * 7),
    ),
    "under-trained": with_course(reason="reached 5 epochs", valid=[-8.0, -7.5, -7.0, -6.5, -6.0], train=[-8.0] * 5),
}


def test_nothing_is_wrong_with_healthy_figures(run):
    assert names(run, HEALTHY) == []


def test_nothing_learned_needs_both_its_signs(run):
    nothing = CONDITIONS["nothing learned"]
    (found,) = findings_of(nothing, tiny_config("sgd+c"), Prescriber(run, "frames", in_python=False))
    assert found.remedies[0].settings == {"learning_rate": pytest.approx(16 * tiny_config("sgd+c").learning_rate)}
    better = replace(nothing, course=replace(nothing.course, valid=[-11.2, -10.5, *nothing.course.valid[2:]]))
    landed = replace(nothing, landscape=replace(nothing.landscape, multiple_losses=[5.5, 5.55, 5.61]))
    assert names(run, better) == names(run, landed) == []
    # Measures of numbers are those of the normalized ones, the course is in the units of the data.
    assert names(run, replace(nothing, log_volume=0.5)) == []


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_fires_first_on_its_own_evidence(name, run):
    found = findings_of(CONDITIONS[name], tiny_config("sgd+c"), Prescriber(run, "frames", in_python=False))
    assert found[0].name == name
    assert found[0].evidence
    assert all(each.command for each in found[0].remedies)


@pytest.mark.parametrize(
    "seen",
    [
        with_checks(overlap=0.9, alike=0.8),
        with_checks(longest_train=20, longest_valid=20),
        replace(HEALTHY, lyapunov=Lyapunov([0.4], 8, 100)),
        with_course(clipped=[1.0] * 7),
        replace(HEALTHY, units=replace(HEALTHY.units, flat=0.97, flat_means="off")),
        FADING,
        replace(HEALTHY, history=FORGETFUL, data_checks=replace(HEALTHY.data_checks, hits=(0.5, 0.5))),
        with_course(valid=[-8.0, -6.0, -10.0, -7.0, -6.1, -6.0, -6.0], clipped=[None] * 7),
        with_course(reason="reached 7 epochs"),
        with_landscape(farther_losses=[5.61, 5.60, 5.59, 5.5]),
        with_standards(-10.9, with_landscape(farther_losses=[5.61, 5.60, 5.59, 5.5], rate_scale=0.1)),
    ],
    ids=[
        "alike",
        "short",
        "chaotic",
        "clipped",
        "sparse",
        "fading",
        "markov",
        "recovered",
        "converged",
        "learned",
        "lowered",
    ],
)
def test_half_the_evidence_is_no_alarm(seen, run):
    assert names(run, seen) == []


def test_causes_come_before_what_follows_from_them(run):
    both = replace(CONDITIONS["rate too large"], units=replace(HEALTHY.units, dead=0.8, flat=1.0))
    assert names(run, both) == ["rate too large", "dead units", "saturated"]


def test_a_model_that_creeps_has_too_small_a_rate(run):
    rising = [-11.0 + 0.01 * epoch for epoch in range(20)]
    creeping = with_course(valid=rising, train=rising, reason="reached 20 epochs")
    poor = with_standards(-10.8, replace(creeping, landscape=with_landscape(farther=[1.0, 16.0, 64.0]).landscape))
    assert names(run, poor)[0] == "under-trained"
    short = replace(poor.landscape, farther_losses=[5.61, 5.6095, 5.609, 6.0])
    assert names(run, replace(poor, landscape=short))[0] == "rate too small"


def test_who_had_learned_before_it_diverged_went_over_a_cliff(run):
    diverged = with_course(status="diverged", reason="update 9: the loss is not finite", clipped=[None] * 7)
    assert names(run, diverged)[0] == "cliff"
    assert names(run, with_standards(-10.9, diverged))[0] == "rate too large"
    held = replace(diverged, course=replace(diverged.course, clipped=[0.5] * 7))
    assert names(run, held)[0] == "rate too large"


def test_a_gap_alone_or_a_validation_score_that_only_wavers_is_not_overfitted(run):
    assert names(run, with_standards(-6.0, train=-2.0)) == []
    overfitted = CONDITIONS["overfitting"]
    wavering = replace(overfitted, course=replace(overfitted.course, train=[-8.0, -7.0, -6.5] + [-6.4] * 4))
    assert names(run, wavering) == []


def test_memory_that_is_cut_off_is_a_cause_and_unused_memory_a_consequence(run):
    unused = replace(CONDITIONS["overfitting"], history=FORGETFUL)
    assert names(run, unused) == ["overfitting", "memory unused"]
    cut_off = replace(unused, gradient=GradientByLag([1.0] + [0.0] * 19, 500))
    assert names(run, cut_off) == ["memory unused", "overfitting"]


def test_a_solved_task_is_left_in_peace(run):
    wild = replace(CONDITIONS["exploding"], course=replace(HEALTHY.course, reason="solved: 0.0% are wrong"))
    assert names(run, wild) == []


def test_a_remedy_repeats_the_run_with_one_setting_changed(tmp_path):
    run = start(tmp_path / "run", tiny_music(), tiny_config("sgd+c", learning_rate=0.2, hidden_size=9))
    remedy = Prescriber(run, "frames", in_python=False).train("lower it", learning_rate=0.05)
    assert remedy.settings == {"learning_rate": 0.05}
    assert remedy.command.startswith("longspan train sgd+c --data tiny ")
    assert "--hidden-size 9" in remedy.command
    assert remedy.command.count("--learning-rate 0.05") == 1
    assert "0.2" not in remedy.command
    python = Prescriber(run, "frames", in_python=True).train("lower it", learning_rate=0.05).command
    assert python.startswith('longspan.train("sgd+c", data, ')
    assert "hidden_size=9" in python
    resumed = Prescriber(run, "frames", in_python=False).resume("longer", 40).command
    assert resumed == f"longspan resume {run.path} --max-epochs 40"


def test_what_remedies_brought_is_of_runs():
    for brought in measured().values():
        assert 0 <= brought.better <= brought.runs
        assert brought.runs > 0
