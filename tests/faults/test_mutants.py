"""Whatever is wrong with a file, its reader raises `InputError` and nothing else, or gives what can be used.

Each format has a control: of the same mutants, the library underneath refuses some with several types of exception or
lets them pass, so the readers do have something to translate.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from longspan.data.archive import read_set
from longspan.data.music_folder import gather_music
from longspan.errors import InputError
from tests.faults.formats import FORMATS, Format, songs
from tests.faults.mutants import mutants

SHORT, LONG = 300, 6_000


def outcomes(form: Format, folder: Path, count: int, seed: int = 0) -> list[str]:
    """`accepted`, `refused` or the type of another exception, of each mutant."""
    content = form.content(folder)
    path = folder / "read" / form.path
    path.parent.mkdir(parents=True)
    found = []
    for mutant in mutants(content, count, seed):
        path.write_bytes(mutant)
        try:
            form.read(path)
            found.append("accepted")
        except InputError as error:
            found.append("refused" if str(error).isprintable() else f"not one line: {error}")
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("time", ["-1", "-1e308", "1e300", "inf", "nan"])
def test_a_score_with_impossible_times_is_left_out_and_the_others_are_read(tmp_path, time):
    """Backed up beyond the beginning, a note had an index from the end of the roll, or none that exists."""
    note = "<note><pitch><step>{}</step><octave>4</octave></pitch><duration>1</duration></note>"
    around = "<score-partwise><part id='P'><measure>{}</measure></part></score-partwise>"
    for number, steps in enumerate(("CDEF", "CEGB", "AFDB", "GGAB")):
        (tmp_path / f"good{number}.xml").write_text(around.format("".join(map(note.format, steps))))
    forward = f"<forward><duration>{time}</duration></forward>"
    (tmp_path / "bad.xml").write_text(around.format(note.format("C") + 2 * forward + note.format("D")))
    found = gather_music(tmp_path, name="x")
    assert [each.file for each in found.skipped] == ["bad.xml"]
    assert "bar 1 goes to" in found.skipped[0].reason or "before its beginning" in found.skipped[0].reason


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_refused_with_one_type_of_exception(name, tmp_path):
    found = outcomes(FORMATS[name], tmp_path, SHORT // FORMATS[name].rarity)
    assert set(found) <= {"accepted", "refused"}
    assert found.count("refused") > len(found) / 20


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_files_are_refused_with_one_type_of_exception(name, tmp_path):
    assert set(outcomes(FORMATS[name], tmp_path, LONG // FORMATS[name].rarity)) <= {"accepted", "refused"}


@pytest.mark.parametrize("name", FORMATS)
def test_control_the_library_underneath_raises_other_exceptions(name, tmp_path):
    form = FORMATS[name]
    types = set()
    for mutant in mutants(form.content(tmp_path), SHORT):
        try:
            with warnings.catch_warnings(action="ignore"):
                form.control(mutant)
        except Exception as error:
            types.add(type(error))
    assert InputError not in types
    assert len(types) >= form.types, types


def test_an_undamaged_file_of_every_format_is_accepted(tmp_path):
    """The control of the control: readers that refuse everything would pass all of the above."""
    for number, form in enumerate(FORMATS.values()):
        folder = tmp_path / str(number)
        path = folder / "read" / form.path
        path.parent.mkdir(parents=True)
        path.write_bytes(form.content(folder))
        form.read(path)


METADATA = {"format": 1, "kind": "music"}


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"frames_per_beat": 0}, "frames_per_beat must be from 1 to 96, got 0"),
        ({"frames_per_beat": -3}, "frames_per_beat must be from 1 to 96, got -3"),
        ({"frames_per_beat": 1e999}, "Invalid|damaged|JSON"),
        ({"octave_shift": 5000}, "octave_shift must be from -10 to 10, got 5000"),
        ({"remarks": [[[]]]}, "damaged data set"),
        ({"kind": "text", "vocabulary": ["a"], "end_token": -1}, "no such unit or end token"),
    ],
)
def test_sizes_in_the_metadata_of_a_set_are_checked(tmp_path, metadata, reason):
    path = tmp_path / "a.npz"
    np.savez(path, *songs(3), metadata=np.array(json.dumps(METADATA | metadata)))
    with pytest.raises(InputError, match=reason):
        read_set(path, "x")


@pytest.mark.parametrize("lengths", [[2**62] * 4 + [12], [2**63 + 6, 2**63 + 6], [-4, 16], [0, 12], []])
def test_lengths_that_add_up_only_by_overflow_are_refused(tmp_path, lengths):
    song, dtype = np.ones((12, 88), np.uint8), np.uint64 if max(lengths, default=0) > 2**63 else np.int64
    arrays = {"train": song, "train_lengths": np.array(lengths, dtype)}
    if lengths[:1] in ([2**62], [2**63 + 6]):  # the control: NumPy's sum is what it should be
        assert arrays["train_lengths"].sum() == 12
    for split in ("valid", "test"):
        arrays |= {split: song, f"{split}_lengths": np.array([12])}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match="do not add up"):
        read_set(tmp_path / "a.npz", "x")


@pytest.mark.parametrize("lengths", [[2**62] * 4 + [120], [2**64 - 10, 60, 70], [2**63, 2**63, 120]])
def test_lengths_of_own_sequences_that_add_up_only_by_overflow_are_refused(tmp_path, lengths):
    array = np.array(lengths, np.uint64 if max(lengths) > 2**62 else np.int64)
    assert array.sum() == 120  # the control
    np.savez(tmp_path / "a.npz", inputs=np.random.default_rng(0).random((120, 2)), lengths=array)
    with pytest.raises(InputError, match="do not fit its inputs"):
        read_set(tmp_path / "a.npz", "x")
