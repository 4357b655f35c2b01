"""The end of a study: the winner is chosen on validation scores, and only then is anything scored on the test split."""

import msgspec
import numpy as np

from longspan.config import as_dict
from longspan.data.kinds import Data
from longspan.data.music import MusicData
from longspan.data.tasks import EPOCH, TaskData
from longspan.evaluation import Scores, SplitEvaluator
from longspan.files import explain_disk_errors, write_atomic
from longspan.search.place import Place
from longspan.search.result import StudyResult, Tested, Trial, winner_of
from longspan.search.slots import Slot
from longspan.search.space import changes
from longspan.search.storage import try_file_lock
from longspan.search.study import Study
from longspan.training.runs import Run
from longspan.training.setup import trained_model
from longspan.training.timing import typical_epoch_seconds


def conclude(study: Study, data: Data, place: Place) -> None:
    """Write the result of a finished study; left to others where the winner's run is not on this disk."""
    with explain_disk_errors(place.folder):
        place.folder.mkdir(parents=True, exist_ok=True)
    with try_file_lock(place.folder / ".conclusion.lock") as mine:
        if not mine or study.concluded:
            return
        slots = study.slots()
        result = _result(study, slots, data, place)
        if result is not None:
            write_atomic(place.folder / "result.json", msgspec.json.format(msgspec.json.encode(result), indent=2))
            study.set_result(msgspec.to_builtins(result))


def _result(study: Study, slots: list[Slot], data, place: Place) -> StudyResult | None:
    definition = study.definition
    winner = winner_of(slots)
    to_test = {winner.number} if winner else set()
    if definition.tested == "every":
        to_test = {slot.number for slot in slots if slot.status == "done"}
    tested = _known(study)
    for number in to_test - tested.keys():
        if not (place.run_path(number) / "model.safetensors").exists():
            return None
        tested[number] = _test(Run.open(place.run_path(number)), data)
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
    """Test scores from a conclusion over fewer slots: a split is not scored twice with the same weights."""
    if study.result is None:
        return {}
    earlier = msgspec.convert(study.result, StudyResult)
    return {trial.slot: trial.tested for trial in earlier.trials if trial.tested is not None}


def _test(run: Run, data: Data) -> Tested:
    model = trained_model(run)
    test = SplitEvaluator(data, "test").scores(model)
    training = SplitEvaluator(data, "train")
    # Of training frames the paper gives no accuracy, and sampling ten frames for each would take longer than the rest.
    train = Scores(training.log_likelihood(model)) if isinstance(data, MusicData) else training.scores(model)
    run.write_result({"test": msgspec.to_builtins(test)})
    seconds = typical_epoch_seconds(run)
    return Tested(
        train=_figures(train),
        test=_figures(test),
        frames_per_second=None if seconds is None else round(_length(data) / seconds, 1),
    )


def _figures(scores: Scores) -> dict[str, float]:
    numbers = msgspec.to_builtins(scores).items()
    return {name: value for name, value in numbers if isinstance(value, float)}


def _length(data: Data) -> int:
    """Steps of an epoch."""
    if isinstance(data, TaskData):
        return EPOCH * data.span
    split = data.splits["train"]
    return sum(map(len, split)) if isinstance(data, MusicData) else len(np.asarray(split))
