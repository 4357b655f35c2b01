"""A worker: claims slots one after the other, trains each as a normal run folder, records how it ended.

Killed at any moment it loses nothing but the minutes since the last checkpoint: the next worker that claims the slot
goes on with the same folder, to the same bytes.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import jax

from longspan.data.kinds import Data
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.search.claims import Claim, ClaimLost
from longspan.search.conclusion import conclude
from longspan.search.limits import Limits, TimeUp
from longspan.search.place import Place
from longspan.search.pruning import Pruned, pruning_epoch, reference_curves
from longspan.search.slots import REFERENCE_SLOTS, Outcome
from longspan.search.storage import patiently
from longspan.search.study import Study
from longspan.training.loop import Listener, train
from longspan.training.runs import DataRecord, Run
from longspan.training.setup import trained_model
from longspan.training.timing import seconds_trained

IDLE_SECONDS = 1.0
"""Between two looks for a free slot while others run the last ones and may yet die."""


def work(
    study: Study,
    data: Data,
    place: Place,
    *,
    worker: str,
    interrupted: Callable[[], bool],
    limits: Limits | None = None,
) -> Literal["finished", "interrupted"]:
    """Run slots until all are finished, here or elsewhere, or until `interrupted()`."""
    limits = limits or Limits()
    while not interrupted():
        claim = patiently(lambda: study.claim(worker), unless=interrupted)
        if claim is not None:
            _attempt(study, claim, data, place, interrupted, limits)
            jax.clear_caches()  # the next slot has other shapes
        elif all(slot.finished for slot in patiently(study.slots, unless=interrupted)):
            patiently(lambda: conclude(study, data, place), unless=interrupted)
            return "finished"
        else:
            time.sleep(IDLE_SECONDS)
    return "interrupted"


def _attempt(study: Study, claim: Claim, data, place: Place, interrupted, limits: Limits) -> None:
    try:
        with claim.kept_alive(study.definition.heartbeat_seconds):
            outcome = run_slot(study, claim, data, place, interrupted, limits)
        if outcome is None:
            _give_back(study, claim)
        else:
            patiently(lambda: study.record(claim, outcome), unless=interrupted)
    except ClaimLost:
        pass  # whoever has the slot now goes on with it
    except BaseException:
        _give_back(study, claim)
        raise


def _give_back(study: Study, claim: Claim) -> None:
    """Free the slot for the next worker; where that fails, others will notice that this one is gone."""
    from optuna.exceptions import StorageInternalError

    with suppress(ClaimLost, StorageInternalError):
        study.release(claim)


def run_slot(
    study: Study, claim: Claim, data, place: Place, interrupted: Callable[[], bool], limits: Limits
) -> Outcome | None:
    """Train the run of a claimed slot to its end; None if interrupted before."""
    config = study.definition.config_of(claim.slot)
    path = place.run_path(claim.slot)
    if not (path / "config.json").exists():
        Run.create(path, config, DataRecord.of(data), place.environment)
    run = Run.open(path)
    if run.config != config:
        raise InputError(f"{path} holds a run with other settings: remove it or name another --study-dir")
    reporter = _Reporter(run, claim, _references(study, claim.slot), limits.trial_seconds)
    if not _wait_for_lock(run, interrupted):
        return None
    with run.locked():
        try:
            reporter.judge()
            trained = train(
                run, data, listeners=[reporter], interrupted=interrupted, checkpoint_seconds=limits.checkpoint_seconds
            )
        except (Pruned, TimeUp) as stopped:
            run.set_status("interrupted", str(stopped))
            reporter.report()
            if isinstance(stopped, Pruned):
                return _outcome(run, data, "pruned", str(stopped))
            return _outcome(run, data, "done", str(stopped), limits.trial_seconds)
    reporter.report()
    if trained.status == "interrupted":
        return None
    return _outcome(run, data, trained.status, trained.reason)


class _Reporter(Listener):
    """Tells the study every validation score, and stops a slot that fell behind or has had its time."""

    def __init__(self, run: Run, claim: Claim, references: list[dict[int, float]], trial_seconds: float | None):
        self.run = run
        self.claim = claim
        self.references = references
        self.trial_seconds = trial_seconds

    def report(self) -> None:
        """Report what has not been, which after a kill may be many epochs."""
        patiently(lambda: self.claim.report(self.run.metrics()))

    def judge(self) -> None:
        """Stop the slot if it should have been, at whatever epoch: the worker that was to see it may have died."""
        metrics = self.run.metrics()
        curve = {record["epoch"]: record["valid_log_likelihood"] for record in metrics}
        epoch = pruning_epoch(curve, self.references)
        if epoch is not None:
            raise Pruned(f"below the median of the first {REFERENCE_SLOTS} slots after epoch {epoch}")
        if self.trial_seconds is None or not metrics:
            return
        if seconds_trained(self.run, "processor_seconds") >= self.trial_seconds:
            raise TimeUp(f"stopped after epoch {len(metrics)}, for a trial may take {self.trial_seconds:g} seconds")

    def on_epoch(self, record: dict, seconds: float) -> None:
        self.report()
        self.judge()


def _references(study: Study, slot: int) -> list[dict[int, float]]:
    if not study.definition.prune or slot < REFERENCE_SLOTS:
        return []
    return reference_curves(study.slots())


def _wait_for_lock(run: Run, interrupted: Callable[[], bool]) -> bool:
    """A worker that was taken for dead may still be at it; wait until it stops. False if interrupted before."""
    while not interrupted():
        try:
            with run.locked():
                return True
        except InputError:
            time.sleep(IDLE_SECONDS)
    return False


def _outcome(
    run: Run, data: Data, status: Literal["done", "diverged", "pruned"], reason: str, time_limit: float | None = None
) -> Outcome:
    metrics, seconds = run.metrics(), seconds_trained(run)
    if status != "done" or not metrics:  # what a diverged run reached before is nothing to choose it by
        return Outcome(status, reason, epochs=len(metrics), seconds=seconds)
    best = max(metrics, key=lambda record: record["valid_log_likelihood"])
    return Outcome(
        status,
        reason,
        valid_log_likelihood=best["valid_log_likelihood"] if best["exact"] else _comparable_score(run, data),
        train_log_likelihood=best["train_log_likelihood"],
        best_epoch=best["epoch"],
        epochs=len(metrics),
        seconds=seconds,
        time_limit=time_limit,
    )


def _comparable_score(run: Run, data: Data) -> float:
    """Of the best weights, by all steps: the estimate of an epoch, by some of them, may be off by more than two runs
    differ."""
    return SplitEvaluator(data, "valid").reported_log_likelihood(trained_model(run), jax.random.key(0))[0]
