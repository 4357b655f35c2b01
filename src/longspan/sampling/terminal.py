"""A score as a few lines of block characters: a first look at a sample without leaving the terminal."""

import numpy as np

from longspan.sampling.notes import SEMITONES_PER_OCTAVE, Score

BLOCKS = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}
LABEL_WIDTH = 4
BEATS_PER_LABEL = 8


def to_blocks(score: Score, columns: int) -> str:
    """A roll with one column a frame and two pitches a line, labelled by octave and beat.

    Frames that `columns` have no room for are left out, which an ellipsis says.
    """
    if not score.notes:
        return "(silence)\n"
    shown = min(score.frames, columns - LABEL_WIDTH - 2)
    # Start on an even pitch, so that a C is always the lower half of its line.
    low, high = min(note.pitch for note in score.notes) // 2 * 2, max(note.pitch for note in score.notes) // 2 * 2 + 2
    roll = np.zeros((high - low, score.frames), int)
    for start, stop, pitch in score.notes:
        roll[pitch - low, start:stop] = 1
    lines = []
    for row in range(high - low - 2, -1, -2):
        blocks = "".join(BLOCKS[upper, lower] for lower, upper in roll[row : row + 2, :shown].T)
        lines.append(f"{_octave(low + row):>{LABEL_WIDTH}}│{blocks}{'…' * (shown < score.frames)}".rstrip())
    return "\n".join([*lines, _ruler(score, shown)]) + "\n"


def _octave(pitch: int) -> str:
    return f"C{pitch // SEMITONES_PER_OCTAVE - 1} " if pitch % SEMITONES_PER_OCTAVE == 0 else ""


def _ruler(score: Score, shown: int) -> str:
    line = [" "] * shown
    for beat in range(0, shown // score.frames_per_beat, BEATS_PER_LABEL):
        place = beat * score.frames_per_beat
        line[place : place + len(str(beat))] = str(beat)
    return " " * LABEL_WIDTH + "└" + "".join(line).rstrip()
