"""A score as sound, by additive synthesis in NumPy without a soundfont; it sounds between a piano and a music box.

A struck string is a sum of slightly stretched partials, each decaying at its own rate, high ones faster. Each pitch is
computed once, as long as its longest note, and every note is a part of it.
"""

import io
import wave
from collections import defaultdict

import numpy as np
from jaxtyping import Float

from longspan.errors import InputError
from longspan.sampling.notes import RollNote, Score

RATE = 44_100
CONCERT_A = 440.0
CONCERT_A_PITCH = 69
MAX_SECONDS = 1200
PEAK = 0.89
"""Largest amplitude, one decibel below full scale."""

PARTIALS = 12
INHARMONICITY = 2e-4
"""How far partial n is stretched, as in a stiff string: n * sqrt(1 + B n^2) times the fundamental."""
HIGHEST_PARTIAL = 0.45 * RATE
ATTACK_SECONDS = 0.004
RELEASE_SECONDS = 0.18
"""Fade time of a note once its key is released; a sudden stop would click."""
RING_SECONDS = 3.0
"""Time in which the concert A decays to 1/e; lower strings ring longer."""
AUDIBLE_RINGS = 9.0
"""After this many decay times a tone is 78 decibels down and may end."""
BLOCK = 1024
STEREO_WIDTH = 0.5
"""0 puts all pitches in the middle; 1 puts each end of the keyboard into one ear."""


def to_wav(score: Score, tempo: float) -> bytes:
    """The bytes of a 16-bit stereo WAV file that plays a score at `tempo` quarter notes per minute."""
    sound = synthesize(score, tempo)
    samples = np.rint(np.multiply(sound, 32767, out=sound), out=sound).astype("<i2")
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return content.getvalue()


def synthesize(score: Score, tempo: float) -> Float[np.ndarray, "time 2"]:
    """Left and right channel, scaled so that no chord clips, however many notes it has; silence stays silent."""
    if score.seconds(tempo) > MAX_SECONDS:
        raise InputError(
            f"the sample lasts {score.seconds(tempo) / 60:.0f} minutes, a WAV file at most {MAX_SECONDS // 60}; "
            "lower length, raise tempo or write MIDI",
            fields=["length", "tempo"],
        )
    frame_seconds = 60 / tempo / score.frames_per_beat
    release = round(RELEASE_SECONDS * RATE)
    sound = np.zeros((round(score.seconds(tempo) * RATE) + release, 2), np.float32)
    by_pitch: dict[int, list[RollNote]] = defaultdict(list)
    for note in score.notes:
        by_pitch[note.pitch].append(note)
    for pitch, notes in by_pitch.items():
        longest = max(note.stop - note.start for note in notes) * frame_seconds + RELEASE_SECONDS
        tone = strike(pitch, longest)[:, None] * _pan(pitch)
        for note in notes:
            start = round(note.start * frame_seconds * RATE)
            held = round(note.stop * frame_seconds * RATE) - start
            piece = tone[: held + release]
            sound[start : start + len(piece)] += piece * _damper(len(piece), held, release)
    loudest = max(float(sound.max()), -float(sound.min()))
    return np.multiply(sound, PEAK / loudest if loudest > 0 else 1, out=sound)


def strike(pitch: int, seconds: float) -> Float[np.ndarray, " time"]:
    """A string of a MIDI pitch, struck and left to ring for at most `seconds`."""
    frequency = CONCERT_A * 2 ** ((pitch - CONCERT_A_PITCH) / 12)
    ring_seconds = RING_SECONDS * (CONCERT_A / frequency) ** 0.35
    length = round(min(seconds, AUDIBLE_RINGS * ring_seconds) * RATE)
    number = np.arange(1, PARTIALS + 1)
    frequencies = frequency * number * np.sqrt(1 + INHARMONICITY * number**2)
    number, frequencies = number[frequencies < HIGHEST_PARTIAL], frequencies[frequencies < HIGHEST_PARTIAL]
    # A string decays in two stages: fast while it moves with the soundboard, slowly after that.
    decays = number**0.7 / ring_seconds * np.array([[1.0], [7.0]])
    tone = _damped_sines(0.5 * number**-1.6, 2 * np.pi * frequencies, decays, length)
    attack = min(round(ATTACK_SECONDS * RATE), length)
    tone[:attack] *= 0.5 - 0.5 * np.cos(np.pi * np.arange(attack) / attack)
    # In this range, high tones sound louder than low ones of equal amplitude.
    return tone * np.float32((CONCERT_A / frequency) ** 0.3)


def _damped_sines(amplitudes, angular_frequencies, decays, length: int) -> Float[np.ndarray, " time"]:
    """The sum of `a exp(-d t) sin(w t)` over all entries of the arguments, which broadcast against each other.

    With z the factor from one sample to the next, sample k B + b of an entry is `a z^(k B) z^b`, so the sum is one
    matrix product over two short tables instead of a sine and an exponential for each sample.
    """
    exponents = ((-decays + 1j * angular_frequencies) / RATE).ravel()
    amplitudes = np.broadcast_to(amplitudes, decays.shape).ravel()
    blocks = -(-length // BLOCK)
    coarse = amplitudes * np.exp(np.arange(blocks)[:, None] * BLOCK * exponents)
    fine = np.exp(exponents[:, None] * np.arange(BLOCK))
    return (coarse.astype(np.complex64) @ fine.astype(np.complex64)).imag.ravel()[:length]


def _pan(pitch: int) -> Float[np.ndarray, " 2"]:
    """Gains of the two channels, low pitches on the left, with the same total power for all pitches."""
    angle = np.pi / 4 * (1 + STEREO_WIDTH * np.clip((pitch - 64) / 44, -1, 1))
    return np.array([np.cos(angle), np.sin(angle)], np.float32)


def _damper(length: int, held: int, release: int) -> Float[np.ndarray, "time 1"]:
    """1 while the key is held, then smoothly down to 0 at the end of the release."""
    after = np.clip((np.arange(length) - held) / release, 0, 1)
    return ((0.5 + 0.5 * np.cos(np.pi * after)) ** 2).astype(np.float32)[:, None]
