"""Train a small network on made-up sentences for a few seconds and let it finish one that we begin."""

import tempfile
from pathlib import Path

import jax
import numpy as np

from longspan import data
from longspan.config import TrainConfig
from longspan.sampling.generate import generate
from longspan.training.loop import train
from longspan.training.runs import DataRecord, Run

WHO = ["the cat", "the old dog", "a bird", "my neighbour"]
DOES = ["sees", "likes", "follows", "never finds"]
WHAT = ["the mouse", "a red ball", "the moon", "some music"]

random = np.random.default_rng(0)
sentences = [" ".join(random.choice(part) for part in (WHO, DOES, WHAT)) for _ in range(1000)]
config = TrainConfig(output="softmax", hidden_size=30, learning_rate=1.0, clip=1.0, chunk_length=40, max_epochs=5)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "sentences.txt")
    path.write_text("\n".join(sentences))
    text = data.load(f"words:{path}")
    model = train(Run.create(Path(folder, "run"), config, DataRecord.of(text), {}), text).model

prime = text.encode("the cat never finds the mouse\nmy")
samples = generate(model, length=10, num=3, key=jax.random.key(0), prime=prime, end_token=text.end_token)
print("\n\n".join(text.decode([*prime, *sample]) for sample in samples))
