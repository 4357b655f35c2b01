"""What a folder from somebody else could do: write or delete elsewhere, run code, or move a terminal's cursor."""

import base64
import dataclasses
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.table import Table

from longspan import files, terminal
from longspan.arms.records import SlotResult
from longspan.cli import print_json
from longspan.cli import run as command
from longspan.errors import InputError
from longspan.files import changing, is_plain_name, to_plain_name
from longspan.memory.gate import FEATURES
from longspan.memory.interface import memory_of
from longspan.playing.page import shell
from longspan.registry import child_command, load_plugin
from longspan.search import machine
from longspan.training.records import model_card
from longspan.training.runs import Run
from longspan.training.seals import Content, SealedFolder, newest_checkpoint_number
from longspan.webpage import embedded

FOLDERS = Path(__file__).parents[1] / "training" / "folders"
PRECIOUS = b"precious\n" * 20


@pytest.fixture
def run_path(tmp_path):
    return Path(shutil.copytree(FOLDERS / "format-2", tmp_path / "run"))


@pytest.fixture
def precious(tmp_path):
    (tmp_path / "precious.txt").write_bytes(PRECIOUS)
    return tmp_path / "precious.txt"


@pytest.mark.parametrize("link", ["symbolic", "hard"])
@pytest.mark.parametrize("change", ["append", "truncate"])
def test_a_line_is_never_written_to_what_a_file_of_a_run_is_linked_to(run_path, precious, link, change):
    """The checksum of nothing fits the beginning of any file, so all of it would be taken for a torn line."""
    folder, file = SealedFolder(run_path), run_path / "metrics.jsonl"
    file.unlink()
    file.symlink_to(precious) if link == "symbolic" else os.link(precious, file)
    seals = json.loads((run_path / "checksums.json").read_text())
    (run_path / "checksums.json").write_text(
        json.dumps(seals | {"metrics.jsonl": [msgspec.to_builtins(Content.of(b""))]})
    )
    folder.append("metrics.jsonl", b"{}\n") if change == "append" else folder.truncate("metrics.jsonl", 0)
    assert precious.read_bytes() == PRECIOUS
    assert file.read_bytes() == (b"{}\n" if change == "append" else b"")
    assert not file.is_symlink()


def test_control_a_plain_opening_follows_the_link(run_path, precious):
    (run_path / "timing.jsonl").unlink()
    (run_path / "timing.jsonl").symlink_to(precious)
    with (run_path / "timing.jsonl").open("ab") as file:
        file.write(b"{}\n")
    assert precious.read_bytes() != PRECIOUS


def test_a_link_to_nothing_makes_no_file_there(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with changing(tmp_path / "link", "ab") as file:
        file.write(b"x")
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "link").read_bytes() == b"x"


def test_the_other_copy_of_a_run_stays_as_it_is(run_path, tmp_path):
    """A copy by `cp -al` shares its files with the original, and a run changes some of them in place."""
    copy = Path(shutil.copytree(run_path, tmp_path / "copy", copy_function=os.link))
    before = {file.name: file.read_bytes() for file in run_path.iterdir() if file.is_file()}
    assert command(["resume", str(copy), "--max-epochs", "4", "--accept-environment", "--json"]) == 0
    assert {file.name: file.read_bytes() for file in run_path.iterdir() if file.is_file()} == before
    assert (copy / "metrics.jsonl").read_bytes() != before["metrics.jsonl"]


def test_checkpoints_that_are_a_link_are_neither_written_nor_removed(run_path, tmp_path, capsys):
    pictures = tmp_path / "pictures"
    (pictures / "2024").mkdir(parents=True)
    (pictures / ".beach.part").touch()
    shutil.rmtree(run_path / "checkpoints")
    (run_path / "checkpoints").symlink_to(pictures)
    assert command(["resume", str(run_path), "--accept-environment"]) == 2
    assert "is a link" in capsys.readouterr().err
    assert sorted(path.name for path in pictures.iterdir()) == [".beach.part", "2024"]


@pytest.mark.parametrize("name", ["²", "٠٠٠٠٠٠٠٩٩", "9" * 40, "2024"])
def test_a_folder_with_another_kind_of_name_is_no_checkpoint(run_path, name):
    run, before = Run.open(run_path), newest_checkpoint_number(run_path / "checkpoints")
    (run_path / "checkpoints" / name).mkdir()
    assert run.has_checkpoint
    assert newest_checkpoint_number(run_path / "checkpoints") == before


