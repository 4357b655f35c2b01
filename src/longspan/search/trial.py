"""One slot as a normal run: trained to its end, compared with others, and, for the winner, scored on the test split.

A worker killed at any moment loses only the time since the last checkpoint: the next worker that claims the slot
continues the same folder, to the same bytes. The winner is chosen on validation scores; only then is anything scored on
the test split.

Pruning does not depend on the speed of workers. The usual rule compares a trial with whatever other trials have
reported by then, so the same study ends differently with a different number of workers. Here every slot is compared
with the first few slots, which always run to their end before the others start: whether and when a slot is pruned
depends on validation curves alone.
"""

import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Literal

import jax
import msgspec
from sqlalchemy.exc import SQLAlchemyError

from longspan.config import as_dict
from longspan.data.dataset import Dataset
from longspan.errors import InputError
from longspan.evaluation import Scores, SplitEvaluator
from longspan.files import NameTaken, explain_disk_errors, try_file_lock, write_atomic
from longspan.runtime import EnvironmentChanged, environment_changes, return_memory
from longspan.search.artifacts import unpack
from longspan.search.result import StudyResult, Tested, Trial, kept_result, run_path, winner_of
from longspan.search.slots import REFERENCE_SLOTS, Outcome, Slot
from longspan.search.space import changes
from longspan.search.storage import outages, patiently, reason_of
from longspan.search.study import Claim, ClaimLost, Study
from longspan.search.worker import IDLE_SECONDS, Limits, Place
from longspan.training.listeners import Listener
from longspan.training.loop import train
from longspan.training.runs import Run, RunIsBusy
from longspan.training.seals import newest_checkpoint_number
from longspan.training.setup import OutOfMemory, trained_model
from longspan.training.timing import seconds_trained, typical_epoch_seconds

WARM_UP_EPOCHS = 4
"""Number of first epochs in which nothing is pruned, because they say little."""


PROGRAMS_KEPT_FOR = 4
"""Slots after which a worker forgets its compiled programs: later slots of the same shapes use them again, but those of
slots with shapes of their own add up."""

_ATTEMPTS = itertools.count()


class Pruned(Exception):
    """The slot fell behind the reference slots."""


class NotKept(UserWarning):
    """A checkpoint could not be kept for other machines."""


class TimeUp(Exception):
    """A slot reached the time limit of a trial; its best score so far counts."""


def attempt(
    study: Study,
    claim: Claim,
    data: Dataset,
    place: Place,
    interrupted: Callable[[], bool],
    limits: Limits,
    details: Callable[[Run, Outcome], dict] | None = None,
) -> None:
    """Run a claimed slot and record its outcome; if interrupted or stopped by an error, release it.

    `details` computes what the study keeps of a slot besides its outcome.
    """
    if (before := next(_ATTEMPTS)) and before % PROGRAMS_KEPT_FOR == 0:
        jax.clear_caches()
        return_memory()
    try:
        with claim.kept_alive(study.definition.heartbeat_seconds):
            outcome = run_slot(study, claim, data, place, interrupted, limits)
            run = Run.open(run_path(place.folder, claim.slot))
            kept = details(run, outcome) if outcome is not None and details is not None else None
        if outcome is None:
            _give_back(study, claim)
        else:
            patiently(lambda: study.record(claim, outcome, kept), unless=interrupted)
            patiently(lambda: _forget_losers(study, claim.slot, place), unless=interrupted)
    except ClaimLost:
        pass  # the worker that has the slot now continues it
    except OutOfMemory as error:  # counts like a worker's death; this worker continues with the next slot
        reason = str(error)
        patiently(lambda: study.fail(claim, reason), unless=interrupted)
    except BaseException:
        _give_back(study, claim)
        raise


def _give_back(study: Study, claim: Claim) -> None:
    """Release the slot for the next worker; if that fails, others will notice that this worker is gone."""
    with suppress(ClaimLost, *outages()):
        study.release(claim)


