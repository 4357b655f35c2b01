"""What the page computes is what Python computes with the same rounded weights: every cell with every output."""

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from longspan.data.dataset import Dataset
from longspan.data.sequences import arrange
from longspan.memory.gate import FEATURES
from longspan.memory.recall import Recall
from longspan.playing.packing import pack_model, rounded
from tests.playing.conftest import KEYS, MUSIC, TEXT, TOKENS, made, song

CELLS = {
    "leaky tanh": {"activation": "tanh"},
    "leaky sigmoid": {"activation": "sigmoid"},
    "leaky rectifier": {"activation": "rectifier"},
    "lstm": {"cell": "lstm", "activation": "tanh"},
    "lstm with peepholes": {"cell": "lstm,peepholes", "activation": "sigmoid"},
    "gru": {"cell": "gru", "activation": "tanh"},
    "gru, reset before": {"cell": "gru,reset=before", "activation": "rectifier"},
    "layers": {"cell": "leaky,size=7+gru,size=5+lstm,size=6", "activation": "tanh"},
}
OUTPUTS = {"bernoulli": MUSIC, "nade": MUSIC, "softmax": TEXT, "factored": TEXT, "tree": TEXT}
SCORE = """([packed, steps, memory]) => {
    const model = new Model(packed);
    return scoreSteps(model, model.ofKeys ? steps.map((step) => Uint8Array.from(step)) : steps, { memory });
}"""


def steps_of(record):
    if record is MUSIC:
        return song()
    half = np.random.default_rng(0).integers(0, len(TOKENS), 14).astype(np.int32)
    return np.concatenate([half, half])


def score_in_page(page, packed, steps, *, memory):
    return np.array(page.evaluate(SCORE, [msgspec.to_builtins(packed), steps.tolist(), memory]))


def score(model, steps, first):
    """Log-likelihood of every step by the model's own code."""
    inputs = jnp.concatenate([jnp.full_like(steps[:1], first), steps[:-1]])[:, None]
    length = jnp.asarray(len(steps), jnp.int32)
    _, hidden = model.run(model.start(1), inputs, jnp.zeros((len(steps), 1), bool), length)
    return np.asarray(model.output.log_prob(hidden, jnp.asarray(steps)[:, None], length, key=jax.random.key(0)))[:, 0]


@pytest.fixture(scope="module")
def page(browser, music, tmp_path_factory):
    """The page of some model, whose scripts compute any other one as well."""
    from longspan.playing.page import render

    path = tmp_path_factory.mktemp("page") / "play.html"
    path.write_text(render(music))
    opened = browser.new_page()
    opened.goto(path.as_uri())
    yield opened
    opened.close()


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("cell", CELLS)
def test_the_page_scores_like_python(page, cell, output):
    record = OUTPUTS[output]
    config, model = made(record, output=output, **CELLS[cell])
    for precision in ("int8", "f16"):
        packed = pack_model(model, config, record, name="tiny", precision=precision)
        expected = score(rounded(model, precision), jnp.asarray(steps_of(record)), record.end_token or 0)
        np.testing.assert_allclose(score_in_page(page, packed, steps_of(record), memory=False), expected, atol=1e-4)
    assert np.abs(expected - score(model, jnp.asarray(steps_of(record)), record.end_token or 0)).max() < 0.05


class OneSong(Dataset):
    """A data set of a single song or text."""

    def __init__(self, record, steps):
        self.name, self.kept, self.steps = "one", record, steps

    @property
    def record(self):
        return self.kept

    def chunks(self, split, chunk_length, lanes):
        if self.kept is MUSIC:
            return arrange([self.steps], chunk_length, lanes)
        return arrange(self.steps, chunk_length, lanes, end_token=self.kept.end_token)


@pytest.mark.parametrize("output", OUTPUTS)
def test_with_memory_the_page_scores_like_python(page, output):
    record = OUTPUTS[output]
    config, model = made(record, output=output)
    weights = np.random.default_rng(3).normal(0, 0.7, len(FEATURES))
    memory = Recall(dict(zip(FEATURES, weights.tolist(), strict=True)), 4)
    packed, steps = pack_model(model, config, record, name="tiny", memory=memory), steps_of(record)
    expected = memory.recollect(rounded(model, "int8"), OneSong(record, steps), "test").steps
    found = score_in_page(page, packed, steps, memory=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(found - score_in_page(page, packed, steps, memory=False)).max() > 0.1


def test_draws_follow_the_distribution_that_is_scored(page):
    """Of three keys, with one of them held: draws against probabilities of all frames, by enumeration."""
    record = msgspec.structs.replace(MUSIC, size=3)
    config, model = made(record, output="nade")
    packed = pack_model(model, config, record, name="tiny")
    frames = np.array([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)], np.uint8)
    scores = page.evaluate(
        """([packed, frames]) => { const model = new Model(packed), expected = new Listener(model).expect();
        return frames.map((frame) => expected.logProb(Uint8Array.from(frame))); }""",
        [msgspec.to_builtins(packed), frames.tolist()],
    )
    probabilities = np.exp(scores)
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)
    draws = 4000
    for held in (None, [-1, -1, 1]):
        counts = page.evaluate(
            """([packed, keys, draws]) => {
                const model = new Model(packed), counts = new Array(8).fill(0), held = keys && Int8Array.from(keys);
                for (let i = 0; i < draws; i++) {
                    const { frame } = new Listener(model).drawFrame(new Random(7, i), { held });
                    counts[4 * frame[0] + 2 * frame[1] + frame[2]]++;
                }
                return counts; }""",
            [msgspec.to_builtins(packed), held, draws],
        )
        allowed = np.ones(8, bool) if held is None else frames[:, 2] == 1
        expected = np.where(allowed, probabilities, 0) / probabilities[allowed].sum()
        # Four standard deviations of a count; held keys are weighed among 64 candidates, which is nearly exact.
        assert np.abs(np.array(counts) / draws - expected).max() < 4 * np.sqrt(0.25 / draws)


def test_a_temperature_makes_frames_safer_but_neither_silent_nor_still(page, music):
    """As `longspan sample` does: which notes sound changes, how many there are does not."""
    drawn = page.evaluate(
        """(temperatures) => temperatures.map((temperature) => {
            const listener = new Listener(new Model(packed)), frames = [];
            for (let i = 0; i < 300; i++) {
                const { frame } = listener.drawFrame(new Random(3, i), { temperature });
                frames.push([...frame]);
                listener.read(frame);
            }
            return frames; })""",
        [1, 0],
    )
    plain, sharp = (np.array(frames, np.uint8) for frames in drawn)
    assert plain.shape == (300, KEYS)
    assert abs(plain.sum(axis=1).mean() - sharp.sum(axis=1).mean()) < 0.15 * plain.sum(axis=1).mean()
    likelihood = [score_in_page(page, music, frames, memory=False).mean() for frames in (plain, sharp)]
    assert likelihood[1] > likelihood[0] + 0.2
