"""Train a small network on cadences for a few seconds and let it continue one, as MIDI, sound and a picture.

python examples/sample_music.py FOLDER
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import longspan
from longspan.data import MusicData
from longspan.sampling.notes import to_score
from longspan.sampling.render import render_music

CHORDS = [(48, 64, 67, 72), (45, 60, 64, 69), (41, 60, 65, 69), (38, 62, 65, 69), (43, 62, 67, 71), (43, 59, 65, 74)]


def cadences(first: int) -> np.ndarray:
    """Six chords over and over, two frames each, from chord number `first` on."""
    roll = np.zeros((72, 88), np.uint8)
    for frame in range(72):
        roll[frame, np.array(CHORDS[(first + frame // 2) % 6]) - 21] = 1
    return roll


folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
songs = [cadences(first) for first in range(6)]
data = MusicData("cadences", {"train": songs * 4, "valid": songs, "test": songs}, frames_per_beat=2)
settings = {"hidden_size": 40, "learning_rate": 0.3, "clip": 1.0, "max_epochs": 15}
with tempfile.TemporaryDirectory() as path:
    trained = longspan.train("sgd+cm", data, run_dir=Path(path, "run"), **settings)

prime = songs[2][:13]
[sample] = trained.sample(51, prime=prime)
score = to_score(np.concatenate([prime, sample]), frames_per_beat=2, prime_frames=len(prime))
for ending in (".mid", ".wav", ".png", ".svg"):
    (folder / f"cadences{ending}").write_bytes(render_music(score, ending, tempo=90))
print(f"{(sample == songs[2][13:64]).all(axis=1).mean():.0%} of the chords go on as they should")
