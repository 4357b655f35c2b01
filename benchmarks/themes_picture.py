"""Draws docs/themes.svg: where samples of a run return to what they said, with its memory and without.

    longspan train --run-dir RUN
    python -m benchmarks.themes_picture RUN

Each point is a frame that continues a passage of four or more frames as it went on before; its height is the earlier
frame. The samples are the first ones of a fixed seed, none chosen. Also prints the share of such frames in more and
shorter samples, and in the songs of the test split.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import longspan
from longspan.data import MusicData, load
from longspan.data.recall import identities, longest_matches
from longspan.reporting.charts import Chart, Series
from longspan.reporting.svg import picture

TARGET = Path("docs/themes.svg")
FRAMES, SAMPLES, SEED, PASSAGE = 256, 8, 1, 4
COUNTED_FRAMES, COUNTED_SAMPLES = 128, 32


def returns(frames: np.ndarray) -> list[tuple[float, float]]:
    """The frames of a song that continue a passage as it went on before, and the earlier ones they repeat."""
    ids = identities(frames)
    found = longest_matches(ids)
    again = np.flatnonzero((found.length >= PASSAGE) & (ids[found.position] == ids))
    return [(float(step), float(found.position[step])) for step in again]


def share_of_returns(songs: Iterable[np.ndarray]) -> float:
    """Of all frames of songs, those that continue a passage as it went on before."""
    counts = [(len(returns(song)), len(song)) for song in songs]
    return sum(again for again, _ in counts) / sum(frames for _, frames in counts)


def main() -> None:
    trained = longspan.open_run(Path(sys.argv[1]))
    data = load(trained.run.config.data)
    assert isinstance(data, MusicData)
    print(f"test split: {100 * share_of_returns(data.splits['test']):.1f} % of the frames")
    charts = []
    for name, memory in (("with memory", True), ("without memory", False)):
        counted = trained.sample(COUNTED_FRAMES, num=COUNTED_SAMPLES, seed=SEED, memory=memory)
        print(f"{COUNTED_SAMPLES} samples {name}: {100 * share_of_returns(counted):.1f} % of the frames")
        samples = trained.sample(FRAMES, num=SAMPLES, seed=SEED, memory=memory)
        points = [point for sample in samples for point in returns(sample)]
        now = Series("the frame itself", [(0.0, 0.0), (float(FRAMES), float(FRAMES))], "quiet")
        series = [now, Series("repeats the frame", points, "second", joined=False)]
        charts.append(Chart(f"{SAMPLES} samples {name}", "frame", "earlier frame", series, y_range=(0, FRAMES)))
    TARGET.write_text(picture(charts, "Where samples return to what they said, with memory and without"))


if __name__ == "__main__":
    main()