def test_a_pipe_in_a_run_folder_is_refused_and_not_waited_for(run_path):
    os.mkfifo(run_path / "diagnosis.json")
    with pytest.raises(InputError, match="it is no file"):
        Run.seal(run_path)


def test_code_in_the_current_folder_is_not_run_when_its_songs_are_read(tmp_path):
    """`python -m` looks into the current folder first, and songs are imported from where they were downloaded."""
    for name in ("numpy", "json", "music21"):
        (tmp_path / f"{name}.py").write_text(f"open('{name} ran', 'w')")
    (tmp_path / "tune.abc").write_text("X:1\nT:x\nM:4/4\nL:1/4\nK:C\nCDEF|\n")
    program = "from longspan.data.scores import SongReader\nfrom pathlib import Path\n"
    program += "with SongReader() as reader: print(len(reader.read(Path('tune.abc'))))"
    apart = [sys.executable, "-P", "-c", program]  # like the program `longspan`, which does not look there either
    done = subprocess.run(apart, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr
    assert not list(tmp_path.glob("* ran"))
    subprocess.run([sys.executable, "-m", "longspan.data.score_child"], cwd=tmp_path, input=b"", check=False)
    assert list(tmp_path.glob("* ran"))  # the control: without -P it is run


def test_a_process_imports_from_where_its_parent_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert child_command("json.tool") == [sys.executable, "-P", "-m", "json.tool"]
    monkeypatch.syspath_prepend("")  # as `python -m longspan` has it, whose plugins may be in the current folder
    assert child_command("json.tool") == [sys.executable, "-m", "json.tool"]


LINE = SlotResult("jsb", 0, "sgd", "done", -1.0, -1.0, 1, 1, 1, "", {}, "0" * 8, "1", "avx2")


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "\x1b[31m", "a/b", ".."])
def test_results_are_merged_under_plain_names_alone(tmp_path, capfd, name):
    shards, merged = tmp_path / "shards", tmp_path / "here" / "merged"
    shards.mkdir()
    document = msgspec.to_builtins(LINE) | {"data": name.replace("/tmp", str(tmp_path))}
    (shards / "jsb-0.jsonl").write_text(json.dumps(document) + "\n")
    assert command(["merge", str(shards), "-o", str(merged)]) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["jsb-0.jsonl"]
    (shards / "jsb-0.jsonl").write_text(json.dumps(document | {"data": "jsb"}) + "\n")
    assert command(["merge", str(shards), "-o", str(merged)]) == 0  # the control
    assert (merged / "jsb.jsonl").exists()


def test_a_definition_is_copied_from_beside_its_results_alone(tmp_path):
    shards, merged = tmp_path / "shards", tmp_path / "merged"
    (shards / "jsb-..").mkdir(parents=True)
    (tmp_path / "private.definition.json").write_text("{}")
    document = msgspec.to_builtins(LINE) | {"definition": "../../private"}
    (shards / "jsb-0.jsonl").write_text(json.dumps(document) + "\n")
    assert command(["merge", str(shards), "-o", str(merged)]) == 2
    assert not merged.exists()


@pytest.mark.parametrize("letter", ["a", "é", "音", "𝄞"])
def test_a_plain_name_fits_into_a_file_name_whatever_its_letters(letter, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "machine_folder", lambda: tmp_path)
    plain = to_plain_name(letter * 500)
    assert is_plain_name(plain)
    (tmp_path / f"{plain}-123456.definition.json").touch()
    assert not machine.is_gone(letter * 110)  # a name from a storage, too long as a file's


ESCAPE = "\x1b]0;title\x07\x1b[31mred\x9b2J\u202e"


def reseal(folder: Path, name: str, change: Callable[[dict], object]) -> None:
    """Change a document of a run folder as its owner could, checksums and all."""
    document = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    change(document)
    (folder / name).write_text(json.dumps(document))
    SealedFolder(folder).seal()


def shown(capfd, *arguments: object) -> str:
    """What a command shows on a terminal or in a file, without the codes by which rich draws."""
    assert command([str(each) for each in arguments]) in (0, 2, 3)
    told = capfd.readouterr()
    return told.out + told.err


