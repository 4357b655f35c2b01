"""The NumPy file: it runs where there is nothing but NumPy, and agrees with the package."""

import dataclasses
import subprocess
import sys
import types
from pathlib import Path

import mido
import numpy as np
import pytest

from longspan.errors import InputError
from longspan.export.writers import export
from tests.export.conftest import BATCH, Case, make_case


def module_of(case: Case) -> types.ModuleType:
    module = types.ModuleType("exported")
    exec(export(case.portable, "numpy", "exported")["exported.py"].decode(), module.__dict__)
    return module


def test_likelihoods_agree(case: Case):
    model = module_of(case).load()
    for lane in range(BATCH):
        found = model.log_likelihood(case.targets[:, lane], case.inputs[:, lane])
        np.testing.assert_allclose(found, case.log_likelihood[:, lane], atol=1e-4)


def test_by_default_each_step_is_predicted_from_those_before():
    case = make_case("gru", "softmax")
    model, steps = module_of(case).load(), case.targets[:, 0]
    np.testing.assert_array_equal(model.log_likelihood(steps), model.log_likelihood(steps, [0, *steps[:-1]]))


@pytest.mark.parametrize("output", ["nade", "bernoulli"])
def test_frames_are_drawn_as_often_as_they_are_likely(output: str):
    model = module_of(make_case("leaky", output)).load()
    drawn = np.array([model.sample(1, seed=seed)[0] for seed in range(3000)])
    _, hidden = model.step(model.start(), model.first_input())
    logits, _ = model.logits_of_frame(hidden, lambda key, logit: key == 0)  # given that the lowest key is on
    lowest, next_given_lowest = 1 / (1 + np.exp(-logits[:2]))
    chance = lowest * (1 - next_given_lowest)
    found = np.mean(drawn[:, 0] * (1 - drawn[:, 1]))
    assert abs(found - chance) < 4 * np.sqrt(chance * (1 - chance) / len(drawn))


def test_symbols_are_drawn_as_often_as_they_are_likely():
    model = module_of(make_case("gru", "softmax")).load()
    drawn = np.bincount([model.sample(1, seed=seed)[0] for seed in range(4000)], minlength=7) / 4000
    _, hidden = model.step(model.start(), model.first_input())
    np.testing.assert_allclose(drawn, np.exp(model.log_probs(hidden)), atol=0.03)


def run_file(folder: Path, case: Case, *arguments: str) -> str:
    """What the file prints, run by a Python that sees no package but NumPy."""
    (folder / "exported.py").write_bytes(export(case.portable, "numpy", "exported")["exported.py"])
    (folder / "alone").mkdir()
    (folder / "alone" / "numpy").symlink_to(Path(np.__file__).parent)
    libraries = Path(np.__file__).parent.parent / "numpy.libs"
    if libraries.exists():
        (folder / "alone" / "numpy.libs").symlink_to(libraries)
    path = f"import sys; sys.path.insert(0, {str(folder / 'alone')!r}); sys.argv = {['exported.py', *arguments]!r}; "
    code = path + f"import runpy; runpy.run_path({str(folder / 'exported.py')!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True).stdout


def test_it_runs_without_any_other_package_and_writes_midi(tmp_path: Path):
    case = make_case("leaky", "nade")
    run_file(tmp_path, case, "--length", "30", "--seed", "2", "-o", str(tmp_path / "out.mid"))
    frames = module_of(case).load().sample(30, seed=2)
    lowest = case.portable.record.octave_shift + 21
    struck = [message.note - lowest for message in mido.MidiFile(tmp_path / "out.mid") if message.type == "note_on"]
    onsets = np.diff(np.pad(frames.astype(int), ((1, 0), (0, 0))), axis=0) == 1
    assert sorted(struck) == sorted(np.nonzero(onsets)[1])


def test_text_is_printed_after_its_prime(tmp_path: Path):
    assert run_file(tmp_path, make_case("gru", "softmax"), "--length", "20", "--prime", "abc").startswith("abc")


def test_cues_are_refused_by_name():
    portable = make_case().portable
    told = portable.layers[0]._replace(arrays={**portable.layers[0].arrays, "input_weights": np.zeros((25, 9))})
    with pytest.raises(InputError, match="cues"):
        export(dataclasses.replace(portable, layers=(told,)), "numpy", "exported")


def test_numbers_are_refused_by_name():
    with pytest.raises(InputError, match="predicts numbers"):
        export(make_case("leaky", "gaussian").portable, "numpy", "exported")
