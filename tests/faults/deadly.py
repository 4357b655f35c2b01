"""A plugin that kills the process which trains nine units, for `longspan search --plugin`: a slot that always dies."""

import os
import signal

from longspan.search import trial

train = trial.train


def deadly(run, *arguments, **options):
    if run.config.hidden_size == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return train(run, *arguments, **options)


trial.train = deadly