@pytest.mark.parametrize("field", ["recipe", "data"])
def test_settings_of_a_run_cannot_control_a_terminal(run_path, tmp_path, capfd, field):
    other = shutil.copytree(run_path, tmp_path / "other")
    reseal(run_path, "config.json", lambda document: document["config"].update({field: ESCAPE}))
    compared = shown(capfd, "compare", run_path, other)
    assert "\\x1b]0;title" in compared.replace("\n", "").replace(" ", "")
    for text in (
        compared,
        shown(capfd, "compare", run_path, other, "--json"),
        shown(capfd, "evaluate", run_path),
        shown(capfd, "diagnose", run_path),
        shown(capfd, "resume", run_path, "--max-epochs", 3, "--accept-environment"),
    ):
        assert all(part.isprintable() for part in text.split("\n"))


@pytest.mark.filterwarnings("default")  # the command line shows them, and here they are errors otherwise
@pytest.mark.parametrize("field", ["python", "jaxlib"])
def test_a_warning_about_another_environment_cannot_control_a_terminal(run_path, capfd, field):
    def change(environment: dict) -> None:
        (environment["versions"] if field == "jaxlib" else environment).update({field: ESCAPE})

    reseal(run_path, "status.json", lambda document: document.update(status="interrupted", reason=ESCAPE))
    reseal(run_path, "environment.json", change)
    text = shown(capfd, "resume", run_path, "--accept-environment", "--max-epochs", 3)
    assert "\\x1b]0;title" in text
    assert all(part.isprintable() for part in text.split("\n"))


def test_markup_of_rich_in_settings_is_shown_and_not_obeyed(run_path, capfd):
    reseal(run_path, "config.json", lambda document: document["config"].update(recipe="[/bold][red]x"))
    assert "[/bold][red]x" in shown(capfd, "resume", run_path, "--max-epochs", 3, "--accept-environment")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_generated_text_is_escaped_for_a_terminal_and_unchanged_elsewhere(capsys, monkeypatch, is_terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    terminal.put_out("a\n\x1b[2Jb\tc\n")
    assert capsys.readouterr().out == ("a\n\\x1b[2Jb\tc\n" if is_terminal else "a\n\x1b[2Jb\tc\n")


def test_json_says_the_same_whatever_is_escaped(capsys):
    document = {"name": ESCAPE + "𝄞 é \U000e0001"}
    print_json(document)
    text = capsys.readouterr().out
    assert all(part.isprintable() for part in text.split("\n"))
    assert json.loads(text) == document


def test_a_console_draws_in_color_and_escapes_the_rest():
    file = io.StringIO()
    console = terminal.Console(file=file, force_terminal=True, color_system="standard", width=60)
    table = Table(title="[bold]title[/]")
    table.add_column("name")
    table.add_row("\x1b[2Jgone", style="red")
    console.print(table)
    assert "\x1b[31m" in file.getvalue()
    assert "\x1b[2J" not in file.getvalue()
    assert "\\x1b[2J" in file.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        {"with_memory": 5},
        {"with_memory": {"test": {}}},
        {"with_memory": {"memory": "recall", "recalled": "x"}},
        {"with_memory": {"memory": "recall", "recalled": 0.5, "test": 4}},
        {"splits": {"train": {"songs": "x"}}},
        {"splits": {"train": {"songs": [1]}}},
    ],
)
def test_a_result_of_other_types_is_refused_in_one_line(run_path, tmp_path, capfd, change):
    reseal(run_path, "result.json", lambda document: document.update(change))
    assert command(["report", str(run_path), "-o", str(tmp_path / "report.html"), "--samples", "0"]) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "result.json cannot be read" in told
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"size": 10**12},
        {"size": 0},
        {"input_size": -1},
        {"frames_per_beat": 0},
        {"frames_per_beat": 10**30},
        {"octave_shift": 5000},
        {"octave_shift": -(10**20)},
        {"end_token": -1},
        {"vocabulary": ["a"]},
        {"labels": ["a"]},
        {"columns": ["a"] * 9},
        {"target_scaling": {"mean": [0.0], "scale": [0.0]}},
        {"target_scaling": {"mean": [], "scale": []}},
    ],
)
def test_a_record_that_no_data_have_is_refused_when_the_run_is_opened(run_path, change):
    Run.open(run_path)  # the control
    kind = {"kind": "numbers"} if change.keys() & {"columns", "target_scaling"} else {}
    reseal(run_path, "config.json", lambda document: document["data"].update(change | kind))
    with pytest.raises(InputError, match=r"config\.json cannot be used: .*" + next(iter(change)).split("_")[-1][:4]):
        Run.open(run_path)


