"""What is read from a study's folder, and what is refused there."""

import msgspec
import pytest
from report_folders import study_folder

from longspan.errors import InputError
from longspan.reporting.study_report import read_study_result, trial_runs


def test_folders_that_are_no_slots_are_left_alone(tmp_path):
    folder = study_folder(tmp_path / "study")
    (folder / "trials" / "slot-0001").rename(folder / "trials" / "slot-old")
    assert sorted(trial_runs(folder)) == [0, 2, 3]


def test_a_result_whose_winner_is_no_slot_is_one_clear_line(tmp_path):
    file = study_folder(tmp_path / "study") / "result.json"
    file.write_bytes(msgspec.json.encode(msgspec.json.decode(file.read_bytes()) | {"winner": 9}))
    with pytest.raises(InputError, match=r"result\.json contradicts itself: slot 9 of study tiny cannot have won"):
        read_study_result(tmp_path / "study")