def run_slot(
    study: Study, claim: Claim, data, place: Place, interrupted: Callable[[], bool], limits: Limits
) -> Outcome | None:
    """Train the run of a claimed slot to its end; None if interrupted."""
    run = _opened(study, claim, data, place)
    reporter = _Reporter(study, run, claim, place, limits)
    with _locked(run, interrupted) as mine:
        if not mine:
            return None
        patiently(claim.check, unless=interrupted)  # while it waited, others may have finished the slot
        _start_anew_elsewhere(run, claim, place)
        patiently(
            lambda: claim.note("from_step", newest_checkpoint_number(run.path / "checkpoints")), unless=interrupted
        )
        try:
            reporter.judge()
            trained = train(
                run, data, listeners=[reporter], interrupted=interrupted, checkpoint_seconds=limits.checkpoint_seconds
            )
        except (Pruned, TimeUp) as stopped:
            run.set_status("interrupted", str(stopped))
            reporter.report()
            reporter.keep_last()
            if isinstance(stopped, Pruned):
                return _outcome(run, data, "pruned", str(stopped))
            return _outcome(run, data, "done", str(stopped), limits.trial_seconds)
        reporter.report()
        reporter.keep_last()
    if trained.status == "interrupted":
        return None
    return _outcome(run, data, trained.status, trained.reason)


def _opened(study: Study, claim: Claim, data: Dataset, place: Place) -> Run:
    """The run of a claimed slot, new or as others left it."""
    config, path = study.definition.config_of(claim.slot), run_path(place.folder, claim.slot)
    _fetch_newer(claim.slot, place, claim)
    if not (path / "config.json").exists():
        with suppress(NameTaken):  # by a worker that was considered dead, but still works on the slot
            Run.create(path, config, data.record, place.environment)
    run = Run.open(path)
    if run.config != config:
        raise InputError(
            f"{path} holds a run with other settings: remove it or name another study_dir", fields=["study_dir"]
        )
    return run


def _fetch_newer(slot: int, place: Place, claim: Claim | None = None) -> None:
    """Fetch what other machines trained of a slot, unless more of it is here or it was trained where bytes differ."""
    packed = None if place.artifacts is None else place.artifacts.fetch(slot)
    path = run_path(place.folder, slot)
    if packed is None or (
        (path / "config.json").exists() and newest_checkpoint_number(path / "checkpoints") >= packed.step
    ):
        return
    differences, _ = environment_changes(packed.environment, place.environment)
    if claim is not None and differences:
        _say_that_it_starts_anew(claim, differences)
        return
    with _locked(Run.open(path)) if (path / "config.json").exists() else nullcontext():
        unpack(packed, path)


def _forget_losers(study: Study, slot: int, place: Place) -> None:
    """Remove what is kept of finished slots, except of those that will be scored: the best one so far, at most."""
    if place.artifacts is None or study.definition.tested == "every":
        return
    best, *others = [leader.number for leader in study.leaders()] or [None]
    for loser in {slot, *others} - ({best} if study.definition.tested == "winner" else set()):
        place.artifacts.forget(loser)


