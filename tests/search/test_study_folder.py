"""What is read from a study's folder, how often, and what is refused there."""

import msgspec
import pytest

from longspan.errors import InputError
from longspan.report import read_report
from longspan.search.result import StudyFolder
from longspan.training.runs import Run
from tests.support.report_folders import study_folder


def test_folders_that_are_no_slots_are_left_alone(tmp_path):
    folder = study_folder(tmp_path / "study")
    (folder / "trials" / "slot-0001").rename(folder / "trials" / "slot-old")
    assert sorted(StudyFolder.read(folder).slots) == [0, 2, 3]


@pytest.mark.parametrize("concluded", [True, False])
def test_the_winner_is_that_of_the_result_or_the_best_so_far_that_did_not_diverge(concluded, tmp_path):
    folder = StudyFolder.read(study_folder(tmp_path, concluded=concluded))
    assert folder.winner == 2
    assert folder.winning.run.path.name == "slot-0002"
    assert [slot.best for slot in folder.slots.values()] == [-8.9, -9.4, -8.5, None]


def test_a_result_whose_winner_is_no_slot_is_one_clear_line(tmp_path):
    file = study_folder(tmp_path / "study") / "result.json"
    file.write_bytes(msgspec.json.encode(msgspec.json.decode(file.read_bytes()) | {"winner": 9}))
    with pytest.raises(InputError, match=r"result\.json contradicts itself: slot 9 of study tiny cannot have won"):
        StudyFolder.read(tmp_path / "study")


@pytest.mark.parametrize("concluded", [True, False])
def test_a_report_opens_every_trial_once(concluded, tmp_path, monkeypatch):
    folder, opened, open_run = study_folder(tmp_path, concluded=concluded), [], Run.open

    def counting(path):
        opened.append(path.name)
        return open_run(path)

    monkeypatch.setattr(Run, "open", counting)
    assert read_report(folder).winner == 2
    assert sorted(opened) == [f"slot-{number:04d}" for number in range(4)]
