"""Make the models that come with the package: data, training, weights rounded to one byte, and their cards.

    python -m benchmarks.pretrained FOLDER [NAME ...]

Corpora, runs and whatever else is large stay in FOLDER; a run that is done is not trained again. The models are written
to `src/longspan/pretrained`. Each is trained by one command, which its card and docs/pretrained.md show; nothing but
this file chooses settings, and all choices were made on validation splits.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from safetensors.numpy import save

from longspan import __version__
from longspan.cli.train import facts_of, scores_of
from longspan.data import Dataset, import_path, load
from longspan.evaluation import SplitEvaluator
from longspan.memory import remember
from longspan.pretrained import HOME
from longspan.training.rounding import rounded
from longspan.training.runs import Run
from longspan.training.setup import trained_model

LEFT_OUT = ("checkpoints", ".lock", "timing.jsonl", "environment.json", "tensorboard", "README.md", "checksums.json")
"""What a shipped model does not need: what resuming needs, and what is said of one machine."""


@dataclass(frozen=True)
class Recipe:
    """How a model is made."""

    prepare: Callable[[Path], None]
    """Makes the data set, if it is not one that longspan knows."""
    command: str
    """The command that trains it, without the folders."""
    memory: str | None
    license: str
    """What the data are and why the weights may be passed on."""


def prepare_nothing(folder: Path) -> None:
    """The data set is built in."""
    del folder


def prepare_folk(folder: Path) -> None:
    """The dance tunes of Ryan's Mammoth Collection, from the ABC files in music21's corpus."""
    import music21

    source = Path(music21.__file__).parent / "corpus" / "ryansMammoth"
    import_path(source, name="folk", data_dir=folder / "data", replace=True)


def prepare_austen(folder: Path) -> None:
    """The six novels of Jane Austen, from Debian's package r-cran-janeaustenr."""
    packages = sorted(folder.glob("r-cran-janeaustenr*.deb"))
    if not packages:
        subprocess.run(["apt-get", "download", "r-cran-janeaustenr"], cwd=folder, check=True)
        packages = sorted(folder.glob("r-cran-janeaustenr*.deb"))
    subprocess.run(["dpkg-deb", "-x", packages[-1].name, "janeaustenr"], cwd=folder, check=True)
    stored = (folder / "janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    (folder / "austen.txt").write_text("".join(f"{line}\n" for line in lines_of_r(stored)))
    import_path(folder / "austen.txt", name="austen", data_dir=folder / "data", replace=True)


def lines_of_r(stored: bytes) -> Iterator[str]:
    """The strings of vectors that R stored one after the other, each with its length and compressed."""
    while stored:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(stored[4:])
        stored = unpacking.unused_data
        place = content.index(b"UTF-8") + 5  # the end of the header, which names the encoding
        _, count = struct.unpack(">II", content[place : place + 8])
        place += 8
        for _ in range(count):
            _, size = struct.unpack(">Ii", content[place : place + 8])
            yield content[place + 8 : place + 8 + max(size, 0)].decode()
            place += 8 + max(size, 0)


MODELS = {
    "bach": Recipe(
        prepare_nothing,
        "longspan train nade:sgd+crm --data bach",
        "recall",
        "The four-part chorales of J. S. Bach (1685-1750) in the corpus of music21, of which longspan builds its data\n"
        "set `bach`. The music is in the public domain. The encodings come with music21, whose corpus is passed on by\n"
        "permission of the encoders; the files of the chorales carry no terms of their own. The model holds no\n"
        "encoding, only statistics of the notes.",
    ),
    "folk": Recipe(
        prepare_folk,
        "longspan train nade:sgd+crm --data folk --hidden-size 150 --nade-size 150 --learning-rate 0.05 "
        "--averaging 2000 --plateau-epochs 4 --patience 16 --max-epochs 60 --threads 1",
        "recall",
        "Dance tunes of *Ryan's Mammoth Collection* (Boston, 1883), in the public domain, from the ABC files in the\n"
        "corpus of music21 (contributed by Ray Davies), which carry no terms of their own. The Essen collection,\n"
        "whose encodings are for non-commercial use, was not used. The model holds no encoding, only statistics of\n"
        "the notes.",
    ),
    "austen": Recipe(
        prepare_austen,
        "longspan train lstm/adam --data austen --hidden-size 144 --lanes 32 --chunk-length 100 --learning-rate 0.004 "
        "--learning-rate-schedule cosine --max-epochs 20 --patience 20 --threads 1",
        None,
        "The six novels of Jane Austen (1775-1817), in the public domain, as Debian's package r-cran-janeaustenr\n"
        "(MIT license) has them.",
    ),
}


def make(folder: Path, name: str, home: Path = HOME) -> None:
    """Prepare the data of a model, train it unless that was done, and write it to the package."""
    recipe = MODELS[name]
    if not (folder / "runs" / name / "result.json").exists():
        recipe.prepare(folder)
        places = ["--data-dir", str(folder / "data"), "--run-dir", str(folder / "runs" / name)]
        subprocess.run([*shlex.split(recipe.command), *places], check=True)
    target = home / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(shipped(folder / "runs" / name, folder / "shipped", load(name, folder / "data"), recipe), target)


def shipped(source: Path, folder: Path, data: Dataset, recipe: Recipe) -> Path:
    """A copy of a run with rounded weights, scored again, with a card that says what rounding cost."""
    target = folder / source.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (target / "checkpoints").mkdir()
    weights = save(rounded(Run.open(source).read_model()), {"longspan": __version__})
    (target / "model.safetensors").write_bytes(weights)
    Run.seal(target)
    run, evaluator = Run.open(target), SplitEvaluator(data, "valid")
    exact, cheap = (evaluator.log_likelihood(trained_model(each)) for each in (Run.open(source), run))
    with run.locked():
        if recipe.memory:
            remember(run, recipe.memory, trained_model(run), data)
        scores = scores_of(run, trained_model(run), data, "test")
        run.write_result({**scores, **facts_of(data), "rounding": {"exact": exact, "rounded": cheap}})
        run.write_card(notes_of(recipe, exact, cheap, len(weights)), shipped_as=source.name)
    (target / ".lock").unlink(missing_ok=True)
    (target / "checkpoints").rmdir()
    return target


def notes_of(recipe: Recipe, exact: float, cheap: float, size: int) -> str:
    """Where the data come from, how the model was trained, and what rounding cost."""
    command = " \\\n      ".join(recipe.command.replace(" --", "\n--").splitlines())
    return (
        f"## License of the data\n\n{recipe.license}\n\n## Training\n\n    {command}\n\n"
        f"Weights are rounded to int8 with one scale for each row, {size / 1000:.0f} kB in all. The log-likelihood of\n"
        f"the validation split is {exact:.4f} nats before rounding and {cheap:.4f} after it. The scores above are\n"
        "those of the rounded weights."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        make(options.folder, name)
        result = msgspec.json.decode((HOME / name / "result.json").read_bytes())
        sys.stdout.write(f"{name}: {result['rounding']}, test {result['test']}\n")


if __name__ == "__main__":
    main()
