"""Any cell with any output, by any optimizer, on any data: learns, and stopped halfway ends in the same bytes."""

import math

import numpy as np
import pytest

from longspan.evaluation import SplitEvaluator
from longspan.models.model import SequenceModel
from longspan.training.listeners import Listener
from longspan.training.loop import train
from longspan.training.runs import Given, Run
from longspan.training.setup import initial_model
from longspan.training.state import to_named
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


def misjudging_model(parts: Parts) -> SequenceModel:
    """A model that expects other answers than are usual, so that a few updates are enough to see it learn.

    From the true rates, a slow cell would gain less within two epochs than the noise of its updates.
    """
    data = load(parts.data)
    rates = data.base_rates()
    if data.record.predicted == "numbers":
        wrong = rates + 1.0
    elif data.record.predicted == "keys":
        wrong = (rates + 0.5) / 2
    else:
        wrong = rates * np.arange(1, len(rates) + 1)
        wrong /= wrong.sum()
    return initial_model(parts.config, data.record, wrong)


@pytest.mark.parametrize("parts", RUNS)
def test_a_run_learns_and_resumes_to_the_same_bytes(parts: Parts, tmp_path):
    data, watch = load(parts.data), StopAfter()
    first = misjudging_model(parts)
    given = Given(start=to_named(first))
    whole = start(tmp_path / "whole", data, parts.config, given)
    outcome = train(whole, data, listeners=[watch])
    assert outcome.status == "done"
    judge = SplitEvaluator(data, "train")
    assert judge.log_likelihood(outcome.model) > judge.log_likelihood(first)
    stop = StopAfter(watch.seen // 2 + 1)
    stopped = start(tmp_path / "stopped", data, parts.config, given)
    assert train(stopped, data, listeners=[stop], interrupted=stop).status == "interrupted"
    assert train(Run.open(stopped.path), data).status == "done"
    assert essence(stopped.path) == essence(whole.path)
