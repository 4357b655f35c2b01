"""Words a second of `longspan train sgd+c --data ptb-words --dropout 0`: 200 units, 30 classes, one stream.

Mikolov's rnnlm 0.4b trains 11,000 words a second on a machine where PyTorch takes 10.3 ms for the step of batch 1 and
200 units; that step is timed in the same rounds, to tell what rnnlm would do here.
"""

import dataclasses

from longspan import data as data_room
from longspan import recipes

from . import ours
from .contest import seconds_per_update
from .training_step import contestants

RNNLM_WORDS, PYTORCH_SECONDS = 11_000, 10.3e-3


def measure() -> dict:
    """Words a second, ours and rnnlm's scaled to this machine."""
    config = dataclasses.replace(recipes.settings("sgd+c", "ptb-words"), dropout=0.0)  # rnnlm has none
    data = data_room.load("ptb-words")
    seconds = seconds_per_update(
        {
            "longspan": ours.training(config, data),
            "PyTorch step": contestants(1, 200, characters=False)["PyTorch eager"],
        },
        rounds=15,
    )
    ours_a_second = config.chunk_length / seconds["longspan"]
    rnnlm = RNNLM_WORDS * PYTORCH_SECONDS / seconds["PyTorch step"]
    return {
        "words_per_second": ours_a_second,
        "rnnlm_words_per_second_scaled": rnnlm,
        "ratio": ours_a_second / rnnlm,
        "seconds": seconds,
    }


def table(figures: dict) -> list[list[str]]:
    """Words a second."""
    return [
        ["longspan words/s", "rnnlm words/s, scaled", "ratio"],
        [
            f"{figures['words_per_second']:,.0f}",
            f"{figures['rnnlm_words_per_second_scaled']:,.0f}",
            f"{figures['ratio']:.1f}x",
        ],
    ]
