"""What a folder from somebody else could do: write or delete elsewhere, run code, or move a terminal's cursor."""

import base64
import dataclasses
import hashlib
import io
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.table import Table

from longspan import terminal
from longspan.arms.protocol import define
from longspan.arms.records import SlotResult
from longspan.cli import print_json
from longspan.cli import run as command
from longspan.errors import InputError
from longspan.files import is_plain_name, to_plain_name
from longspan.memory.gate import FEATURES
from longspan.memory.interface import memory_of
from longspan.playing.page import shell
from longspan.registry import child_command, load_plugin
from longspan.search import machine
from longspan.training.records import model_card
from longspan.training.runs import Run
from longspan.training.seals import SealedFolder, newest_checkpoint, newest_checkpoint_number
from longspan.training.state import Progress
from longspan.webpage import embedded


@pytest.mark.parametrize("name", ["²", "٠٠٠٠٠٠٠٩٩", "9" * 40, "2024"])
def test_a_folder_with_another_kind_of_name_is_no_checkpoint(run_path, name):
    run, before = Run.open(run_path), newest_checkpoint_number(run_path / "checkpoints")
    (run_path / "checkpoints" / name).mkdir()
    assert run.has_checkpoint
    assert newest_checkpoint_number(run_path / "checkpoints") == before


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
    assert " on a ¦ b\\n# c ‹script>'" in card
    assert "<script>" not in card


def test_a_resume_refused_for_its_checkpoints_leaves_the_config_as_it_is(run_path, capfd):
    before = (run_path / "config.json").read_bytes()
    for file in run_path.glob("checkpoints/*/arrays.safetensors"):
        file.write_bytes(b"damaged")
    assert command(["resume", str(run_path), "--max-epochs", "77", "--accept-environment"]) == 2
    assert "checkpoints" in capfd.readouterr().err
    assert (run_path / "config.json").read_bytes() == before


@pytest.mark.parametrize("name", ["..", "../mine", ".mine"])
def test_a_plugin_relative_to_nothing_is_one_line(name):
    with pytest.raises(InputError, match="there is no plugin"):
        load_plugin(name)


def weights(kind: str) -> bytes:
    """A safetensors file of one array of a type."""
    header = json.dumps({"a": {"dtype": kind, "shape": [2], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


@pytest.mark.parametrize("content", [weights("BF16"), weights(ESCAPE), b"xx"], ids=["unknown", "escape", "short"])
@pytest.mark.parametrize("name", ["start.safetensors", "model.safetensors"])
def test_weights_that_are_none_are_refused_in_one_line(run_path, capfd, name, content):
    (run_path / name).write_bytes(content)
    SealedFolder(run_path).seal()
    arguments = ["evaluate"] if name.startswith("model") else ["resume", "--accept-environment", "--max-epochs", "9"]
    for checkpoint in (run_path / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)  # with one, the weights to start from are not read
    assert command([arguments[0], str(run_path), *arguments[1:]]) == 2
    told = capfd.readouterr().err
    assert f"{name} is damaged" in told
    assert all(line.isprintable() for line in told.split("\n"))
    assert len(told.splitlines()) == 1


def test_a_checkpoint_with_arrays_of_an_unknown_type_is_damaged(run_path):
    newest = max((run_path / "checkpoints").iterdir())
    (newest / "arrays.safetensors").write_bytes(weights("BF16"))
    checked = ("arrays.safetensors", "progress.json")
    manifest = {name: hashlib.sha256((newest / name).read_bytes()).hexdigest() for name in checked}
    (newest / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"checkpoints in .* are damaged"):
        newest_checkpoint(newest.parent, Progress)


CRASHES = {
    "the command": "raise RuntimeError(text)",
    "a thread": "import threading; [t.start() or t.join() for t in [threading.Thread(target=lambda: 1 / int(text))]]",
    "a finalizer": "made = type('Made', (), {'__del__': lambda self: int(text)}); made()",
    "a warning": "import warnings; warnings.warn(text)",
}


@pytest.mark.parametrize("where", CRASHES)
@pytest.mark.parametrize("guarded", [True, False])
def test_an_error_that_nobody_expected_cannot_control_a_terminal(where, guarded):
    guard = "from longspan.terminal import escape_errors; escape_errors()\n" if guarded else ""
    program = f"text = {ESCAPE!r}\n{guard}{CRASHES[where]}\n"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True).stderr
    # Without the guard a finalizer and a thread show this text through its repr, which is safe.
    escaped = guarded or where in ("a thread", "a finalizer")
    assert (b"\\x1b]0;title" if escaped else b"\x1b]0;title") in told
    assert escaped == (b"\x1b" not in told)


@pytest.mark.parametrize("entry", ["longspan.cli", "longspan.search.worker"])
def test_both_programs_show_their_own_failures_escaped(entry):
    """The second is the process of a worker, whose log people look at."""
    fail = f"def fail(*_): raise RuntimeError({ESCAPE!r})\n"
    broken = {"longspan.cli": "program._dispatch = fail", "longspan.search.worker": "program.Job.from_line = fail"}
    program = f"import {entry} as program\n{fail}{broken[entry]}\nprogram.main()\n"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, input=b"{}\n").stderr
    assert b"\x1b" not in told
    assert b"RuntimeError: \\x1b]0;title" in told


@pytest.mark.parametrize("config", ["{", '{"format": 99}', "a data set", "a setting"])
def test_a_run_that_cannot_be_sealed_stays_as_it_is(run_path, config):
    document = json.loads((run_path / "config.json").read_text())
    if config == "a data set":
        document["data"]["size"] = 0
    elif config == "a setting":
        document["config"]["hidden_size"] = -1
    (run_path / "config.json").write_text(config if config.startswith("{") else json.dumps(document))
    before = {file: file.read_bytes() for file in run_path.glob("[!.]*") if file.is_file()}
    with pytest.raises(InputError):
        Run.seal(run_path)
    assert before == {file: file.read_bytes() for file in run_path.glob("[!.]*") if file.is_file()}


@pytest.mark.parametrize("content", ["{", "{}", "[1]", "another"])
def test_a_definition_that_is_none_is_not_merged_and_nothing_is_written(tmp_path, content):
    shards, merged = tmp_path / "shards", tmp_path / "merged"
    shards.mkdir()
    (shards / "jsb-0.jsonl").write_text(json.dumps(msgspec.to_builtins(LINE)) + "\n")
    file = shards / f"jsb-{LINE.definition}.definition.json"
    other = msgspec.json.encode(define("nottingham", "frames", "print", {100: 243}, -12.0)).decode()
    file.write_text(other if content == "another" else content)
    assert command(["merge", str(shards), "-o", str(merged)]) == 2
    assert not merged.exists()
    good = msgspec.json.encode(define("jsb", "frames", "print", {100: 243}, -12.0))
    file.write_bytes(good)
    assert command(["merge", str(shards), "-o", str(merged)]) == 0  # the control
    assert (merged / "jsb.definition.json").read_bytes() == good


@pytest.mark.parametrize("size", [-1, 10**30])
def test_lines_are_not_cut_where_no_checkpoint_can_have_ended(run_path, size):
    before = {file: file.read_bytes() for file in run_path.glob("[!.]*") if file.is_file()}
    with pytest.raises(InputError, match="are damaged"):
        Run.open(run_path).truncate_metrics(size)
    assert before == {file: file.read_bytes() for file in run_path.glob("[!.]*") if file.is_file()}
