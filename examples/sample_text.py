"""Train a small network on made-up sentences for a few seconds and let it finish one that we begin."""

import tempfile
from pathlib import Path

import numpy as np

import longspan

WHO = ["the cat", "the old dog", "a bird", "my neighbour"]
DOES = ["sees", "likes", "follows", "never finds"]
WHAT = ["the mouse", "a red ball", "the moon", "some music"]

random = np.random.default_rng(0)
sentences = [" ".join(random.choice(part) for part in (WHO, DOES, WHAT)) for _ in range(1000)]
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "sentences.txt")
    path.write_text("\n".join(sentences))
    text = longspan.load(f"words:{path}")
    trained = longspan.train(
        "sgd+c", text, run_dir=f"{folder}/run", hidden_size=30, learning_rate=1.0, clip=1.0, max_epochs=5
    )

print("\n\n".join(trained.text(10, num=3, prime="the cat never finds the mouse\nmy")))
