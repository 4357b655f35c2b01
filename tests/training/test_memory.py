"""Too little memory is one line before anything is compiled, or at the moment it runs out; never a traceback."""

import jax
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.library import resume, train
from longspan.training import loop, setup
from longspan.training.setup import OutOfMemory
from tests.support.catalog import tiny_music

SMALL = {"hidden_size": 8, "chunk_length": 10, "block": 2, "max_epochs": 1}


@pytest.mark.parametrize(
    "setting", [{"lanes": 65536, "chunk_length": 10**6}, {"hidden_size": 65536, "lanes": 65536, "chunk_length": 10**4}]
)
def test_settings_that_cannot_fit_are_refused_before_there_is_a_folder(tmp_path, setting):
    with pytest.raises(InputError, match=r"at least [\d.]+ GB of memory, but [\d.]+ GB are free: choose a smaller"):
        train("sgd+c", tiny_music(), run_dir=tmp_path / "run", **(SMALL | setting))
    assert not (tmp_path / "run").exists()


def test_the_estimate_is_less_than_what_training_holds():
    """The bytes of a state of training, counted by JAX, exceed what is called the least."""
    config, data = TrainConfig(hidden_size=700, momentum=0.9, chunk_length=1), tiny_music()
    model = setup.initial_model(config, data.record, np.full(88, 0.5))
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model) if isinstance(leaf, jax.Array))
    least = setup.least_bytes(config, data.record, model)
    assert 5.9 * weights < least < 6.1 * weights  # weights, the best and the velocity, all of them twice in a save


def test_a_machine_that_does_not_tell_its_memory_refuses_nothing(monkeypatch):
    monkeypatch.setattr(setup, "free_bytes", lambda: None)
    setup.check_memory(TrainConfig(hidden_size=65536), tiny_music().record, None)


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError("Unable to allocate 8 TiB"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no more"),
        jax.errors.JaxRuntimeError("INTERNAL: Error dispatching computation: Out of memory allocating 8 bytes."),
    ],
)
def test_memory_that_runs_out_in_training_leaves_a_run_that_goes_on(tmp_path, failure, monkeypatch):
    def no_memory(*_):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_descend_epoch", no_memory)
        with pytest.raises(OutOfMemory, match="memory ran out; choose a smaller hidden_size"):
            train("sgd+c", tiny_music(), run_dir=tmp_path / "run", **SMALL)
    assert resume(tmp_path / "run", data=tiny_music()).run.status == "done"


def test_what_xla_says_of_a_real_lack_of_memory_is_understood():
    with pytest.raises(OutOfMemory), setup.explain_lack_of_memory():
        jax.block_until_ready(jax.numpy.zeros((2**60,), np.float32))


def test_other_errors_of_xla_are_not_taken_for_it():
    with pytest.raises(jax.errors.JaxRuntimeError), setup.explain_lack_of_memory():
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
