"""Damage to checkpoints, weights, studies and operands of native operations, each with what must come of it."""

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
from safetensors.numpy import load_file

from longspan.errors import InputError
from longspan.search import storage
from longspan.search.result import StudyFolder
from longspan.search.study import open_study
from longspan.training.runs import Run
from longspan.training.seals import newest_checkpoint
from longspan.training.state import Progress
from tests.faults.mutants import mutants

FOLDER = Path(__file__).parents[1] / "training" / "folders" / "format-2"
"""A run folder with a checkpoint, kept as it was written."""


def wrong_checkpoints(folder: Path, count: int, seed: int, *, verified: bool = True) -> list[str]:
    """Of so many damaged checkpoints, those that were loaded with other arrays than were saved, or not refused in a
    line."""
    run = Path(shutil.copytree(FOLDER, folder / f"checkpoints-{seed}-{verified}", dirs_exist_ok=True))
    (newest,) = (run / "checkpoints").iterdir()
    whole = newest_checkpoint(newest.parent, Progress)
    assert whole is not None
    saved = {name: array.tobytes() for name, array in whole.arrays.items()}
    names = ("arrays.safetensors", "progress.json", "manifest.json")
    contents = {name: (newest / name).read_bytes() for name in names}
    wrong = []
    for number in range(count):
        name = names[(seed + number) % 3]
        (mutant,) = mutants(contents[name], 1, seed + number)
        (newest / name).write_bytes(mutant)
        found = _loaded(newest, verified=verified)
        if isinstance(found, str) or (found is not None and found != (saved, whole.progress)):
            wrong.append(found if isinstance(found, str) else f"{name} of seed {seed + number} was loaded")
        (newest / name).write_bytes(contents[name])
    return wrong


def _loaded(checkpoint: Path, *, verified: bool):
    """What a checkpoint gives; None if it is refused, a text if it is refused in another way than it should be."""
    try:
        if not verified:  # a damaged manifest does no harm to whoever does not read it
            found = load_file(checkpoint / "arrays.safetensors")
            progress = msgspec.json.decode((checkpoint / "progress.json").read_bytes(), type=Progress)
            return {name: array.tobytes() for name, array in found.items()}, progress
        found = newest_checkpoint(checkpoint.parent, Progress)
    except InputError:
        return None
    except Exception as error:
        return None if not verified else f"{type(error).__name__}: {error}"
    return None if found is None else ({name: array.tobytes() for name, array in found.arrays.items()}, found.progress)


def wrong_weights(folder: Path, count: int, seed: int, *, verified: bool = True) -> list[str]:
    """Of so many damaged files of weights, those that were loaded as other weights or not refused in a line."""
    run = Run.open(Path(shutil.copytree(FOLDER, folder / f"weights-{seed}-{verified}", dirs_exist_ok=True)))
    file = run.path / "model.safetensors"
    content, saved = file.read_bytes(), {name: array.tobytes() for name, array in run.read_model().items()}
    read = run.read_model if verified else lambda: load_file(file)
    wrong = []
    for number, mutant in enumerate(mutants(content, count, seed)):
        file.write_bytes(mutant)
        try:
            if {name: array.tobytes() for name, array in read().items()} != saved:
                wrong.append(f"mutant {number} of seed {seed} was loaded")
        except InputError:
            pass  # refused, as it should be
        except Exception as error:
            if verified:
                wrong.append(f"{type(error).__name__}: {error}")
    return wrong


def wrong_studies(study: Path, folder: Path, count: int, seed: int) -> list[str]:
    """Of so many torn or damaged storages and results of a study, those that were not refused in a line.

    A database with a damaged page may still be opened and even read; what counts is that nothing but `InputError`
    comes of it where it is not.
    """
    wrong = []
    for number in range(count):
        copy = Path(shutil.copytree(study, folder / f"study-{seed + number}"))
        name = ("study.db", "result.json")[number % 2]
        (mutant,) = mutants((copy / name).read_bytes(), 1, seed + number)
        (copy / name).write_bytes(mutant)
        try:
            StudyFolder.read(copy)
            with storage.explain_outage(storage.default_url(copy)):  # as everything that works on a study does
                open_study(storage.default_url(copy), None).slots()
        except InputError as error:
            if not str(error).isprintable():
                wrong.append(f"{name} of seed {seed + number}: not one line: {error}")
        except Exception as error:
            wrong.append(f"{name} of seed {seed + number}: {type(error).__name__}: {error}")
        shutil.rmtree(copy)
    return wrong


def unexplained_studies(study: Path, folder: Path, count: int) -> list[str]:
    """The control: what SQLite and a JSON parser say of the same damage, in their own types of exceptions."""
    wrong = []
    for number in range(count):
        name = ("study.db", "result.json")[number % 2]
        (mutant,) = mutants((study / name).read_bytes(), 1, number)
        (folder / name).write_bytes(mutant)
        try:
            if name == "result.json":
                json.loads(mutant)
            else:
                with contextlib.closing(sqlite3.connect(folder / name)) as connection:
                    connection.execute("SELECT * FROM trials").fetchall()
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    return wrong


FUZZ = """
import json, sys
import numpy as np
from tests.ops import test_contracts as contracts
from longspan.errors import InputError
from longspan.ops.backend import OPERATIONS
seed, count, checked = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
random = np.random.default_rng(seed)
names = sorted(OPERATIONS)
wrong = []
for number in range(count):
    operation_name = names[random.integers(len(names))]
    operation = OPERATIONS[operation_name]
    operands, _ = contracts.operands_of(operation_name)
    name = list(operands)[random.integers(len(operands))]
    shape = tuple(int(size) for size in random.integers(0, 40, random.integers(0, 5)))
    if shape == operands[name].shape:
        continue
    operands[name] = np.resize(np.asarray(operands[name]), shape)
    options = {"activation": "tanh"} if "activation" in operation.__wrapped__.__annotations__ else {}
    try:
        (operation if checked else operation.__wrapped__)(**operands, **options)
    except InputError:
        pass
    except Exception as error:
        wrong.append(f"{operation.__name__}: {type(error).__name__}: {error}")
print(json.dumps(wrong))
"""


def wrong_operations(count: int, seed: int, *, checked: bool = True) -> list[str]:
    """Of so many calls of native operations with one operand of another shape, those that end the process or raise
    anything but `InputError`; a shape that the contract allows is computed with."""
    command = [sys.executable, "-c", FUZZ, str(seed), str(count), str(checked)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return [f"the process ended with {done.returncode}: {done.stderr.strip()[-300:]}"]
    return json.loads(done.stdout.splitlines()[-1])
