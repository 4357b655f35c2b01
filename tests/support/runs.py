"""Runs begun in a folder, and what must be the same in two of them."""

from pathlib import Path

from longspan.training.runs import Given, Run


def start(path: Path, data, config, given: Given | None = None) -> Run:
    return Run.create(path, config, data.record, {}, given)


def essence(path: Path) -> dict[str, bytes]:
    """Every file of a run whose bytes must not depend on how often it was stopped."""
    newest = max(path.glob("checkpoints/[0-9]*"))
    files = [path / "metrics.jsonl", path / "model.safetensors", *sorted(newest.iterdir())]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}
