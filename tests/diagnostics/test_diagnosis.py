"""A trained run is examined as a whole: its loss, its data, its commands; a few injected faults are named."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import longspan
from benchmarks.diagnosis import RESULT, judge
from benchmarks.diagnosis_cases import COUNTED, FIRST
from benchmarks.diagnosis_data import Forgotten, Pairs, as_pairs
from longspan.cli import run as command
from longspan.cli.diagnose import lines_of
from longspan.data.dataset import Chunks
from longspan.data.music import MusicData
from longspan.diagnostics.data_checks import check_data
from longspan.diagnostics.diagnosis import Diagnosis, kept_diagnosis
from longspan.diagnostics.landscape import Cut, landscape, standing
from longspan.report import read_report, render_report
from longspan.reporting.diagnosis_section import diagnosis_charts
from longspan.training.runs import Run
from longspan.training.state import to_named
from tests.support.catalog import tiny_config, tiny_music, tiny_text


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("diagnosed") / "run"
    config = tiny_config("sgd+cm", max_epochs=1, clip=0.05, watch_lags=4)
    return longspan.train(data=tiny_music(), config=config, run_dir=path)


@pytest.fixture(scope="module")
def diagnosis(trained) -> Diagnosis:
    return trained.diagnose(lags=8)


def test_the_next_update_is_the_one_that_training_makes(trained, tmp_path):
    here = standing(trained.run, trained.data)
    moved = landscape(here).along_update
    made = here.state.progress.step
    config = dataclasses.replace(trained.run.config, max_epochs=2, max_updates=made + 1)
    further = longspan.train(data=trained.data, config=config, run_dir=tmp_path / "further")
    before, after = (to_named(standing(run, trained.data).state.params) for run in (trained.run, further.run))
    length = np.sqrt(sum(np.square(after[name] - before[name]).sum() for name in before))
    assert moved.clipped == pytest.approx(length, rel=1e-4)
    assert moved.unclipped > moved.clipped  # pyright: ignore[reportOperatorIssue]


def test_the_way_of_the_next_updates_is_the_one_that_training_goes(trained):
    here = standing(trained.run, tiny_music())
    chunks = Chunks(*map(jnp.asarray, here.source.epoch(here.state.progress.epoch)))
    count = 3 * len(chunks.lengths) // 4
    there, state, carry = *jax.tree.map(jnp.copy, (here.state.params, here.state.optimizer)), here.state.carry
    optimizer = here.optimizer(here.state.progress.threshold)
    for number in range(count):
        one = Chunks(*(leaf[number : number + 1] for leaf in chunks))
        there, state, carry, _ = optimizer.advance(there, state, carry, one, 1, here.context)
    entering, losses = here.state.carry, []
    for number in range(len(chunks.lengths)):
        chunk = Chunks(*(leaf[number] for leaf in chunks))
        found = [here.objective(weights, entering, chunk, here.context) for weights in (here.state.params, there)]
        entering = found[0][1][0]
        losses.append([float(loss) for loss, _ in found])
    expected = np.sum(losses[count:], axis=0) / (here.objective.scale * np.asarray(chunks.mask)[count:].sum())
    np.testing.assert_allclose(landscape(here).farther_losses[:2], expected, rtol=1e-4)


def test_the_cut_falls_by_the_gradient_norm_at_first(trained):
    here = standing(trained.run, trained.data)
    found = landscape(here)
    cut = found.along_gradient
    places = {round(place / cut.unclipped, 6): loss for place, loss in zip(cut.distances, cut.chunk, strict=True)}
    slope = (places[0.25] - places[-0.25]) / (0.5 * cut.unclipped)  # pyright: ignore[reportOperatorIssue]
    chunk = int(np.argmax(found.norms))
    chunks = here.source.epoch(here.state.progress.epoch)
    scale = here.objective.scale * chunks.mask[chunk].sum()
    assert -slope == pytest.approx(max(found.norms) / scale, rel=0.05)
    assert cut.clipped == pytest.approx(0.05 * trained.run.config.learning_rate)


def test_a_kept_diagnosis_is_that_of_the_weights(trained, diagnosis):
    assert kept_diagnosis(trained.run) == diagnosis
    other = msgspec.structs.replace(diagnosis, model="of other weights")
    other.keep(trained.run)
    assert kept_diagnosis(trained.run) is None
    diagnosis.keep(trained.run)
    assert Run.open(trained.run.path).files.sealed


def test_what_is_watched_stands_in_the_metrics(trained, diagnosis):
    record = trained.run.metrics()[-1]
    assert list(record["gradient_by_lag"]) == ["0", "1", "2", "4"]
    assert record["dead_units"] == 0
    assert len(diagnosis.measures.course.gradients) == len(trained.run.metrics())


def test_the_terminal_shows_it_in_eighty_columns(diagnosis):
    lines = list(lines_of(diagnosis))
    commands = {remedy.command for finding in diagnosis.findings for remedy in finding.remedies}
    wide = [
        line for line in lines if len(line) > 80 and line.strip() not in commands and diagnosis.measures.run not in line
    ]
    assert not wide
    text = "\n".join(lines)
    for what in ("history", "Price of a repeat", "Gradient by lag", "Lyapunov", "Units", "Loss along the gradient"):
        assert what in text


def test_tables_break_into_no_stray_halves_at_eighty_columns(diagnosis):
    """Gradients that vanish, whose shares are long to write, at all lags that are shown."""
    norms = [10.0**-lag for lag in range(101)]
    cut = Cut([k * 1.23e-4 for k in range(17)], [1.23456e-4] * 17, [0.1] * 17, 1.0, None)
    seen = msgspec.structs.replace(
        diagnosis.measures,
        gradient=msgspec.structs.replace(diagnosis.measures.gradient, norms=norms),
        landscape=msgspec.structs.replace(diagnosis.measures.landscape, along_gradient=cut),
    )
    lines = list(lines_of(msgspec.structs.replace(diagnosis, measures=seen)))
    lags = next(number for number, line in enumerate(lines) if line.split()[:1] == ["lag"])
    assert lines[lags].split() == ["lag", "0", "1", "2", "4", "8", "16", "32", "64", "100"]
    tiny = [f"1e-{lag:02}" for lag in (8, 16, 32, 64, 100)]
    assert lines[lags + 1].split() == ["left", "1", "0.1", "0.01", "0.0001", *tiny]
    start = next(number for number, line in enumerate(lines) if line.startswith("Loss along the gradient"))
    assert [len(line.split()) for line in lines[start + 1 : start + 3]] == [5, 5]
    assert lines[start + 3].startswith("Loss along the update")
    assert all(len(line) <= 80 for line in lines[lags : start + 3])


def test_a_history_of_some_of_the_steps_says_so_beside_the_validation_score(diagnosis):
    few = msgspec.structs.replace(diagnosis.measures.history, steps=1024)
    seen = msgspec.structs.replace(diagnosis.measures, history=few, steps=12_000)
    text = "\n".join(lines_of(msgspec.structs.replace(diagnosis, measures=seen)))
    assert "Score by length of history (nats per step, of 1,024 of the 12,000 steps)" in text
    assert re.search(
        r"validation -\S+, rates .*\n  \(of all steps examined; the history above is of 1,024 of the 12,000", text
    )


def test_the_command_prints_json_and_inspect_says_where_it_went(trained, diagnosis, capsys, monkeypatch):
    monkeypatch.setattr("longspan.cli.diagnose.load_data_of", lambda *_, **__: trained.data)
    assert command(["diagnose", str(trained.run.path), "--lags", "8", "--json"]) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert shown["measures"]["gradient"]["norms"] == pytest.approx(diagnosis.measures.gradient.norms, rel=1e-5)
    assert shown["verdict"] == diagnosis.verdict
    assert command(["diagnose", str(trained.run.path), "--lags", "0"]) == 2
    assert command(["inspect", "some/run", "--lags", "5"]) == 2
    assert "longspan diagnose some/run" in capsys.readouterr().err


def _early_answers() -> Pairs:
    """Half the next input, which is noise."""
    noise = np.random.default_rng(0).standard_normal((3, 301, 1)).astype(np.float32)
    splits = {name: ([each[:-1]], [each[1:] / 2]) for name, each in zip(("train", "valid", "test"), noise, strict=True)}
    return Pairs("early", "numbers", 1, splits, 1)


def test_the_page_draws_it(trained, diagnosis):
    charts = {chart.title: chart for chart in diagnosis_charts(diagnosis.measures)}
    assert [y for _, y in charts["Gradient by lag"].series[0].points] == diagnosis.measures.gradient.norms
    assert charts["Loss along the gradient"].rules[1].at == diagnosis.measures.landscape.along_gradient.clipped
    assert "Price of a repeat" in charts
    assert len(charts["Dead units, over training"].series[0].points) == 1
    assert "<h3>Diagnosis</h3>" in render_report([read_report(trained.run.path)])


def test_data_are_checked_without_a_model():
    music = tiny_music()
    plain = check_data(music, tiny_config())
    assert plain.echo[1] == 1
    assert plain.cut == 0
    late = check_data(as_pairs(music, delay=2), tiny_config())
    assert late.echo[2] == 1
    assert late.echo[1] < 1
    cut = check_data(as_pairs(music, kind=Forgotten), tiny_config())
    assert cut.cut > 0.5
    assert cut.longest_train == 10
    splits = {**music.splits, "valid": music.splits["train"][:3]}
    assert check_data(MusicData("same", splits, 1), tiny_config()).overlap == 1
    past, both = check_data(_early_answers(), tiny_config()).explained or (0.0, 0.0)
    assert past < 0.1
    assert both > 0.9
    hits = check_data(tiny_text(), tiny_config()).hits
    assert hits is not None
    assert hits[1] > 0.7


@pytest.mark.parametrize("fault", ["rate too large", "rate too small", "state not carried", "misaligned"])
def test_an_injected_fault_is_named(fault, tmp_path):
    seed, case = next((seed, case) for seed, case in FIRST.seeded if case.fault == fault and "recurr" in case.about)
    assert judge(case, seed, tmp_path).found[0] == fault


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "case"), COUNTED.seeded, ids=[case.about for _, case in COUNTED.seeded])
def test_every_case_is_judged_as_recorded(seed, case, tmp_path):
    recorded = msgspec.json.decode(RESULT.read_bytes())["outcomes"][seed - COUNTED.first_seed]
    assert judge(case, seed, tmp_path).found[:1] == recorded["found"][:1]