class _Reporter(Listener):
    """Reports every validation score to the study, and stops a slot that fell behind or reached its time limit."""

    def __init__(self, study: Study, run: Run, claim: Claim, place: Place, limits: Limits):
        self.url = study.url
        self.run = run
        self.claim = claim
        self.references = _references(study, claim.slot)
        self.trial_seconds = limits.trial_seconds
        self.artifacts = place.artifacts
        self.keep_seconds = limits.checkpoint_seconds
        self.kept = newest_checkpoint_number(run.path / "checkpoints")
        self.kept_at = time.monotonic()

    def report(self) -> None:
        """Report the epochs not yet reported, which may be many after the worker was killed."""
        patiently(lambda: self.claim.report(self.run.metrics()))

    def judge(self) -> None:
        """Stop the slot if it should stop now or should have stopped earlier, when its worker may have died."""
        metrics = self.run.metrics()
        curve = {record["epoch"]: record["valid_log_likelihood"] for record in metrics}
        epoch = pruning_epoch(curve, self.references)
        if epoch is not None:
            raise Pruned(f"below the median of the first {REFERENCE_SLOTS} slots after epoch {epoch}")
        if self.trial_seconds is None or not metrics:
            return
        if seconds_trained(self.run, "processor_seconds") >= self.trial_seconds:
            raise TimeUp(f"stopped after epoch {len(metrics)}, because a trial may take {self.trial_seconds:g} seconds")

    def on_block(self, progress, info, count: int, total: int) -> None:
        self.keep_if_due()

    def on_epoch(self, record: dict, seconds: float) -> None:
        self.report()
        self.judge()
        self.keep_if_due()

    def keep_if_due(self) -> None:
        """Keep the newest checkpoint for other machines, as often as checkpoints are written at least."""
        if self.artifacts is not None and time.monotonic() - self.kept_at > self.keep_seconds:
            self.keep()

    def keep_last(self) -> None:
        """Keep the run as it ended, so that it can be scored or continued anywhere."""
        self.kept = -1
        self.keep()

    def keep(self) -> None:
        """Keep the newest checkpoint for other machines if it is new and there is a place to keep it."""
        self.kept_at = time.monotonic()
        newest = newest_checkpoint_number(self.run.path / "checkpoints")
        if self.artifacts is None or newest == self.kept:
            return
        try:
            self.artifacts.save(self.claim, self.run)
            self.kept = newest
        except (OSError, SQLAlchemyError, InputError) as error:
            reason = str(error) if isinstance(error, InputError) else reason_of(error, self.url)
            warnings.warn(NotKept(f"slot {self.claim.slot} is not kept for other machines: {reason}"), stacklevel=2)


def _references(study: Study, slot: int) -> list[dict[int, float]]:
    if not study.definition.prune or slot < REFERENCE_SLOTS:
        return []
    return reference_curves(study.slots(REFERENCE_SLOTS))


def _start_anew_elsewhere(run: Run, claim: Claim, place: Place) -> None:
    """Forget what was trained in an environment that rounds differently; a slot's bytes must be of one environment."""
    differences, _ = environment_changes(run.environment(), place.environment)
    if differences:
        run.start_anew(place.environment)
        _say_that_it_starts_anew(claim, differences)


def _say_that_it_starts_anew(claim: Claim, differences: list[str]) -> None:
    claim.note("started_anew", "; ".join(differences))
    warnings.warn(EnvironmentChanged(f"slot {claim.slot} starts anew: {'; '.join(differences)}"), stacklevel=2)


