"""Train a small network on cadences and let it continue one: MIDI, sound and pictures go to a folder you name."""

import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

from longspan.config import TrainConfig
from longspan.data import MusicData
from longspan.sampling.generate import generate
from longspan.sampling.notes import to_score
from longspan.sampling.render import render_music
from longspan.training.loop import train
from longspan.training.runs import DataRecord, Run

CHORDS = [(48, 64, 67, 72), (45, 60, 64, 69), (41, 60, 65, 69), (38, 62, 65, 69), (43, 62, 67, 71), (43, 59, 65, 74)]


def cadences(first: int) -> np.ndarray:
    """Six chords over and over, two frames each, from chord number `first` on."""
    chords = np.resize(np.roll(CHORDS, -first, axis=0).repeat(2, axis=0), (72, 4))
    return (chords[:, :, None] == 21 + np.arange(88)).any(axis=1).astype(np.uint8)


folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
songs = [cadences(first) for first in range(6)]
data = MusicData("cadences", {"train": songs * 4, "valid": songs, "test": songs}, frames_per_beat=2)
config = TrainConfig(hidden_size=40, learning_rate=0.3, momentum=0.9, clip=1.0, max_epochs=15)
with tempfile.TemporaryDirectory() as path:
    model = train(Run.create(Path(path, "run"), config, DataRecord.of(data), {}), data).model

prime = songs[2][:13]
[sample] = generate(model, length=51, num=1, key=jax.random.key(0), prime=prime)
score = to_score(np.concatenate([prime, sample]), frames_per_beat=2, prime_frames=len(prime))
for ending in (".mid", ".wav", ".png", ".svg"):
    (folder / f"cadences{ending}").write_bytes(render_music(score, ending, tempo=90))
print(f"{(sample == songs[2][13:64]).all(axis=1).mean():.0%} of the chords go on as they should")
