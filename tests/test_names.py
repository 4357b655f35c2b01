"""Names read from a storage never lead out of the folder they are joined to."""

import pytest

from longspan.errors import InputError
from longspan.files import check_plain_name, is_plain_name, to_plain_name
from longspan.search import machine

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "/etc/passwd",
    "a\\b",
    "a\x00b",
    "a\nb",
    "\x1b[31m",
    "~",
    "a b",
    "x" * 200,
    7,
    None,
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.usefixtures("unchecked")
def test_a_name_that_is_no_component_of_a_path_is_refused(name):
    assert not is_plain_name(name)
    with pytest.raises(InputError, match="study"):
        check_plain_name(name, "study")


@pytest.mark.parametrize("text", ["", ".hidden", "../x", "my songs", "tableau—élégie", "a/b", "x" * 500])
def test_any_text_makes_a_plain_name(text):
    assert is_plain_name(to_plain_name(text))


@pytest.mark.parametrize("absolute", [True, False])
def test_a_worker_name_from_a_storage_deletes_no_file(tmp_path, monkeypatch, absolute):
    folder = tmp_path / "workers"
    folder.mkdir()
    monkeypatch.setattr(machine, "machine_folder", lambda: folder)
    precious = tmp_path / "precious.txt"
    precious.write_text("kept")
    name = str(precious) if absolute else "../precious.txt"
    assert not machine.is_gone(name)
    machine.forget(name)
    assert precious.read_text() == "kept"


def test_an_ordinary_worker_that_died_is_noticed_and_forgotten(tmp_path, monkeypatch):
    """The control arm: the same calls do remove the file of a dead worker."""
    monkeypatch.setattr(machine, "machine_folder", lambda: tmp_path)
    (tmp_path / "host-1-ab.alive").touch()
    assert machine.is_gone("host-1-ab")
    machine.forget("host-1-ab")
    assert not (tmp_path / "host-1-ab.alive").exists()
