"""A plugin that hits the process that loads it with one fault at a chosen moment, for `longspan --plugin`.

`LONGSPAN_FAULT` says which and when, such as `kill sync 17` (at the 17th flush to disk), `ENOSPC rename 3`,
`kill evaluation 2`, `kill pretraining 1` or `kill seconds 1.5`. Two are controls: with `forget` a resumed run forgets
the state of its optimizer, which nothing but a comparison of bytes would notice, and with `forgive` errors of flushing
to disk are ignored.
"""

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable


def strike(fault: str) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    code = getattr(errno, fault)
    raise OSError(code, os.strerror(code))


def counted(call: Callable, fault: str, moment: int) -> Callable:
    """The function, struck at its call number `moment`, counted from 1."""
    calls = iter(range(1, moment + 1))

    def maybe(*arguments, **options):
        if next(calls, None) == moment:
            strike(fault)
        return call(*arguments, **options)

    return maybe


def inject(fault: str, where: str, when: str) -> None:
    if where == "sync":
        os.fsync = counted(os.fsync, fault, int(when))
    elif where == "rename":
        os.replace = os.rename = counted(os.rename, fault, int(when))  # both replace a file on Unix
    elif where == "evaluation":
        from longspan.evaluation import SplitEvaluator

        SplitEvaluator.errors = counted(SplitEvaluator.errors, fault, int(when))
    elif where == "pretraining":
        from longspan.training import loop

        loop.pretrain = struck_between_passes(loop.pretrain, fault, int(when))
    else:
        timer = threading.Timer(float(when), strike, [fault])
        timer.daemon = True
        timer.start()


def struck_between_passes(pretrain: Callable, fault: str, moment: int) -> Callable:
    def with_strikes(config, model, source, on_epoch):
        return pretrain(config, model, source, counted(on_epoch, fault, moment))

    return with_strikes


def forget_the_optimizer() -> None:
    from longspan.training.state import TrainingState

    restore = TrainingState.with_arrays

    def forgetful(self, arrays):
        fresh = self.optimizer
        state = restore(self, arrays)
        state.optimizer = fresh
        return state

    TrainingState.with_arrays = forgetful


def forgive_the_disk() -> None:
    flush = os.fsync

    def forgiving(descriptor):
        with contextlib.suppress(OSError):
            flush(descriptor)

    os.fsync = forgiving


chosen = os.environ.get("LONGSPAN_FAULT", "").split()
if chosen == ["forget"]:
    forget_the_optimizer()
elif chosen == ["forgive"]:
    forgive_the_disk()
elif chosen:
    inject(*chosen)
