"""docs/extending.md shows the parts that the tests train with, word for word, and its own examples run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "tests" / "outside" / "own_parts.py").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
MOST_LINES = 30


@pytest.mark.parametrize("part", ["cell", "output", "optimizer", "data"])
def test_the_guide_shows_each_part_as_it_is_tested_and_it_is_short(part):
    (marked,) = re.findall(rf"# begin {part}\n(.*?)# end {part}", SOURCE, re.DOTALL)
    assert marked.strip("\n") + "\n" in BLOCKS
    assert len(marked.strip("\n").splitlines()) < MOST_LINES


def test_the_guide_shows_the_imports_of_the_parts():
    imports = SOURCE.partition("import jax")[2].partition("# begin")[0]
    assert "import jax" + imports.rstrip("\n") + "\n" in BLOCKS


def test_the_examples_of_training_run_and_give_the_same_scores_again(tmp_path):
    named, handed_in = (block for block in BLOCKS if "longspan.train(" in block)
    checks = (
        "assert again.evaluate('test') == trained.evaluate('test')\n",
        "assert longspan.open_run(path, model=model, data=data).evaluate('test') == trained.evaluate('test')\n",
    )
    for block, check in zip((named, handed_in), checks, strict=True):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "outside")}
        ran = subprocess.run(
            [sys.executable, "-c", block + check], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
