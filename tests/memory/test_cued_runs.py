"""Networks that are told of the past: trained, resumed, scored, sampled and given a memory like any other."""

import jax
import numpy as np
import pytest

from longspan.data.cues import Cues
from longspan.diagnostics.data_checks import check_data
from longspan.library import open_run, resume, train
from longspan.memory import reader_of
from longspan.sampling.generate import generate, state_after
from tests.support.catalog import tiny_music

SMALL = {"hidden_size": 6, "nade_size": 5, "chunk_length": 20, "cues": "recall+meter", "dropout": 0.0}


@pytest.fixture(scope="module", params=["leaky", "gru"])
def told(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    return train("nade:sgd+w", tiny_music(), run_dir=path, cell=request.param, max_epochs=2, **SMALL)


def test_a_run_knows_what_its_network_is_told(told):
    opened = open_run(told.run.path)
    assert opened.evaluate("test", data=tiny_music()) == told.evaluate("test")
    assert opened.recollect("test", data=tiny_music()).scores == told.recollect("test").scores


def test_a_resumed_run_ends_in_the_same_weights(told, tmp_path):
    earlier = {**SMALL, "cues": "recall+metre"}  # as the config.json of an earlier version spells it
    first = train(
        "nade:sgd+w",
        tiny_music(),
        run_dir=tmp_path / "run",
        cell=told.run.config.cell,
        max_seconds=1e-6,
        max_epochs=2,
        **earlier,
    )
    assert first.run.status == "interrupted"
    ended = resume(tmp_path / "run", data=tiny_music())
    for one, other in zip(jax.tree.leaves(ended.model), jax.tree.leaves(told.model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_primed_sample_continues_from_the_state_that_a_song_leaves(told):
    prime = tiny_music().splits["test"][0]
    whole = generate(told.model, length=12, num=2, key=jax.random.key(1), reader=reader_of(told.run))
    assert whole.shape == (2, 12, 88)
    inputs = Cues(recall=True, meter=True).inputs_of(np.concatenate([prime, prime[:1]]))
    state = state_after(told.model, jax.numpy.asarray(inputs))
    # Drawn at temperature 0 from an independent key, the output sees the hidden vector of that state.
    hidden = told.model.cell.output(state)
    seen = []

    def propose(model, hidden, past, count, *, keys, held):
        seen.append(hidden)
        return model.output.candidates(hidden, count, keys=keys, held=held)

    with jax.disable_jit():
        generate(
            told.model,
            length=1,
            num=1,
            key=jax.random.key(0),
            prime=prime,
            proposal=propose,
            reader=reader_of(told.run),
        )
    np.testing.assert_allclose(seen[0][0], hidden, rtol=1e-5, atol=1e-6)


def test_samples_use_the_cues(told):
    assert told.sample(12, num=2).shape == (2, 12, 88)


def test_cues_are_no_fault_of_the_data(told):
    music = tiny_music()
    assert check_data(music.with_cues("recall+meter"), told.run.config) == check_data(music, told.run.config)


def test_an_rbm_can_be_told_too(tmp_path):
    small = {"hidden_size": 6, "rbm_size": 5, "cd_steps": 2, "max_updates": 3}
    plain = {"pretrain_frames": 1, "pretrain_recurrent": 1, "chunk_length": 20, "cues": "recall"}
    trained = train("rbm:sgd+c", tiny_music(), run_dir=tmp_path / "run", **small, **plain)
    assert trained.sample(4).shape == (1, 4, 88)
