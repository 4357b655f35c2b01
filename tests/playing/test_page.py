"""The page in a browser: it sounds, it is played with, a link brings the same back, nothing is said on the console."""

import mido
import msgspec
import numpy as np
import pytest

from longspan.data.midi import read_notes
from longspan.playing.packing import pack_model
from longspan.report import read_report, render_report
from tests.playing.conftest import TEXT, TOKENS, made
from tests.support.browser import DESKTOP, PHONE, quiet_pages, wait_until
from tests.support.report_folders import run_folder

FAST = "#tempo=240&seed=5"
LOUDEST = """(() => { const heard = new Float32Array(player.orchestra.meter.fftSize);
    player.orchestra.meter.getFloatTimeDomainData(heard); return Math.max(...heard.map(Math.abs)); })()"""
FRAMES = """(count) => { while (player.piece.frames.length < count) player.piece.next();
    return player.piece.frames.slice(0, count).map(({ frame }) => [...frame]); }"""
TOO_SMALL = """[...document.querySelectorAll("button, select, input, summary")]
    .filter((each) => each.offsetParent && !each.disabled)
    .map((each) => [(each.closest("label.switch") ?? each).getBoundingClientRect(), each.dataset.name])
    .filter(([{ width, height }]) => width < 40 || height < 40).map(([, name]) => name)"""
UNNAMED = """[...document.querySelectorAll("button, select, input, textarea, canvas")]
    .filter((each) => each.offsetParent && !each.getAttribute("aria-label") && !each.labels?.length)
    .filter((each) => !each.textContent.trim()).map((each) => each.outerHTML)"""


def test_play_starts_sound_and_space_stops_it(open_model, music):
    page = open_model(music, FAST)
    page.keyboard.press("Space")
    wait_until(page, f"player.orchestra?.context.state === 'running' && {LOUDEST} > 0.003")
    wait_until(page, "player.piece.frames.length > 3")
    assert page.get_by_role("button", name="Pause").count() == 1
    page.keyboard.press("Space")
    wait_until(page, f"{LOUDEST} < 0.001")
    played = page.evaluate("player.piece.frames.length")
    page.wait_for_timeout(200)
    assert page.evaluate("player.piece.frames.length") == played
    assert page.locator("[data-name=now]").inner_text()


def test_every_voice_sounds(open_model, music):
    page = open_model(music)
    for voice in page.evaluate("Object.keys(VOICES)"):
        page.locator("[data-name=voice]").select_option(voice)
        page.evaluate("player.press(player.keyboard.octave - player.model.record.lowest_pitch)")
        wait_until(page, f"{LOUDEST} > 0.003")
        page.evaluate("player.release(player.keyboard.octave - player.model.record.lowest_pitch)")
        wait_until(page, f"{LOUDEST} < 0.002")


def test_a_link_plays_the_same_notes(open_model, music):
    page = open_model(music, "#seed=77&temperature=0.7")
    first = page.evaluate(FRAMES, 12)
    page.locator("[data-name=temperature]").fill("0.4")
    page.evaluate("player.piece.plant(15, 40)")
    page.evaluate("player.keep([30]); player.piece.next(); player.keep([])")
    page.locator("[data-name=avoidSilence]").check()
    frames = page.evaluate(FRAMES, 30)
    assert frames[:12] == first
    assert (frames[12][30], frames[15][40]) == (1, 1)
    page.locator("[data-name=link]").click()
    wait_until(page, "location.hash.includes('changes')")
    fragment = page.evaluate("location.hash")
    again = open_model(music, fragment)
    assert again.evaluate(FRAMES, 30) == frames
    assert open_model(music, fragment.replace("seed=77", "seed=78")).evaluate(FRAMES, 30) != frames
    assert open_model(music, "#seed=-4&temperature=nonsense&changes=1q~~7k999.x&voice=kazoo").evaluate(FRAMES, 3)


