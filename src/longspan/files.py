"""Files and folders that appear whole or not at all, bounded reading, plain names, and locks.

Names that come from outside, such as from a storage or a folder, are checked before they become part of a path. What is
inside the folder of a run or a study is never reached through a link, because the folder may come from somebody else
and the link lead anywhere; the folder itself, which a user names, may be one.

Locks are those of the operating system (`flock` or its Windows equivalent), through `filelock`: one holder at a time,
released whenever the holder dies, for whatever reason. The fallback of `filelock` for file systems without them is
disabled: a lock that is only a file would outlive a killed process.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from types import GenericAlias
from typing import Any, BinaryIO, TypeVar, cast

from filelock import BaseFileLock, FileLock, Timeout

from longspan.errors import InputError, printable
from longspan.limits import JSON_BYTES, MIB, RUN_FILE_BYTES, SETTINGS_BYTES, SETTINGS_DOTS

T = TypeVar("T")


class NameTaken(InputError):
    """A folder was to be made where there is something already, perhaps since a moment ago."""


def temporary_name(path: Path) -> Path:
    """A new name beside `path`, for what is not complete yet or is being removed."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed left in a folder under temporary names; nothing else may be writing."""
    for path in folder.glob(".*.part"):
        with suppress(OSError):
            discard(path)


def discard(path: Path) -> None:
    """Remove whatever has this name: a file, a folder with all in it, or a link, but not what the link leads to."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def refuse_link(path: Path) -> Path:
    """Return the path of something inside the folder of a run or a study, unless it is a link."""
    if path.is_symlink():
        raise _linked(path)
    return path


def _linked(path: Path) -> InputError:
    return InputError(
        f"{path} is a link, and what belongs to a run or a study is in its own folder alone: put what it leads to in "
        "its place, or copy the folder by `cp -rL`"
    )


def folder_inside(folder: Path, *names: str) -> Path:
    """The path of a folder inside that of a run or a study, made unless it exists; none of `names` may be a link."""
    path = folder
    with explain_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = refuse_link(path / name)
            path.mkdir(exist_ok=True)
    return path


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` only if the block ends without an exception.

    The bytes are on disk before the rename; whatever goes wrong, no partial file remains.
    """
    temporary = temporary_name(path)
    with explain_disk_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            with suppress(OSError):
                temporary.unlink()


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file so that no reader ever sees a part of it, even if the process is killed at any moment."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def changing(path: Path, mode: str) -> Iterator[BinaryIO]:
    """Open a file to change it in place, on disk when the block ends.

    A link, and a file that has further names, such as in a copy by `cp -al`, is replaced by a copy first: what a folder
    from somebody else links to, or another folder shares, stays as it is.
    """
    with explain_disk_errors(path):
        _detach(path)
        with open(path, mode, opener=_without_following) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:  # replaced since it was looked at
                raise InputError(f"cannot write {path}: somebody else changes its folder; see to it that nobody can")
            yield cast(BinaryIO, file)
            file.flush()
            os.fsync(file.fileno())


