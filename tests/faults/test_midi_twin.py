"""The bounded reader of MIDI gives the notes that mido's reading gives, whole files and damaged ones."""

from pathlib import Path

import mido
import numpy as np

from longspan.data.midi import DRUM_CHANNEL, read_notes
from longspan.errors import InputError
from tests.faults import bombs
from tests.faults.mutants import mutants

CHANNEL_MESSAGES = ("note_on", "note_off", "polytouch", "control_change", "program_change", "aftertouch", "pitchwheel")


def ends_of(start, channel, onsets, end_of_track, beat) -> list[int]:
    """Where a note that is never released may end."""
    later = [tick for other, tick in onsets if other == channel and tick > start]
    return [start + 4 * beat, *later, *([end_of_track] if end_of_track > start else [])]


def twin(path: Path) -> tuple[list[tuple[float, float, int]], int]:
    """Notes and unreleased notes by mido, one event after another."""
    file = mido.MidiFile(path)
    notes, unreleased, beat = [], 0, file.ticks_per_beat
    for track in file.tracks:
        sounding, onsets, tick = {}, [], 0
        for message in track:
            tick += message.time
            if message.type not in ("note_on", "note_off") or message.channel == DRUM_CHANNEL:
                continue
            voice = message.channel, message.note
            if voice in sounding:
                notes.append((sounding.pop(voice), tick, message.note))
            if message.type == "note_on" and message.velocity:
                sounding[voice] = tick
                onsets.append((message.channel, tick))
        unreleased += len(sounding)
        notes += [
            (start, min(ends_of(start, channel, onsets, tick, beat)), pitch)
            for (channel, pitch), start in sounding.items()
        ]
    return [(start / beat, end / beat, pitch) for start, end, pitch in notes], unreleased


def random_message(random: np.random.Generator) -> mido.Message | mido.MetaMessage:
    time = int(random.choice([0, 1, 127, 128, 16_383, 16_384, 2_097_152]))
    kind = random.integers(10)
    if kind == 0:
        return mido.MetaMessage("text", text="x" * int(random.integers(300)), time=time)
    if kind == 1:
        return mido.Message("sysex", data=random.integers(0, 128, random.integers(300)).tolist(), time=time)
    name = CHANNEL_MESSAGES[random.integers(len(CHANNEL_MESSAGES))] if kind == 2 else "note_on"
    values = {"channel": int(random.choice([0, 1, DRUM_CHANNEL]))}
    if name in ("note_on", "note_off"):
        values |= {"note": int(random.integers(60, 64)), "velocity": int(random.choice([0, 64]))}
    return mido.Message(name, time=time, **values)


def test_files_of_all_kinds_of_messages_give_the_notes_mido_gives(tmp_path):
    path = tmp_path / "a.mid"
    for seed in range(40):
        random = np.random.default_rng(seed)
        file = mido.MidiFile(ticks_per_beat=int(random.integers(1, 1000)))
        for _ in range(random.integers(1, 4)):
            messages = [mido.Message("note_on", note=60), *(random_message(random) for _ in range(60))]
            file.tracks.append(mido.MidiTrack(messages))
        file.save(path)
        assert read_notes(path)[:2] == twin(path)


def test_running_status_also_after_a_meta_event(tmp_path):
    path = tmp_path / "a.mid"
    running = b"\x00\x90\x3c\x40\x10\x3e\x40\x05\x3c\x00"
    meta = b"\x00\xff\x01\x02hi"
    events = running + meta + b"\x83\x00\x3e\x00" + b"\x00\xc0\x05\x01\x07" + b"\x00\xff\x2f\x00"
    path.write_bytes(bombs.midi(bombs.track(events)))
    expected = twin(path)
    assert len(expected[0]) == 2
    assert read_notes(path)[:2] == expected


def test_damaged_files_both_accept_give_the_same_notes(tmp_path):
    path = tmp_path / "a.mid"
    bombs.good_midi(path, 1)
    agreed = 0
    for mutant in mutants(path.read_bytes(), 1_000):
        path.write_bytes(mutant)
        try:
            ours, theirs = read_notes(path)[:2], twin(path)
        except (InputError, OSError, EOFError, ValueError, IndexError, ArithmeticError, LookupError):
            continue
        if any(message.type == "unknown_meta" for track in mido.MidiFile(path).tracks for message in track):
            continue  # mido forgets the time before these
        assert ours == theirs
        agreed += 1
    assert agreed > 50
