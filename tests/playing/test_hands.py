"""The page in the hands of a musician: right pitches in every voice, a MIDI keyboard, fingers on a phone, a memory."""

import numpy as np
import pytest

from longspan.memory.gate import FEATURES
from longspan.memory.recall import Recall
from longspan.playing.packing import Rounding, pack_model
from tests.playing.conftest import MUSIC, made
from tests.support.browser import PHONE, wait_until

RATE, SECONDS = 22050, 2
RENDER = """async ([voice, pitches, rate, seconds]) => {
    const context = new OfflineAudioContext(2, rate * seconds, rate), real = window.AudioContext;
    window.AudioContext = function () { return context; };
    const orchestra = new Orchestra();
    window.AudioContext = real;
    orchestra.voice = voice;
    for (const pitch of pitches) orchestra.begin(pitch, 0).end(1);
    const heard = await context.startRendering();
    return [...heard.getChannelData(0)].map((left, i) => left + heard.getChannelData(1)[i]);
}"""
FRAMES = """(count) => { while (player.piece.frames.length < count) player.piece.next();
    return player.piece.frames.slice(0, count).map(({ frame }) => [...frame]); }"""
KEYBOARD = """navigator.requestMIDIAccess = async () => {
    window.keyboard = { name: "Eighty-eight keys" };
    return { inputs: new Map([["first", keyboard]]) };
}"""


def strongest(sound: np.ndarray) -> float:
    """Frequency of the strongest partial of the first second."""
    part = sound[:RATE] * np.hanning(RATE)
    return float(np.abs(np.fft.rfft(part, 4 * RATE)).argmax() / 4)


def test_every_voice_has_the_right_pitch_and_room_for_chords(open_model, music):
    page = open_model(music)
    for voice in page.evaluate("Object.keys(VOICES)"):
        for pitch in (45, 76):
            sound = np.array(page.evaluate(RENDER, [voice, [pitch], RATE, SECONDS]))
            partial = strongest(sound) / (440 * 2 ** ((pitch - 69) / 12))
            assert round(partial) in range(1, 17), (voice, pitch, partial)
            assert abs(partial / round(partial) - 1) < 0.01, (voice, pitch, partial)  # a semitone is 0.06
            assert abs(sound.mean()) < 1e-3
            assert np.abs(sound[-RATE // 10 :]).max() < 0.1 * np.abs(sound).max(), (voice, pitch)
        chord = np.array(page.evaluate(RENDER, [voice, [48, 55, 60, 64, 67, 72], RATE, 1]))
        assert 0.02 < np.abs(chord).max() < 2, voice  # the sum of two channels


def test_a_midi_keyboard_is_heard(open_model, music):
    page = open_model(music)
    page.evaluate(KEYBOARD)
    page.get_by_role("button", name="Use a MIDI keyboard").click()
    wait_until(page, "document.querySelector('[data-name=said]').textContent.includes('Eighty-eight keys')")
    page.evaluate("keyboard.onmidimessage({ data: [0x90, 64, 80] })")
    assert page.evaluate("[...player.pressed.keys()].map((key) => player.pitchOf(key))") == [64]
    assert page.evaluate(FRAMES, 1)[0][64 - 21] == 1
    page.evaluate("keyboard.onmidimessage({ data: [0x90, 64, 0] })")  # a stroke without force is a release
    assert page.evaluate("player.pressed.size") == 0


def test_fingers_press_keys_and_put_notes_in(open_model, music):
    page = open_model(music, viewport=PHONE, has_touch=True, is_mobile=True)
    key = page.get_by_role("button", name="E4", exact=True)
    page.locator("[data-name=hold]").tap()
    key.tap()
    assert key.get_attribute("aria-pressed") == "true"
    assert page.evaluate("[...player.kept].map((key) => player.pitchOf(key))") == [64]
    roll = page.locator("[data-name=roll]")
    roll.scroll_into_view_if_needed()
    place = roll.bounding_box()
    roll.tap(position={"x": 0.9 * place["width"], "y": 0.4 * place["height"]})
    assert sum(kind == "n" for _, kind, _ in page.evaluate("player.piece.changes")) == 1
    page.locator("[data-name=play]").tap()
    wait_until(page, "player.orchestra?.context.state === 'running' && player.piece.frames.length > 2")


@pytest.fixture(scope="module")
def remembering():
    weights = dict.fromkeys(FEATURES, 0.0) | {"any": 3.0}
    config, model = made(MUSIC, output="nade", hidden_size=12, nade_size=8)
    return pack_model(model, config, MUSIC, name="tiny run", memory=Recall(weights, 2))


def test_the_memory_is_switched_on_and_off_and_a_link_knows(open_model, remembering):
    """With this memory nearly every frame is one that was heard before."""
    page = open_model(remembering)
    with_memory = page.evaluate(FRAMES, 60)
    page.locator("[data-name=memory]").uncheck()
    frames = page.evaluate(FRAMES, 120)
    assert frames[:60] == with_memory
    kinds = [len({bytes(frame) for frame in part}) for part in (frames[:60], frames[60:])]
    assert kinds[0] < 15
    assert kinds[1] > 30
    page.locator("[data-name=link]").click()
    wait_until(page, "location.hash.length > 1")
    assert open_model(remembering, page.evaluate("location.hash")).evaluate(FRAMES, 120) == frames


@pytest.mark.parametrize(
    ("after", "told"), [(-8.11, "0.0100 nats a frame better"), (-8.13, "0.0100 nats a frame lost"), (-8.12, "nothing")]
)
def test_what_rounding_gains_is_not_called_lost(open_model, music, after, told):
    page = open_model(music.measured(Rounding(-8.12, after)))
    page.locator("summary").click()
    assert f"rounded: {told}" in page.locator(".facts").inner_text()


def test_what_runs_is_said_and_drawn(open_model, music):
    page = open_model(music)
    page.locator("summary").click()
    facts = page.locator(".facts").inner_text()
    assert all(word in facts.lower() for word in ("leaky", "lstm", "gru", "nade", "softmax"))
    before = page.evaluate("document.querySelector('[data-name=roll]').toDataURL()")
    page.locator("[data-name=play]").click()
    wait_until(page, "player.piece.frames.length > 1")
    assert page.evaluate("document.querySelector('[data-name=roll]').toDataURL()") != before
