"""What a report says of runs, studies and results, before anything is drawn."""

import jax
import msgspec
import numpy as np
import pytest

from longspan import cli
from longspan.errors import InputError
from longspan.report import read_report, render_report
from longspan.reporting.charts import (
    Chart,
    Rule,
    Series,
    framed,
    run_charts,
    study_charts,
)
from longspan.reporting.samples import Note, TextSample, draw_samples
from longspan.reporting.study_report import spans_decades
from longspan.reproduction.html_page import results_charts, trials_charts
from longspan.training.runs import Run
from longspan.training.setup import initial_model
from longspan.training.state import to_named
from tests.support.catalog import tiny_config, tiny_music, tiny_text
from tests.support.report_folders import results_folder, run_folder, study_folder


def test_a_run_is_its_curves_its_clip_line_and_its_scores_beside_the_papers(tmp_path):
    run_folder(tmp_path / "run", [-9.5, -8.7, -8.8], clip=5.0, hidden_size=77)
    report = read_report(tmp_path / "run")
    assert [(each.epoch, each.valid, each.train) for each in report.epochs] == [
        (1, -9.5, -9.4),
        (2, -8.7, -8.5),
        (3, -8.8, pytest.approx(-8.5)),
    ]
    assert (report.best_epoch, report.clip, report.seconds, report.epoch_seconds) == (2, 5.0, 9.0, 2.0)
    assert [(score.metric, score.ours, score.paper) for score in report.scores] == [
        ("log_likelihood", -8.6, -8.65),
        ("accuracy", 0.29, pytest.approx(0.2998)),
    ]
    assert {"hidden_size", "clip"} <= set(report.changed)
    assert "seed" not in report.changed
    assert report.versions == {"jax": "1.2.3"}
    curves, norms, clipped, rates = run_charts(report)
    assert [series.name for series in curves.series] == ["training", "validation"]
    assert curves.series[1].points == [(1.0, -9.5), (2.0, -8.7), (3.0, -8.8)]
    assert curves.rules == [Rule("x", 2, "best, epoch 2")]
    assert norms.series[0].points == [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]
    assert norms.rules == [Rule("y", 5.0, "clip 5")]
    assert [share for _, share in clipped.series[0].points] == pytest.approx([0.0, 10.0, 20.0])
    assert [rate for _, rate in rates.series[0].points] == [0.05, 0.025, 0.0125]


def test_without_clipping_there_is_no_line_and_without_epochs_no_chart(tmp_path):
    run_folder(tmp_path / "free", [-9.0], clip="none")
    assert run_charts(read_report(tmp_path / "free"))[1].rules == []
    run_folder(tmp_path / "new", [], status="running")
    report = read_report(tmp_path / "new")
    assert (report.epochs, report.best_epoch, report.scores, run_charts(report)) == ([], None, [], [])


def test_an_estimate_carries_its_error(tmp_path):
    run_folder(tmp_path / "run", [-9.0]).write_result({"test": {"log_likelihood": -6.3, "log_likelihood_error": 0.04}})
    (score,) = read_report(tmp_path / "run").scores
    assert (score.metric, score.ours, score.error) == ("log_likelihood", -6.3, 0.04)
    assert "an estimate, ± 0.04" in render_report([read_report(tmp_path / "run")])


@pytest.mark.parametrize("concluded", [True, False])
def test_a_study_is_all_its_trials_and_what_each_setting_did(tmp_path, concluded):
    report = read_report(study_folder(tmp_path, concluded=concluded))
    assert [(trial.slot, trial.status, trial.valid) for trial in report.trials] == [
        (0, "done", -8.9),
        (1, "done", -9.4),
        (2, "done", -8.5),
        (3, "diverged", None),
    ]
    assert report.winner == 2
    assert report.best.settings["hidden_size"] == 300
    by_name = {scatter.setting: scatter for scatter in report.scatters}
    assert by_name["learning_rate"].points == [(0, 0.1, -8.9), (1, 0.001, -9.4), (2, 0.01, -8.5)]
    assert by_name["learning_rate"].log
    assert not by_name["hidden_size"].log
    curves, *scatters = study_charts(report)
    assert [series.tone for series in curves.series] == ["quiet"] * 3 + ["second"]
    assert curves.series[-1].points == [(1.0, -9.2), (2.0, -8.5)]
    activation = next(chart for chart in scatters if chart.title == "activation")
    assert activation.x_names == ["sigmoid", "tanh"]
    assert [series.points for series in activation.series] == [[(1.0, -8.9), (0.0, -9.4)], [(1.0, -8.5)]]


def test_trials_on_other_machines_are_known_by_the_result_alone(tmp_path):
    folder = study_folder(tmp_path / "study")
    (folder / "trials").rename(tmp_path / "elsewhere")
    report = read_report(folder)
    assert [trial.valid for trial in report.trials] == [-8.9, -9.4, -8.5, None]
    assert report.best is None
    assert [point.slot for point in report.scatters[0].points] == [1, 2]
    assert "sgd+c on jsb, searched" in render_report([report])