def test_notes_are_put_in_by_keyboard_and_mouse(open_model, music):
    page = open_model(music)
    roll = page.locator("canvas[data-name=roll]")
    roll.focus()
    for key in ("ArrowRight", "ArrowUp", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    where = page.evaluate("player.roll.cursor")
    assert page.evaluate("player.piece.find(player.roll.cursor.frame, 'n')") == [where["key"]]
    assert page.evaluate(FRAMES, 4)[where["frame"]][where["key"]] == 1
    box = roll.bounding_box()
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 60)
    ((frame, _, (key,)),) = page.evaluate("player.piece.changes.filter(([at, letter]) => letter === 'n' && at > 4)")
    after = page.evaluate(FRAMES, frame + 1)[frame]
    assert after[key] == 1
    assert not any(after[key + 1 :])  # it is the top voice
    page.mouse.click(box["x"] + 20, box["y"] + 60)
    assert "has been played" in page.locator("[data-name=said]").inner_text()


def test_held_keys_stay_while_the_others_are_filled_in(open_model, music):
    page = open_model(music, FAST)
    page.keyboard.down("d")  # the third white key of those shown
    key = page.evaluate("[...player.pressed.keys()][0]")
    assert page.evaluate("player.pitchOf([...player.pressed.keys()][0]) % 12") == 4
    assert page.evaluate("player.piece.peek().chances[[...player.pressed.keys()][0]]") == pytest.approx(1)
    page.locator("[data-name=play]").click()
    wait_until(page, "player.piece.frames.length > 4")
    page.keyboard.up("d")
    frames = page.evaluate("player.piece.frames.slice(0, 4).map(({ frame }) => [...frame])")
    assert all(frame[key] == 1 and not any(frame[key + 1 :]) for frame in frames)
    page.locator("[data-name=play]").click()
    page.locator("[data-name=hold]").check()
    page.get_by_role("button", name="C4", exact=True).click()
    assert page.get_by_role("button", name="C4", exact=True).get_attribute("aria-pressed") == "true"
    frames = page.evaluate(FRAMES, page.evaluate("player.piece.frames.length") + 2)
    assert frames[-1][60 - 21] == 1
    page.locator("[data-name=hold]").uncheck()
    assert page.evaluate("player.kept.size") == 0


def test_it_listens_and_then_answers(open_model, music):
    page = open_model(music, "#tempo=240&mode=turns")
    page.keyboard.down("g")
    wait_until(page, "player.piece.frames.length >= 2")
    page.keyboard.up("g")
    key = page.evaluate("player.keyboard.octave + 7 - player.model.record.lowest_pitch")
    frames = page.evaluate("player.piece.frames.slice(0, 2).map(({ frame }) => [...frame])")
    assert [np.flatnonzero(frame).tolist() for frame in frames] == [[key], [key]]
    wait_until(page, "player.waiting === null && player.piece.frames.length > 6")
    assert page.evaluate("player.piece.frames[player.piece.frames.length - 1].yours.size") == 0


def test_a_tune_is_harmonized(open_model, music):
    page = open_model(music)
    page.locator("[data-name=tune]").select_option("Ode to Joy")
    frames = page.evaluate(FRAMES, 16)
    tops = [max(np.flatnonzero(frame)) + 21 for frame in frames]
    assert tops[::2] == [64, 64, 65, 67, 67, 65, 64, 62]


def test_saved_midi_has_the_notes_that_were_played(open_model, music, tmp_path):
    page = open_model(music, "#voice=organ&tempo=90")
    frames = np.array(page.evaluate(FRAMES, 40), np.uint8)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save MIDI").click()
    assert waiting.value.suggested_filename == "tiny-1.mid"
    path = tmp_path / "saved.mid"
    waiting.value.save_as(path)
    from longspan.data.rolls import round_to_frames

    roll = round_to_frames(read_notes(path).notes, 2)
    np.testing.assert_array_equal(roll[:, 21 : 21 + 88], frames[: len(roll)])
    assert not frames[len(roll) :].any()
    messages = list(mido.MidiFile(path))
    kinds = {message.type: message for message in messages}
    assert kinds["program_change"].program == 19
    assert mido.tempo2bpm(kinds["set_tempo"].tempo) == pytest.approx(90, abs=0.01)
    assert (kinds["time_signature"].numerator, "key_signature" in kinds) == (4, True)
    assert sum(message.type == "note_on" for message in messages) == len(page.evaluate("player.piece.notes()"))


