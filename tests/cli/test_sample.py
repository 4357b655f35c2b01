"""`longspan sample` on small untrained runs: what it writes, prints and refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import mido
import numpy as np
import pytest
from PIL import Image

from longspan import cli, runtime
from longspan.config import TrainConfig
from longspan.data.dataset import DataRecord
from longspan.data.midi import read_notes
from longspan.data.music import KEYS
from longspan.data.rolls import round_to_frames
from longspan.data.vocabulary import Vocabulary
from longspan.errors import InputError
from longspan.models.model import build
from longspan.sampling.notes import RollNote, Score
from longspan.sampling.prime import read_music_prime, read_text_prime
from longspan.sampling.render import to_midi
from longspan.training.runs import Run
from longspan.training.state import to_named

WORDS = ["\n", "<unk>", "the", "cat", "sat", "on"]
LETTERS = ["\n", " ", "a", "b", "c"]


def make_run(path: Path, record: DataRecord, *, weights: bool = True) -> Path:
    config = TrainConfig(hidden_size=8, output="bernoulli" if record.kind == "music" else "softmax", output_scale=1.0)
    run = Run.create(path, config, record, {})
    if weights:
        rates = np.full(record.size, 0.04 if record.kind == "music" else 1 / record.size)
        run.write_model(to_named(build(config, record.size, rates, key=jax.random.key(0))))
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in an empty folder, in a process that has JAX already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runtime, "prepare", lambda threads: None)
    return tmp_path


@pytest.fixture
def music(here):
    record = DataRecord("music", "fingerprint", KEYS, frames_per_beat=2, octave_shift=-1)
    return str(make_run(here / "chorales", record))


@pytest.fixture
def words(here):
    record = DataRecord("text", "fingerprint", len(WORDS), vocabulary=WORDS, unit="word", end_token=0)
    return str(make_run(here / "words", record))


@pytest.fixture
def letters(here):
    return str(
        make_run(
            here / "letters",
            DataRecord("text", "fingerprint", len(LETTERS), vocabulary=LETTERS, unit="character", end_token=0),
        )
    )


@pytest.fixture
def tune(here):
    """A scale of C major and back to its tonic, in the octave of middle C; two frames a beat."""
    pitches = [60, 64, 67, 65, 62, 59, 60, 60]
    notes = [RollNote(frame, frame + 1, pitch) for frame, pitch in enumerate(pitches)]
    (here / "tune.mid").write_bytes(to_midi(Score(notes, 8, 2), tempo=100))
    return "tune.mid"


def answer(capsys, *arguments) -> dict:
    assert cli.run(["sample", *map(str, arguments), "--json"]) == cli.DONE
    return json.loads(capsys.readouterr().out)


def roll_from(path) -> np.ndarray:
    return round_to_frames(read_notes(Path(path)).notes, 2)


# What is written


def test_music_without_an_output_is_shown_and_written_beside_earlier_ones(music, capsys):
    assert cli.run(["sample", music, "--length", "6"]) == cli.DONE
    shown = capsys.readouterr().out
    assert "│" in shown
    assert "wrote sample.mid (6 frames, 0:02, seed 0)" in shown
    first = Path("sample.mid").read_bytes()
    assert answer(capsys, music, "--length", 6, "--seed", 1)["written"] == ["sample2.mid"]
    assert Path("sample.mid").read_bytes() == first != Path("sample2.mid").read_bytes()


def test_every_kind_of_file_in_one_go(music, capsys):
    files = ["out.mid", "out.wav", "out.png", "out.svg"]
    flags = [flag for file in files for flag in ("-o", file)]
    said = answer(capsys, music, *flags, "--length", 6, "--tempo", 120)
    assert said["written"] == files
    assert (said["length"], said["frames"], said["seconds"], said["prime"]) == (6, 6, 1.5, None)
    assert mido.MidiFile("out.mid").length == pytest.approx(1.5)
    assert Image.open("out.png").size[0] > 100
    assert Path("out.wav").read_bytes()[:4] == b"RIFF"
    assert Path("out.svg").read_text().startswith("<svg")


def test_several_samples_are_numbered_and_the_first_is_the_single_one(music, capsys):
    assert answer(capsys, music, "--num", 11, "-o", "a.mid", "--length", 6)["written"][:2] == ["a-01.mid", "a-02.mid"]
    answer(capsys, music, "-o", "single.mid", "--length", 6)
    assert Path("single.mid").read_bytes() == Path("a-01.mid").read_bytes() != Path("a-02.mid").read_bytes()


def test_a_melody_stays_the_top_voice_of_what_is_added_to_it(music, tune, capsys):
    answer(capsys, music, "--melody", tune, "--prime-shift", 0, "-o", "new/folder/harmony.mid", "--temperature", 0.7)
    given, drawn = roll_from(tune), roll_from("new/folder/harmony.mid")
    assert len(given) == len(drawn)
    assert drawn[given == 1].all()
    for melody, frame in zip(given, drawn, strict=True):
        if melody.any():
            assert np.flatnonzero(frame)[-1] == np.flatnonzero(melody)[-1]


def test_keys_are_kept_and_forbidden_and_silence_avoided(music, capsys):
    options = ("--length", 20, "--keep", "C3", "--forbid", "G3", "64", "--avoid-silence", "-o", "out.mid")
    answer(capsys, music, *options, "--meter", "6/8", "--instrument", "organ")
    roll = roll_from("out.mid")
    assert roll[:, 48].all()
    assert not roll[:, [55, 64]].any()
    messages = {message.type: message for message in mido.MidiFile("out.mid").tracks[0]}
    assert (messages["time_signature"].numerator, messages["time_signature"].denominator) == (6, 8)
    assert messages["program_change"].program == 19
    assert messages["key_signature"].key


def test_re_attacking_strikes_every_frame(music, capsys):
    answer(capsys, music, "-o", "held.mid", "--length", 60)
    answer(capsys, music, "-o", "struck.mid", "--length", 60, "--re-attack")
    np.testing.assert_array_equal(roll_from("struck.mid"), roll_from("held.mid"))
    held, struck = len(read_notes(Path("held.mid")).notes), len(read_notes(Path("struck.mid")).notes)
    assert struck == roll_from("held.mid").sum() > held


def test_text_goes_to_the_terminal(words, capsys):
    assert cli.run(["sample", words, "--length", "30", "--seed", "3"]) == cli.DONE
    text = capsys.readouterr().out
    assert set(text.split()) <= set(WORDS)
    assert len(text.split()) + text.count("\n") in (30, 31)  # an end token is a newline; one may be added at the end
    assert answer(capsys, words, "--length", 30, "--seed", 3)["text"][0].strip() == text.strip()
    assert cli.run(["sample", words, "--num", "2", "--length", "6"]) == cli.DONE
    assert capsys.readouterr().out.startswith("--- 1 of 2 ---\n")


def test_text_to_a_file_continues_its_prime(letters, capsys):
    Path("prime.txt").write_text("abc cab\n")
    assert cli.run(["sample", letters, "--prime", "prime.txt", "-o", "out.txt", "--length", "6"]) == cli.DONE
    written = Path("out.txt").read_text()
    assert written.startswith("abc cab")
    assert len(written.removesuffix("\n")) in (12, 13)
    assert capsys.readouterr().out == "wrote out.txt (6 characters drawn, seed 0)\n"
    answer(capsys, letters, "--prime", "prime.txt", "-o", "rest.txt", "--length", 6, "--omit-prime")
    assert "abc cab" + Path("rest.txt").read_text() == written


# Priming with music


def test_a_sample_continues_its_prime_where_it_sounds(music, tune, capsys):
    said = answer(capsys, music, "--prime", tune, "--length", 6, "-o", "out.mid")
    assert (said["prime_length"], said["frames"], said["remarks"]) == (8, 14, [])
    # A held tonic may go on into the sample, which shows only from the ninth frame on.
    np.testing.assert_array_equal(roll_from("out.mid")[:8], roll_from(tune))
    assert answer(capsys, music, "--prime", tune, "--prime-length", 3, "--length", 6)["frames"] == 9
    np.testing.assert_array_equal(roll_from("sample.mid")[:3], roll_from(tune)[:3])
    answer(capsys, music, "--prime", tune, "--length", 6, "-o", "rest.mid", "--omit-prime")
    assert mido.MidiFile("rest.mid").length == pytest.approx(6 * 0.3)


def test_a_prime_in_another_key_is_moved_and_moved_back(music, capsys):
    pitches = [62, 66, 69, 67, 64, 61, 62, 62]  # the same tune in D
    notes = [RollNote(frame, frame + 1, pitch) for frame, pitch in enumerate(pitches)]
    Path("in-d.mid").write_bytes(to_midi(Score(notes, 8, 2), tempo=100))
    said = answer(capsys, music, "--prime", "in-d.mid", "--length", 6, "-o", "out.mid")
    assert "transposed by -2 semitones" in said["remarks"][0]
    np.testing.assert_array_equal(roll_from("out.mid")[:8], roll_from("in-d.mid"))
    answer(capsys, music, "--prime", "in-d.mid", "--length", 6, "-o", "kept.mid", "--prime-shift", 0)
    np.testing.assert_array_equal(roll_from("kept.mid")[:8], roll_from("in-d.mid"))


def test_transposing_the_prime_transposes_the_whole_sample(music, tune, capsys):
    notes = [note._replace(pitch=note.pitch + 5) for note in read_notes(Path(tune)).notes]
    frames = [RollNote(round(note.start * 2), round(note.end * 2), note.pitch) for note in notes]
    Path("in-f.mid").write_bytes(to_midi(Score(frames, 8, 2), tempo=100))
    answer(capsys, music, "--prime", tune, "--length", 20, "-o", "c.mid", "--temperature", 0.7)
    answer(capsys, music, "--prime", "in-f.mid", "--length", 20, "-o", "f.mid", "--temperature", 0.7)
    in_c, in_f = roll_from("c.mid"), roll_from("f.mid")
    np.testing.assert_array_equal(in_c[:, :-5], in_f[:, 5:])


def test_the_model_reads_a_prime_as_its_training_data_lie(tune):
    prime = read_music_prime(Path(tune), frames_per_beat=2, octave_shift=-1)
    assert prime.roll.dtype == np.uint8
    assert prime.roll.shape == (8, KEYS)
    assert prime.moved_by == 0
    np.testing.assert_array_equal(np.argmax(prime.roll, axis=1) + 21 - 12, [60, 64, 67, 65, 62, 59, 60, 60])
    coarse = read_music_prime(Path(tune), frames_per_beat=1)
    assert len(coarse.roll) == 4


def test_notes_beyond_the_keyboard_are_counted(here):
    (here / "low.mid").write_bytes(to_midi(Score([RollNote(0, 2, 5), RollNote(0, 2, 60)], 2, 1), tempo=100))
    prime = read_music_prime(here / "low.mid", frames_per_beat=1, move_by=0)
    assert (prime.roll.sum(), prime.notes_beyond) == (2, 1)


# Priming with text


def test_unknown_words_become_the_unknown_token_and_are_named(words, capsys):
    Path("prime.txt").write_text("the dog sat")
    assert read_text_prime(Path("prime.txt"), Vocabulary("word", tuple(WORDS))).tokens.tolist() == [2, 1, 4]
    assert cli.run(["sample", words, "--prime", "prime.txt", "--length", "6"]) == cli.DONE
    said = capsys.readouterr()
    assert said.out.startswith("the <unk> sat")
    assert said.err == "note: the prime has words that the model does not know: 'dog'\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("abz é", "prime.txt has 'z', 'é', which the run's vocabulary lacks"),
        ("\n", "prime.txt is empty"),
        (b"\xff\xfe", "not UTF-8 text"),
        ("a" * 100_001, "has 100001 characters, a prime at most 100000"),
    ],
)
def test_bad_text_primes(letters, content, message, capsys):
    Path("prime.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(capsys, [letters, "--prime", "prime.txt"], message)


# Refusals


def assert_refused(capsys, arguments, message):
    assert cli.run(["sample", *arguments]) == cli.BAD_INPUT
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--length", "0"], "--length must be at least 1: got 0"),
        (["--prime-length", "0"], "--prime-length must be at least 1: got 0"),
        (["--num", "0"], "--num must be at least 1: got 0"),
        (["--length", "3000", "--num", "1000"], "at most 2000000: got 3000 times 1000"),
        (["--temperature", "-1"], "--temperature must be 0 (always the likeliest) or more: got -1"),
        (["--temperature", "nan"], "--temperature must be 0"),
        (["--seed", "-1"], "--seed must be from 0"),
        (["--tempo", "0"], "--tempo must be from 10 to 1000"),
        (["--prime-shift", "13"], "--prime-shift must be from -12 to 12"),
        (
            ["-o", "out.mp3"],
            "can be written to .mid, .midi, .musicxml, .wav, .png, .svg: got out.mp3",
        ),
        (["-o", "out.txt"], "a sample of music can be written to"),
        (["-o", "broken.mid/out.mid"], "broken.mid is not a folder that can be written to"),
        (["--meter", "4/5"], "--meter must be a time signature such as 3/4"),
        (["--instrument", "kazoo"], "--instrument must be 1 to 128 or one of piano,"),
        (["--keep", "H4"], "'H4' is not a key: expected a note such as C4"),
        (["--forbid", "C9"], "C9 lies beyond the model's keyboard"),
        (["--keep", "C4", "--forbid", "60"], "60 cannot be both kept and forbidden"),
        (["--melody", "words.txt"], "words.txt is not a MIDI file, which is what a melody"),
        (["-o", "folder.mid"], "folder.mid is a folder"),
        (["--prime", "no.mid"], "cannot read no.mid: No such file"),
        (
            ["--prime", "words.txt"],
            "words.txt is not a MIDI file, which is what a prime of a run trained on music has to be",
        ),
        (["--prime", "broken.mid"], "broken.mid cannot be the prime of a sample: it is truncated"),
    ],
)
def test_bad_input_is_refused_in_one_line(music, arguments, message, capsys):
    Path("folder.mid").mkdir()
    Path("words.txt").write_text("some words\n")
    Path("broken.mid").write_bytes(b"MThd")
    assert_refused(capsys, [music, *arguments], message)
    assert not Path("sample.mid").exists()


def test_runs_that_cannot_be_sampled(here, words, tune, capsys):
    assert_refused(capsys, ["nowhere"], "expected a run folder")
    assert_refused(capsys, [words, "-o", "out.mid"], "a sample of text can be written to .txt: got out.mid")
    assert_refused(capsys, [words, "--prime", tune], "tune.mid is a MIDI file, but this run was trained on text")
    empty = make_run(here / "empty", DataRecord("music", "", KEYS, frames_per_beat=1), weights=False)
    assert_refused(capsys, [str(empty)], "has no weights yet")


def test_a_folder_without_write_permission(music, capsys, monkeypatch):
    Path("locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "locked")  # root may write anywhere
    assert_refused(capsys, [music, "-o", "locked/out.mid"], "locked is not a folder that can be written to")


def test_a_full_disk_leaves_nothing_behind(music, capsys, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    assert_refused(capsys, [music, "-o", "out.mid", "--length", "6"], "cannot write out.mid: No space left on device")
    assert not list(Path().glob("*out.mid*"))


def test_a_drum_track_is_no_prime(here):
    file = mido.MidiFile()
    track = mido.MidiTrack()
    file.tracks.append(track)
    track.append(mido.Message("note_on", channel=9, note=40, time=0))
    track.append(mido.Message("note_off", channel=9, note=40, time=480))
    file.save(here / "drums.mid")
    with pytest.raises(InputError, match="it has no notes"):
        read_music_prime(here / "drums.mid", frames_per_beat=1)


def test_the_command_itself(music):
    """Once as a user starts it, where JAX must not be imported before the machine is prepared."""
    command = [sys.executable, "-m", "longspan", "sample", music, "--temperature", "0", "-o", "out.mid", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2]), "JAX_ENABLE_COMPILATION_CACHE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["written"] == ["out.mid"]
    assert mido.MidiFile("out.mid").length == pytest.approx(64 * 0.6)
