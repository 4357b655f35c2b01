"""A score as a picture: where every bar, line and label goes, as plain values that `svg` and `png` draw alike.

Time runs to the right with a line for every beat, pitch runs up with a line under every C; rows of black keys are
darker. A prime is grey, what the model made up is coloured by its pitch.
"""

from typing import NamedTuple

from longspan.errors import InputError
from longspan.sampling.notes import SEMITONES_PER_OCTAVE, Score

MAX_FRAMES = 8000
BLACK_KEYS = frozenset({1, 3, 6, 8, 10})
BEATS_PER_LABEL = 4

NICE_WIDTH = 1200
FRAME_WIDTHS = (2.0, 18.0)
ROW_HEIGHT = 10.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 20.0, 20.0, 34.0
PITCH_MARGIN = 2
LEAST_PITCHES = 25
MIDDLE_C = 60

PAPER = (252, 251, 248)
BLACK_KEY_ROW = (244, 242, 237)
BEAT_LINE = (234, 231, 224)
STRONG_LINE = (206, 201, 191)
INK = (112, 106, 98)
PRIME = (160, 155, 148)
PRIME_GROUND = (240, 236, 226)
LOW_TO_HIGH = ((60, 56, 140), (32, 120, 158), (38, 160, 122), (226, 152, 44), (216, 84, 62))
"""Colours of notes from the lowest to the highest pitch of the picture, blended in between."""

Colour = tuple[int, int, int]


class Box(NamedTuple):
    """A filled rectangle, its corners rounded by `radius`."""

    x: float
    y: float
    width: float
    height: float
    colour: Colour
    radius: float = 0.0


class Label(NamedTuple):
    """A short text whose line is centred at `y`; `x` is its right end, or its middle."""

    x: float
    y: float
    text: str
    anchor: str


class Picture(NamedTuple):
    """All there is to draw, in order: what stands later lies above."""

    width: float
    height: float
    boxes: list[Box]
    labels: list[Label]


def draw(score: Score) -> Picture:
    """Lay out a score."""
    if score.frames > MAX_FRAMES:
        raise InputError(
            f"the sample has {score.frames} frames, a picture holds at most {MAX_FRAMES}; lower --length or write MIDI"
        )
    frame_width = min(max(NICE_WIDTH / score.frames, FRAME_WIDTHS[0]), FRAME_WIDTHS[1])
    # Whole halves keep lines on the pixels of a picture drawn at twice the size.
    return _Layout(score, round(2 * frame_width) / 2, *_pitch_range(score)).picture()


def _pitch_range(score: Score) -> tuple[int, int]:
    """Lowest and highest pitch to show: those that sound and a little room, never less than two octaves."""
    pitches = [note.pitch for note in score.notes] or [MIDDLE_C]
    low, high = min(pitches) - PITCH_MARGIN, max(pitches) + PITCH_MARGIN
    missing = max(0, LEAST_PITCHES - (high - low + 1))
    return low - missing // 2, high + missing - missing // 2


class _Layout:
    def __init__(self, score: Score, frame_width: float, low: int, high: int):
        self.score = score
        self.frame_width = frame_width
        self.low, self.high = low, high
        self.plot_width = score.frames * frame_width
        self.plot_height = (high - low + 1) * ROW_HEIGHT

    def picture(self) -> Picture:
        width, height = LEFT + self.plot_width + RIGHT, TOP + self.plot_height + BOTTOM
        boxes = [Box(0, 0, width, height, PAPER), *self._ground(), *self._grid(), *self._bars()]
        return Picture(width, height, boxes, self._labels())

    def x(self, frame: float) -> float:
        return LEFT + frame * self.frame_width

    def y(self, pitch: int) -> float:
        """The upper edge of a pitch's row."""
        return TOP + (self.high - pitch) * ROW_HEIGHT

    def _pitches(self) -> range:
        return range(self.low, self.high + 1)

    def _ground(self) -> list[Box]:
        prime = self.score.prime_frames * self.frame_width
        ground = [Box(LEFT, TOP, prime, self.plot_height, PRIME_GROUND)] if prime else []
        rows = [
            Box(self.x(self.score.prime_frames), self.y(pitch), self.plot_width - prime, ROW_HEIGHT, BLACK_KEY_ROW)
            for pitch in self._pitches()
            if pitch % SEMITONES_PER_OCTAVE in BLACK_KEYS
        ]
        return ground + rows

    def _grid(self) -> list[Box]:
        boxes = []
        for beat in range(self.score.frames // self.score.frames_per_beat + 1):
            strong = beat % BEATS_PER_LABEL == 0
            if strong or self._beat_width() >= 6:
                colour = STRONG_LINE if strong else BEAT_LINE
                boxes.append(Box(self._beat_x(beat) - 0.5, TOP, 1, self.plot_height, colour))
        for pitch in self._octaves():
            boxes.append(Box(LEFT, self.y(pitch) + ROW_HEIGHT - 0.5, self.plot_width, 1, STRONG_LINE))
        if self.score.prime_frames:
            boxes.append(Box(self.x(self.score.prime_frames) - 1, TOP - 6, 2, self.plot_height + 12, INK, 1))
        return boxes

    def _bars(self) -> list[Box]:
        prime = self.score.prime_frames
        bars = []
        for start, stop, pitch in self.score.notes:
            # A note of the prime that the model goes on holding is both.
            if start < prime:
                bars.append(self._bar(start, min(stop, prime), pitch, PRIME))
            if stop > prime:
                bars.append(self._bar(max(start, prime), stop, pitch, self._colour(pitch)))
        return bars

    def _bar(self, start: int, stop: int, pitch: int, colour: Colour) -> Box:
        gap = min(1.5, self.frame_width / 4)
        return Box(
            self.x(start) + gap / 2,
            self.y(pitch) + 0.75,
            (stop - start) * self.frame_width - gap,
            ROW_HEIGHT - 1.5,
            colour,
            min(3.0, self.frame_width / 3),
        )

    def _labels(self) -> list[Label]:
        octaves = [
            Label(LEFT - 8, self.y(pitch) + ROW_HEIGHT / 2, f"C{pitch // SEMITONES_PER_OCTAVE - 1}", "end")
            for pitch in self._octaves()
        ]
        stride = BEATS_PER_LABEL
        while stride * self._beat_width() < 36:
            stride *= 2
        beats = [
            Label(self._beat_x(beat), TOP + self.plot_height + 16, str(beat), "middle")
            for beat in range(0, self.score.frames // self.score.frames_per_beat + 1, stride)
        ]
        return octaves + beats

    def _octaves(self) -> list[int]:
        return [pitch for pitch in self._pitches() if pitch % SEMITONES_PER_OCTAVE == 0]

    def _beat_width(self) -> float:
        return self.score.frames_per_beat * self.frame_width

    def _beat_x(self, beat: int) -> float:
        return self.x(beat * self.score.frames_per_beat)

    def _colour(self, pitch: int) -> Colour:
        place = (pitch - self.low) / (self.high - self.low) * (len(LOW_TO_HIGH) - 1)
        index = min(int(place), len(LOW_TO_HIGH) - 2)
        below, above, share = LOW_TO_HIGH[index], LOW_TO_HIGH[index + 1], place - index
        red, green, blue = (round(a + share * (b - a)) for a, b in zip(below, above, strict=True))
        return red, green, blue
