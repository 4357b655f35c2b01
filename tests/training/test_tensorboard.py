"""TensorBoard event files hold the figures of every epoch, read back record by record as TensorBoard does."""

import struct
import sys
from pathlib import Path

import pytest

from longspan.errors import InputError
from longspan.training.listeners import TensorBoardListener
from longspan.training.runs import Run
from tests.support.catalog import tiny_config, tiny_music


def make_run(path: Path) -> Run:
    return Run.create(path, tiny_config(), tiny_music().record, {})


def read_scalars(folder: Path) -> dict[tuple[str, int], float]:
    """The scalars of all event files: records of a length, its checksum, an event and its checksum."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    scalars = {}
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event = event_pb2.Event.FromString(content[12 : 12 + length])
            scalars |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
            content = content[16 + length :]
    return scalars


def test_every_figure_of_an_epoch_is_there(tmp_path):
    pytest.importorskip("tensorboardX")
    run = make_run(tmp_path / "run")
    listener = TensorBoardListener(run)
    listener.on_epoch({"epoch": 1, "valid_log_likelihood": -9.5, "best": True}, 2.0)
    listener.on_epoch({"epoch": 2, "valid_log_likelihood": -9.25, "best": False}, 3.0)
    listener.writer.close()
    assert read_scalars(run.path / "tensorboard") == {
        ("valid_log_likelihood", 1): -9.5,
        ("valid_log_likelihood", 2): -9.25,
        ("seconds", 1): 2.0,
        ("seconds", 2): 3.0,
    }


def test_without_the_extra_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(InputError, match=r"pip install 'longspan\[tensorboard\]'"):
        TensorBoardListener(make_run(tmp_path / "run"))
