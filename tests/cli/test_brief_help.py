"""Short help: the common options in groups, and a way to all of them."""

import re

import pytest

from longspan.cli import run
from longspan.cli.brief_help import COMMON


def shown(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        run([*arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMON)
def test_it_fits_80_columns_and_little_more_than_a_screen(command: str, capsys):
    lines = shown(capsys, *command.split(), "--help").splitlines()
    assert len(lines) <= 64
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", COMMON)
def test_its_flags_are_those_of_the_command(command: str, capsys):
    brief, full = (shown(capsys, *command.split(), flag) for flag in ("--help", "--help-all"))
    flags = set(re.findall(r"^  (--[a-z-]+)", brief, re.MULTILINE))
    assert len(flags) > 10
    assert flags <= set(re.findall(r"--[a-z-]+", full))
    assert len(full) > len(brief)
    assert f"longspan {command} --help-all" in brief
    assert "longspan completion" in brief


def test_defaults_are_those_of_the_data(capsys):
    words = shown(capsys, "train", "--data", "temporal-order", "--help")
    assert "Number of recurrent units (50)" in words
