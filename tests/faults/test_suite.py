"""The fault suite in short: a little of every experiment that needs no search, with its control; all of it is slow."""

from collections.abc import Iterator

import pytest

from tests.faults import experiments, runs, suite
from tests.faults.experiments import EXPERIMENTS, Bench, Tally

QUICK = {
    "damaged checkpoints": lambda bench: experiments.damaged_checkpoints(bench, 0, 60),
    "damaged weights": lambda bench: experiments.damaged_weights(bench, 0, 60),
    "failing disks": lambda bench: experiments.failing_disks(bench, 2, 4),
    "wrong shapes": lambda bench: experiments.wrong_shapes(bench, 0, 30),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Iterator[Bench]:
    found = Bench(tmp_path_factory.mktemp("bench"))
    yield found
    found.close()


@pytest.mark.parametrize("name", QUICK)
def test_a_little_of_an_experiment_holds_and_its_control_does_not(name, bench):
    tally = QUICK[name](bench)
    assert tally.tried > 0
    assert not tally.wrong
    assert EXPERIMENTS[name].control(bench, 0).wrong


def test_a_run_killed_in_pretraining_in_evaluation_and_while_saving_ends_in_the_same_bytes(bench):
    faults = ["kill pretraining 2", "kill rename 9", "kill evaluation 2"]
    struck, wrong = runs.kill(bench.subject("nade:sgd+crm"), bench.empty("run") / "run", faults)
    assert (struck, wrong) == (3, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_portion_of_every_experiment_holds_and_its_control_does_not(name, bench):
    tally = EXPERIMENTS[name].portion(bench, 0)
    assert tally.tried > 0
    assert not tally.wrong
    assert EXPERIMENTS[name].control(bench, 0).wrong


def test_portions_add_up_and_a_control_that_holds_is_a_failure(bench, tmp_path):
    seeds = []

    def portion(bench: Bench, seed: int) -> Tally:
        seeds.append(seed)
        return Tally(3, ["something"] if seed == 1 else [])

    tried = experiments.Experiment("it holds", 7, portion, lambda bench, seed: Tally(1, []), "nothing")
    counts = suite.Counts.read(tmp_path / "none.json", {"it": tried})
    for _ in range(2):
        suite.try_portion(tried, counts.current.experiments["it"], bench)
    counts.write(tmp_path / "counts.json")
    counts = suite.Counts.read(tmp_path / "counts.json", {"it": tried})
    count = counts.current.experiments["it"]
    assert (seeds, count.tried, count.wrong, count.left, count.held) == ([0, 1], 6, ["something"], True, False)
    count.wrong = []
    assert not count.held
    count.control_wrong = 1
    assert count.held
    assert "| it holds | 6 | 7 | 0 | nothing: 1 of 1 | - |" in suite.table(counts, {"it": tried})


def test_a_complete_pass_is_followed_by_another_with_other_faults(bench, tmp_path):
    seeds = []

    def portion(bench: Bench, seed: int) -> Tally:
        seeds.append(seed)
        return Tally(3, [])

    tried = experiments.Experiment("it holds", 3, portion, lambda bench, seed: Tally(1, ["it"]), "nothing")
    counts = suite.Counts.read(tmp_path / "none.json", {"it": tried})
    for number in range(2):
        suite.try_portion(tried, counts.current.experiments["it"], bench, number)
        assert counts.passes[number].complete
    assert seeds == [0, suite.PORTIONS]
    assert "| it holds | 3 + 3 | 3 | 0 + 0 | nothing: 1 of 1 + 1 of 1 | - |" in suite.table(counts, {"it": tried})


def test_the_page_shows_the_counts_of_the_suite():
    page = suite.PAGE.read_text()
    assert page == suite.page_with(page, suite.table(suite.Counts.read()))