def test_settings_of_another_model_are_refused_when_a_run_is_resumed(run_path, capfd):
    reseal(run_path, "config.json", lambda document: document["config"].update(hidden_size=9, max_epochs=9))
    assert command(["resume", str(run_path), "--accept-environment", "--json"]) == 2
    assert "not that of such a model" in capfd.readouterr().err


@pytest.mark.parametrize("change", [{"candidates": 10**9}, {"weights": "x"}, {"candidates": "x"}, {"adaptation": 5}])
def test_a_memory_of_other_types_is_refused(run_path, change):
    run = Run.open(run_path)
    good = {"memory": "recall", "weights": dict.fromkeys(FEATURES, 0.5), "candidates": 8, "fit": {}}
    for values, refused in ((good, False), (good | change, True)):
        reseal(run_path, "memory.json", lambda document, v=values: document.update(v, model=run.model_checksum()))
        if refused:
            with pytest.raises(InputError, match="longspan remember"):
                memory_of(run)
        else:
            assert memory_of(run).name == "recall"


def test_a_data_set_may_be_named_like_the_place_of_the_model_in_the_page():
    page = shell("{model} <b>")
    assert page.before.rstrip().endswith("</noscript>")
    assert "&#123;model} &lt;b&gt;" in page.before


class _Page(HTMLParser):
    """What a browser would do with a page: its policy, the scripts it would run, and what it would fetch."""

    def __init__(self, text: str):
        super().__init__()
        self.policy, self.scripts, self.handlers, self.addresses = "", [], [], []
        self._running = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "meta" and named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"]
        self._running = tag == "script" and named.get("type") != "application/json"
        self.scripts += [""] if self._running else []
        self.handlers += [name for name in named if name.startswith("on")]
        self.addresses += [named[name] for name in ("src", "href", "action") if name in named]

    def handle_data(self, data: str) -> None:
        if self._running:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._running = False


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'{script}"


def test_every_page_runs_the_scripts_of_its_policy_alone(run_path, tmp_path):
    named = run_path.rename(tmp_path / HOSTILE.replace("/", "⁄"))
    reseal(named, "config.json", lambda document: document["config"].update(recipe=HOSTILE, data=HOSTILE))
    reseal(named, "environment.json", lambda document: document.update(versions={HOSTILE: HOSTILE}))
    reseal(named, "status.json", lambda document: document.update(reason=HOSTILE))
    reseal(
        named,
        "result.json",
        lambda document: document.update(baselines={HOSTILE: {}}, splits={HOSTILE: {HOSTILE: 1.0}}),
    )
    report = tmp_path / "report.html"
    assert command(["report", str(named), str(named), "-o", str(report), "--samples", "0"]) == 0
    player = shell(HOSTILE)
    pages = [report.read_text(), player.before + embedded({HOSTILE: HOSTILE}, "model") + player.after]
    for page in map(_Page, pages):
        assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
        hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in page.scripts]
        assert len(hashes) == 1
        assert all(f"'sha256-{each}'" in page.policy for each in hashes)
        assert not page.handlers
        assert all(address.startswith(("#", "data:image/svg+xml,")) for address in page.addresses)


def test_control_markup_that_is_not_escaped_would_be_found():
    page = _Page(f"<p>{HOSTILE}</p>")
    assert page.scripts
    assert page.handlers


def test_a_card_shows_names_and_obeys_none(run_path):
    config = dataclasses.replace(Run.open(run_path).config, data="a | b\n# c <script>`")
    card = model_card(config, Run.open(run_path).data)
    assert " on a ¦ b\\n# c ‹script›'" in card
    assert "<script>" not in card


def test_a_resume_refused_for_its_checkpoints_leaves_the_config_as_it_is(run_path, capfd):
    before = (run_path / "config.json").read_bytes()
    for file in run_path.glob("checkpoints/*/arrays.safetensors"):
        file.write_bytes(b"damaged")
    assert command(["resume", str(run_path), "--max-epochs", "77", "--accept-environment"]) == 2
    assert "checkpoints" in capfd.readouterr().err
    assert (run_path / "config.json").read_bytes() == before


def test_a_file_replaced_by_a_pipe_after_it_was_looked_at_is_not_waited_for(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "_refuse_irregular", lambda path: None)
    with pytest.raises(InputError, match="it is no file"):
        files.read_limited(tmp_path / "pipe", 10)


@pytest.mark.parametrize("name", ["..", "../mine", ".mine"])
def test_a_plugin_relative_to_nothing_is_one_line(name):
    with pytest.raises(InputError, match="there is no plugin"):
        load_plugin(name)