def test_results_are_pairs_and_trials(tmp_path):
    report = read_report(results_folder(tmp_path))
    charts = {chart.title: chart for chart in results_charts(report)}
    assert list(charts) == ["piano-midi", "nottingham", "musedata", "jsb", "ptb-words", "ptb-chars"]
    pairs = {pair.label: pair for pair in charts["jsb"].pairs}
    assert (pairs["sgd+c"].paper, pairs["sgd+c"].verdict) == (-8.65, "reaches")
    assert pairs["sgd+c"].ours == pytest.approx(np.mean([-8.6, -8.4, -8.7]))
    assert pairs["sgd+c"].spread == pytest.approx(np.std([-8.6, -8.4, -8.7], ddof=1))
    assert (pairs["sgd"].verdict, pairs["hf"].verdict, pairs["hf"].ours) == ("behind", "missing", None)
    assert charts["ptb-words"].lower_is_better
    assert not charts["jsb"].lower_is_better
    assert {(trial.row, trial.slot, trial.gap) for trial in report.trials} == {
        (row, slot, -float(slot)) for row in ("sgd", "sgd+c") for slot in range(4)
    }
    assert trials_charts(report.trials) == []  # nothing is known to differ between these trials
    varied = [msgspec.structs.replace(trial, settings={"learning_rate": 10.0**-trial.slot}) for trial in report.trials]
    (chart,) = trials_charts(varied)
    assert (chart.title, chart.x_log, len(chart.series[0].points)) == ("learning rate", True, 8)


def test_one_exploded_epoch_does_not_flatten_the_others():
    def chart(values, **options):
        return framed(Chart("", "", "", [Series("", list(enumerate(values, 1)), "first")], **options))

    calm = [-9.0 + 0.1 * epoch for epoch in range(20)]
    assert chart(calm).y_range is None
    assert chart([*calm[:5], -1e14]).beyond == 1
    exploded = chart([*calm, -1e14])
    assert (exploded.beyond, exploded.y_range) == (1, (min(calm), max(calm)))
    norms = chart([1.0 + 0.1 * epoch for epoch in range(20)] + [1e15], y_log=True, rules=[Rule("y", 0.01, "clip")])
    assert norms.beyond == 1
    assert norms.y_range == (0.01, pytest.approx(2.9))  # the clip line is always seen
    assert chart([0.6] * 185 + [0.3] * 15).y_range is None  # a rate that was halved late


def test_axes_are_logarithmic_where_values_span_decades():
    assert spans_decades([0.001, 0.1])
    assert not spans_decades([100, 400])
    assert not spans_decades([0.0, 5.0])
    assert not spans_decades(["tanh", "sigmoid"])


def make_weights(path, config, data) -> Run:
    run = Run.create(path, config, data.record, {})
    run.write_model(to_named(initial_model(config, run.data, np.full(run.data.size, 0.3))))
    return run


def test_samples_are_the_notes_and_the_text_the_model_draws(tmp_path):
    from longspan.sampling.generate import generate
    from longspan.training.setup import trained_model

    run = make_weights(tmp_path / "music", tiny_config(), tiny_music())
    first, second = draw_samples(run, 2, seed=5)
    roll = generate(trained_model(run), length=48, num=2, key=jax.random.key(5))[1]
    assert (first.frames, first.frames_per_beat) == (48, 1)
    heard = np.zeros((48, 128), int)
    for note in second.notes:
        heard[note.start : note.stop, note.pitch] += 1
    assert np.array_equal(heard[:, 21:109], roll != 0)
    assert all(isinstance(note, Note) for note in first.notes)

    run = make_weights(tmp_path / "text", tiny_config("sgd", output="softmax"), tiny_text())
    (sample,) = draw_samples(run, 1)
    assert isinstance(sample, TextSample)
    assert len(sample.text) == 400
    assert set(sample.text) <= set("\nabcd")
    assert draw_samples(run, 0) == []
    (run.path / "model.safetensors").unlink()
    assert draw_samples(run, 1) == []


def test_whatever_is_text_stays_text(tmp_path):
    run_folder(tmp_path / "run", [-9.0], recipe="</script><script>alert(1)</script>")
    report = msgspec.structs.replace(
        read_report(tmp_path / "run"), samples=[TextSample("</pre><img src=x onerror=alert(2)> {script} {style}")]
    )
    page = render_report([report])
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "{script} {style}" in page


def test_the_page_asks_nothing_of_the_network(tmp_path):
    page = render_report([read_report(results_folder(tmp_path / "results")), read_report(study_folder(tmp_path / "s"))])
    for outside in ("src=", "@import", "url(", 'href="http', "fetch(", "XMLHttpRequest"):
        assert outside not in page
    assert "−8.57 ± 0.15 ✓" in page


def test_the_command_writes_the_page_or_prints_the_values(tmp_path, capsys):
    folder = str(study_folder(tmp_path / "study"))
    output = tmp_path / "page.html"
    assert cli.run(["report", folder, "--samples", "0", "-o", str(output)]) == 0
    assert output.read_text().startswith("<!doctype html>")
    capsys.readouterr()
    assert cli.run(["report", folder, "--samples", "0", "--json"]) == 0
    (values,) = msgspec.json.decode(capsys.readouterr().out)
    assert (values["report"], values["winner"], values["best"]["best_epoch"]) == ("study", 2, 2)
    assert cli.run(["report", str(tmp_path)]) == 2
    assert "expected the folder of a run, a study, compared methods or results" in capsys.readouterr().err
    assert cli.run(["report"]) == 2
    (tmp_path / "study" / "result.json").write_text("{}")
    with pytest.raises(InputError, match=r"result\.json cannot be read"):
        read_report(tmp_path / "study")
