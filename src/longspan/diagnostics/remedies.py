"""Remedies as commands to paste, and what each brought where this project measured it."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec

from longspan import recipes
from longspan.config import TrainConfig, as_dict
from longspan.data.dataset import TargetKind
from longspan.errors import InputError, to_paste
from longspan.metrics import setting
from longspan.training.runs import Run


class Brought(msgspec.Struct, frozen=True):
    """What a remedy brought on runs into which a fault had been injected: paired, same data, seed and other settings.

    Attributes:
        runs: number of runs that were trained again with the remedy.
        better: how many of them reached a better validation score.
        gain: median gain in validation log-likelihood, nats per step.
    """

    runs: int
    better: int
    gain: float


class Remedy(msgspec.Struct, frozen=True):
    """Something to do about a finding.

    Attributes:
        what: a phrase that says what the command changes.
        command: to paste, into a shell or into Python.
        settings: the settings that it changes; empty if it changes none.
        brought: what it brought; None where that was not measured.
    """

    what: str
    command: str
    settings: dict[str, Any] = {}
    brought: Brought | None = None


def measured() -> dict[str, Brought]:
    """What remedies brought, by the name of the finding they belong to; made by `python -m benchmarks.diagnosis`."""
    file = resources.files("longspan.diagnostics").joinpath("brought.json")
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Brought]) if file.is_file() else {}


class Prescriber:
    """Writes commands that repeat a run with other settings; its names may be anybody's, and are quoted.

    Args:
        run: the run to be repeated.
        kind: what it predicts.
        in_python: whether the run has parts or data that only Python can hand in.
    """

    def __init__(self, run: Run, kind: TargetKind, *, in_python: bool):
        self.run = run
        self.kind: TargetKind = kind
        self.in_python = in_python or bool(run.handed_in)

    def train(self, what: str, **changes: Any) -> Remedy:
        """Train again with some settings changed."""
        own = {**self._own_settings(), **changes}
        recipe = self.run.config.recipe
        if self.in_python:
            given = "".join(f", {name}={name}" for name in self.run.handed_in)
            arguments = "".join(f", {name}={value!r}" for name, value in own.items())
            return Remedy(what, f"longspan.train({_literal(recipe)}, data{given}{arguments})", changes)
        flags = [word for name, value in own.items() for word in (f"--{name.replace('_', '-')}", setting(value))]
        return Remedy(what, to_paste("train", recipe, "--data", self.run.config.data, *flags), changes)

    def resume(self, what: str, max_epochs: int) -> Remedy:
        """Continue the run for more epochs."""
        changes = {"max_epochs": max_epochs}
        if self.in_python:
            return self.train(what, **changes)
        return Remedy(what, to_paste("resume", self.run.path, "--max-epochs", str(max_epochs)), changes)

    def _own_settings(self) -> Mapping[str, Any]:
        """Settings of the run that differ from what its recipe ships for its data."""
        config = self.run.config
        try:
            shipped = recipes.settings(config.recipe, config.data, self.kind)
        except InputError:  # a config of the user's own
            shipped = TrainConfig()
        usual = as_dict(shipped)
        return {
            name: value
            for name, value in as_dict(config).items()
            if value != usual[name] and name not in ("recipe", "data")
        }


def _literal(text: str) -> str:
    """A text as Python writes it, in double quotes."""
    return msgspec.json.encode(text).decode()
