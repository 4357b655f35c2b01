"""Training that reads a rounded copy of the recurrent matrix, and trains, keeps and scores the exact one."""

import dataclasses

import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.training.loop import train
from longspan.training.runs import Run
from longspan.training.setup import trained_model
from tests.support.catalog import tiny_config, tiny_music, tiny_text


@pytest.mark.parametrize(("recipe", "data"), [("sgd+clm", tiny_music), ("factored:sgd+clr", tiny_text)])
def test_a_run_learns_as_well_and_its_weights_are_not_rounded(recipe, data, tmp_path):
    content, last = data(), {}
    for precision in ("float32", "bfloat16"):
        config = tiny_config(recipe, precision=precision, max_epochs=3)
        run = Run.create(tmp_path / precision, config, content.record, {})
        with run.locked():
            train(run, content)
        last[precision] = [record["valid_log_likelihood"] for record in run.metrics()]
    assert last["bfloat16"] != last["float32"]
    np.testing.assert_allclose(last["bfloat16"], last["float32"], atol=0.05)
    assert last["bfloat16"][-1] > last["bfloat16"][0]
    cell = trained_model(Run.open(tmp_path / "bfloat16")).cell
    assert cell.precision == "float32"
    assert np.any(np.asarray(cell.recurrent).view(np.uint32) & 0xFFFF)


def test_it_is_refused_where_nothing_would_be_rounded():
    config = TrainConfig(precision="bfloat16", cell="2xleaky")
    for change, got in (({"cell": "leaky+gru"}, "gru"), ({"cell": "lstm"}, "lstm"), ({"optimizer": "hf"}, "hf")):
        with pytest.raises(InputError, match=f"precision bfloat16 is for leaky cells .*: got {got}"):
            dataclasses.replace(config, **change)