@contextmanager
def _locked(run: Run, interrupted: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Lock a run, after waiting for a worker that was considered dead but still trains it; False if interrupted."""
    with ExitStack() as held:
        while not interrupted():
            try:
                held.enter_context(run.locked())
            except RunIsBusy:
                time.sleep(IDLE_SECONDS)
            else:
                yield True
                return
        yield False


def _outcome(
    run: Run, data: Dataset, status: Literal["done", "diverged", "pruned"], reason: str, time_limit: float | None = None
) -> Outcome:
    metrics, seconds = run.metrics(), seconds_trained(run)
    if status != "done" or not metrics:  # scores that a run reached before it diverged do not count
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


def _comparable_score(run: Run, data: Dataset) -> float:
    """The validation score of the best weights over all steps.

    The estimate after an epoch covers only some steps, so its error may exceed the difference between two runs.
    """
    return SplitEvaluator(data, "valid").reported_log_likelihood(trained_model(run), jax.random.key(0))[0]


def pruning_epoch(curve: dict[int, float], references: list[dict[int, float]]) -> int | None:
    """The first epoch after which the best score so far is below the median of the references; None if there is none.

    A reference that has ended by then counts with its best score.
    """
    epochs = sorted(curve)
    bests = itertools.accumulate((curve[epoch] for epoch in epochs), max)
    for epoch, best in zip(epochs, bests, strict=True):
        if epoch <= WARM_UP_EPOCHS:
            continue
        reached = ([score for at, score in rival.items() if at <= epoch] for rival in references)
        rivals = [max(scores) for scores in reached if scores]
        if rivals and best < statistics.median(rivals):
            return epoch
    return None


def reference_curves(slots: list[Slot]) -> list[dict[int, float]]:
    """The curves that slots are compared with: those of reference slots that did not diverge."""
    return [slot.curve for slot in slots[:REFERENCE_SLOTS] if slot.status == "done"]


def conclude(study: Study, data: Dataset, place: Place) -> None:
    """Write the result of a finished study, here too if another machine has written it.

    It is left to another one if the winner's run is not on this one.
    """
    with explain_disk_errors(place.folder):
        place.folder.mkdir(parents=True, exist_ok=True)
    with try_file_lock(place.folder / ".conclusion.lock") as mine:
        if not mine:
            return
        known = kept_result(study) if study.concluded else None
        result = known or _result(study, study.slots(), data, place)
        if result is not None:
            write_atomic(place.folder / "result.json", msgspec.json.format(msgspec.json.encode(result), indent=2))
        if result is not None and known is None:
            study.set_result(msgspec.to_builtins(result))


def _result(study: Study, slots: list[Slot], data, place: Place) -> StudyResult | None:
    definition = study.definition
    winner = winner_of(slots)
    to_test = {winner.number} if winner else set()
    if definition.tested == "every":
        to_test = {slot.number for slot in slots if slot.status == "done"}
    tested = _known(study)
    for number in to_test - tested.keys():
        if not (run_path(place.folder, number) / "model.safetensors").exists():
            _fetch_newer(number, place)
        if not (run_path(place.folder, number) / "model.safetensors").exists():
            return None
        tested[number] = _test(Run.open(run_path(place.folder, number)), data)
    trials = [
        Trial(
            slot.number,
            changes(definition.base, definition.config_of(slot.number)),
            slot.outcome,
            tested.get(slot.number) if slot.number in to_test else None,
        )
        for slot in slots
        if slot.outcome is not None
    ]
    return StudyResult(
        study=definition.name,
        identity=definition.identity,
        recipe=definition.base.recipe,
        data=definition.base.data,
        slots=len(slots),
        winner=winner.number if winner else None,
        settings=as_dict(definition.config_of(winner.number)) if winner else {},
        trials=trials,
        environment=place.environment,
    )


def _known(study: Study) -> dict[int, Tested]:
    """Test scores from an earlier result with fewer slots: a split is not scored twice with the same weights."""
    earlier = kept_result(study)
    if earlier is None:
        return {}
    return {trial.slot: trial.tested for trial in earlier.trials if trial.tested is not None}


def _test(run: Run, data: Dataset) -> Tested:
    model = trained_model(run)
    test = SplitEvaluator(data, "test").scores(model)
    training = SplitEvaluator(data, "train")
    # The paper reports no accuracy on the training split, and sampling ten frames for each of its frames would take
    # longer than the rest.
    train = Scores(training.log_likelihood(model)) if "accuracy" in data.metrics else training.scores(model)
    with _locked(run):
        run.write_result({"test": msgspec.to_builtins(test)})
    seconds = typical_epoch_seconds(run)
    return Tested(
        train=_figures(train),
        test=_figures(test),
        frames_per_second=None if seconds is None else round(data.steps_of_epoch() / seconds, 1),
    )


def _figures(scores: Scores) -> dict[str, float]:
    numbers = msgspec.to_builtins(scores).items()
    return {name: value for name, value in numbers if isinstance(value, float)}