@pytest.mark.parametrize("which", ["music", "text"])
def test_it_fits_a_phone_knows_the_dark_and_fingers(open_model, request, which):
    page = open_model(request.getfixturevalue(which), viewport=PHONE, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert max(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")) < 60
    assert page.evaluate(TOO_SMALL) == []
    assert page.evaluate(UNNAMED) == []


def test_motion_is_reduced_where_that_is_wanted(open_model, music):
    page = open_model(music, FAST, reduced_motion="reduce")
    page.locator("[data-name=play]").click()
    wait_until(page, "player.piece.frames.length > 2")
    assert all(position == int(position) for position in (page.evaluate("player.position") for _ in range(5)))


def test_typed_text_is_shaded_by_its_surprise(open_model, text):
    page = open_model(text, "#text=seven%20sleepers")
    wait_until(page, "player.done === 14")
    surprises = np.array(page.evaluate("player.read.map(({ surprise }) => surprise)"))
    steps = [TOKENS.index(letter) for letter in "seven sleepers"]
    scored = page.evaluate("(steps) => scoreSteps(player.model, steps, {})", steps)
    np.testing.assert_allclose(surprises, -np.array(scored) / np.log(2), atol=1e-9)
    assert page.locator(".backdrop span").count() == 14
    editor = page.get_by_role("textbox")
    editor.press("End")
    page.keyboard.type("!")  # not in the vocabulary
    assert page.locator(".backdrop span.unknown").inner_text() == "!"
    assert "passes over" in page.locator("[data-name=reading]").inner_text()
    page.keyboard.press("Backspace")
    page.locator(".guesses button").first.click()
    assert len(editor.input_value()) == 15


def test_text_is_continued_from_the_cursor_and_a_link_writes_the_same(open_model, text):
    page = open_model(text, "#text=abc%20xyz&length=20&seed=3&temperature=0.9")
    editor = page.get_by_role("textbox")
    editor.focus()
    page.evaluate("player.editor.setSelectionRange(3, 3)")
    page.keyboard.press("Control+Enter")
    wait_until(page, "player.editor.value.length === 27 && !player.going")
    written = editor.input_value()
    assert (written[:3], written[23:]) == ("abc", " xyz")
    page.locator("[data-name=undo]").click()
    assert editor.input_value() == "abc xyz"
    page.keyboard.press("Control+Enter")
    wait_until(page, "player.editor.value.length === 27 && !player.going")
    assert editor.input_value() == written
    page.locator("[data-name=text-link]").click()
    wait_until(page, "location.hash.includes('seed=3')")
    again = open_model(text, page.evaluate("location.hash"))
    again.get_by_role("button", name="Continue").click()
    wait_until(again, "player.editor.value.length === 23 && !player.going")
    assert again.get_by_role("textbox").input_value() == written[:23]


def test_words_are_read_as_python_reads_them(open_model):
    tokens = ["\n", "<unk>", "the", "cat", ",", "sat"]
    record = msgspec.structs.replace(TEXT, vocabulary=tokens, unit="token", size=len(tokens))
    config, model = made(record, output="factored")
    page = open_model(pack_model(model, config, record, name="tiny"), "#text=the%20cat%2C%20too%0Asat")
    wait_until(page, "player.read.length > 0 && player.done === player.read.length")
    assert page.evaluate("player.read.map(({ symbol }) => symbol)") == [2, 3, 4, 1, 0, 5]
    page.evaluate("player.editor.setSelectionRange(3, 3)")
    page.locator("[data-name=continue]").click()
    wait_until(page, "player.inserted?.text && !player.going")
    assert "<unk>" not in page.get_by_role("textbox").input_value()


def test_a_report_opens_the_same_player(browser, music, tmp_path):
    run_folder(tmp_path / "run", [-9.5, -8.7])
    report = msgspec.structs.replace(read_report(tmp_path / "run"), player=music)
    (tmp_path / "report.html").write_text(render_report([report, report]))
    with quiet_pages(browser) as open_one:
        page = open_one((tmp_path / "report.html").as_uri(), viewport=DESKTOP)
        button = page.get_by_role("button", name="Play with the model").first
        button.click()
        player = page.frame_locator("iframe[title=Player]")
        player.get_by_role("button", name="Play", exact=True).click()
        frame = page.frames[1]
        wait_until(frame, f"player.orchestra?.context.state === 'running' && {LOUDEST} > 0.003")
        page.get_by_role("button", name="Close").click()
        page.wait_for_selector("iframe", state="detached")
        assert button.evaluate("(each) => each === document.activeElement")