def _detach(path: Path) -> None:
    try:
        about = path.lstat()
    except FileNotFoundError:
        return
    present = path.exists()
    if present:
        _refuse_irregular(path, follow=True)
    if not stat.S_ISLNK(about.st_mode) and about.st_nlink == 1:
        return
    if present:
        write_atomic(path, read_limited(path, RUN_FILE_BYTES))
    else:  # a link to nothing, through which the file would be made there
        path.unlink()


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `path` if the block succeeds and removed otherwise."""
    with explain_disk_errors(path):
        temporary = temporary_name(path)
        temporary.mkdir()
        try:
            yield temporary
            sync_folder(temporary)
            os.rename(temporary, path)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise NameTaken(f"{path} exists already: choose another name") from error
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames within a folder durable; not every system can open one, and then the rename has to do."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the system cannot do it; anything else is a failure
            raise
    finally:
        os.close(descriptor)


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Turn a failed write (full disk, no permission, missing folder) into a one-line error about `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write {path}: {reason}; free some space or choose a writable folder") from error


@contextmanager
def opened(path: Path, *, follow: bool = True) -> Iterator[BufferedReader]:
    """Open a regular file for reading; system errors within the block become a one-line error about `path`.

    With `follow` off, as for the files of a run or a study, a link is refused.
    """
    _refuse_irregular(path, follow=follow)
    try:
        with open(path, "rb", opener=_without_waiting if follow else _without_following) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # replaced since it was looked at
                raise InputError(f"cannot read {path}: it is no file; check the path")
            yield file
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def _without_following(path: str, flags: int) -> int:
    return _without_waiting(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _refuse_irregular(path: Path, *, follow: bool) -> None:
    """Refuse anything but a regular file before opening it: a pipe may block forever, and a device may never end."""
    try:
        mode = os.stat(path, follow_symlinks=follow).st_mode
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except ValueError as error:  # a null byte, or characters the file system cannot encode
        raise InputError(f"cannot read {path}: {error}; check the path") from error
    if stat.S_ISLNK(mode):
        raise _linked(path)
    if not stat.S_ISREG(mode):
        raise InputError(f"cannot read {path}: it is {'a folder' if stat.S_ISDIR(mode) else 'no file'}; check the path")


def read_limited(path: Path, most: int, *, follow: bool = True) -> bytes:
    """The content of a file of at most `most` bytes; with `follow` off, not through a link."""
    with opened(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        # Not `most` at once, for which memory would be reserved; a file that grows meanwhile is read to its end.
        content = file.read(size + 1) if size <= most else b""
        while size < len(content) <= most and (more := file.read(MIB)):
            content += more
    if max(size, len(content)) > most:
        raise InputError(f"{path} has {max(size, len(content))} bytes, more than the {most} allowed; use a part of it")
    return content


def read_toml(path: Path, expected: str) -> dict[str, Any]:
    """Read a TOML file of at most `SETTINGS_BYTES`; `expected` is a phrase that says what it should contain."""
    content = read_limited(path, SETTINGS_BYTES)
    if any(line.count(b".") > SETTINGS_DOTS for line in content.splitlines()):
        raise InputError(f"{path} has a line with more than {SETTINGS_DOTS} dots; {expected}")
    try:
        found = tomllib.loads(content.decode())
        _refuse_long_numbers(found)
        return found
    # A number with too many digits raises a plain ValueError, very deep nesting a RecursionError.
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML ({error}); {expected}") from error


def _refuse_long_numbers(value: object) -> None:
    """Refuse whole numbers beyond the 64 bits of TOML, some of which Python cannot even print."""
    if isinstance(value, int) and value.bit_length() > 63:
        raise ValueError(f"a whole number of {value.bit_length()} bits, more than 64")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_long_numbers(part)


def read_json(
    path: Path, kind: type[T] | GenericAlias, advice: str, most: int = JSON_BYTES, *, follow: bool = True
) -> T:
    """Decode a JSON file of at most `most` bytes as a value of a type; `advice` says what to do if that fails."""
    return decode_json(read_limited(path, most, follow=follow), kind, path, advice)


def decode_json(content: bytes, kind: type[T] | GenericAlias, path: Path, advice: str) -> T:
    """Decode the content of a JSON file, as `read_json` does."""
    import msgspec

    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise InputError(f"{path} cannot be read ({error}); {advice}") from error


def user_path(path: Path | str) -> Path:
    """A user's path with `~` expanded where possible; what cannot be part of a path stays as it is."""
    try:
        return Path(os.path.expanduser(path))
    except ValueError:  # a null byte, or half a character, in the name of a user
        return Path(path)


LONGEST_NAME = 120
"""In bytes of UTF-8, so that a file name built from a name stays within the limits of file systems."""
_PLAIN = re.compile(r"\w[\w.+-]*")


def is_plain_name(name: object) -> bool:
    """Whether a name is safe as one component of a path, naming nothing outside the folder it is joined to.

    Example:
        >>> is_plain_name("jsb-sgd+c"), is_plain_name("../jsb"), is_plain_name("/etc/passwd"), is_plain_name("..")
        (True, False, False, False)
    """
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None and len(name.encode()) <= LONGEST_NAME


def check_plain_name(name: str, what: str) -> str:
    """Return the name, or refuse it if it is not plain."""
    if not is_plain_name(name):
        raise InputError(
            f"the {what} cannot be named {name!r}: expected letters, digits and . _ + - alone, beginning with a letter "
            f"or digit, at most {LONGEST_NAME} bytes"
        )
    return name


def to_plain_name(text: str) -> str:
    """Turn any text, such as the stem of a user's file, into a plain name.

    Example:
        >>> to_plain_name("my songs (1)-sgd+c")
        'my_songs__1_-sgd+c'
    """
    plain = re.sub(r"^\W|[^\w.+-]", "_", text)
    return plain.encode()[:LONGEST_NAME].decode(errors="ignore") or "_"


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a lock file, after waiting for its current holder."""
    lock = _acquired(path, blocking=True)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def try_file_lock(path: Path) -> Iterator[bool]:
    """Like `file_lock`, but yields False instead of waiting if the lock is already held."""
    lock = _acquired(path, blocking=False)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def _acquired(path: Path, *, blocking: bool) -> BaseFileLock | None:
    refuse_link(path)
    lock = FileLock(path, fallback_to_soft=False)
    with explain_disk_errors(path):
        try:
            lock.acquire(blocking=blocking)
        except Timeout:  # also an OSError, but not a disk error
            return None
    return lock


def cache_directory() -> Path:
    """The user's cache folder for longspan."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("longspan", appauthor=False))


_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINK = re.compile(r"(?<=\])(?=[(\[:])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=[\w.+-])(?=@)", re.IGNORECASE)
"""Places in links, in what they refer to, and in addresses of which many viewers make links."""


def in_markdown(text: str) -> str:
    """Text from a folder, which may be of somebody else, in one line without tags, links and pictures.

    >>> in_markdown("a < b, **c** <script> ![](http://example.com)")
    'a < b, **c** ‹script> ![] (http: //example.com)'
    """
    shown = text if text.isprintable() else printable(text)
    return _LINK.sub(" ", _TAG.sub("‹", shown))
