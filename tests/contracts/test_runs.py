"""Any cell with any output, by any optimizer, on any data: learns, and stopped halfway ends in the same bytes."""

import math

import pytest

from longspan.training.listeners import Listener
from longspan.training.loop import train
from longspan.training.runs import Run
from tests.contracts.parts import RUNS, Parts, load
from tests.support.runs import essence, start


class StopAfter(Listener):
    """Asks for a stop once so many blocks are done, and counts all that it saw."""

    def __init__(self, blocks: float = math.inf):
        self.left, self.seen = blocks, 0

    def on_block(self, progress, info, count, total):
        self.seen += 1
        self.left -= 1

    def __call__(self) -> bool:
        return self.left <= 0


@pytest.mark.parametrize("parts", RUNS)
def test_a_run_learns_and_resumes_to_the_same_bytes(parts: Parts, tmp_path):
    data, watch = load(parts.data), StopAfter()
    whole = start(tmp_path / "whole", data, parts.config)
    outcome = train(whole, data, listeners=[watch])
    assert outcome.status == "done"
    score = "train_log_likelihood" if parts.output != "quick-rbm" else "valid_log_likelihood"
    scores = [record[score] for record in whole.metrics()]
    assert math.isfinite(scores[0])
    chance = 0.01 if "noise=" in parts.cell else 0.0  # two epochs with noise in the units may differ by that much
    assert scores[-1] > scores[0] - chance or outcome.reason.startswith("solved")
    stop = StopAfter(watch.seen // 2 + 1)
    stopped = start(tmp_path / "stopped", data, parts.config)
    assert train(stopped, data, listeners=[stop], interrupted=stop).status == "interrupted"
    assert train(Run.open(stopped.path), data).status == "done"
    assert essence(stopped.path) == essence(whole.path)
