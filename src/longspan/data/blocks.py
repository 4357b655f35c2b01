"""An array of an archive, read in blocks behind its checked header: nothing takes memory before it was looked at."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import numpy as np

from longspan.limits import HEADER_BYTES

BLOCK = 2**20
"""Numbers read or written at once."""


class Opened(NamedTuple):
    """An array, positioned after its header."""

    file: BinaryIO
    name: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def size(self) -> int:
        """The number of its entries."""
        return math.prod(self.shape)

    def take(self, count: int) -> np.ndarray:
        """The next numbers of the array."""
        content = self.file.read(count * self.dtype.itemsize)
        if len(content) < count * self.dtype.itemsize:
            raise ValueError(f"{self.name} is truncated")
        return np.frombuffer(content, self.dtype)

    def blocks(self) -> Iterator[np.ndarray]:
        """All numbers in the order of the file, some at a time."""
        for start in range(0, self.size, BLOCK):
            yield self.take(min(BLOCK, self.size - start))

    def whole(self, dtype: np.dtype | type | None = None) -> np.ndarray:
        """All of the array, as another type if one is given."""
        found, place = np.empty(self.size, self.dtype if dtype is None else dtype), 0
        for block in self.blocks():
            found[place : place + len(block)] = block
            place += len(block)
        return found.reshape(self.shape, order="F" if self.fortran else "C")


@contextmanager
def opened_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Iterator[Opened]:
    """Open a member of an archive as an array, if it has as many bytes as its header claims."""
    with archive.open(info) as file:
        start = io.BytesIO(file.read(HEADER_BYTES))
        shape, fortran, dtype = _header(start, info.filename)
        claimed, there = math.prod(shape) * dtype.itemsize, info.file_size - start.tell()
        if claimed > there:
            raise ValueError(f"{info.filename} claims {claimed} bytes and has {there}")
        file.seek(start.tell())
        yield Opened(file, name, shape, fortran, dtype)  # pyright: ignore[reportArgumentType]


def _header(file: io.BytesIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    # NumPy raises many kinds of exception on broken headers; all mean the same here.
    except Exception as error:
        raise ValueError(f"{name} is not a NumPy array ({error})") from error
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which are never opened; save one array per song")
    if min(shape, default=1) < 0 or dtype.itemsize == 0:
        raise ValueError(f"{name} has shape {shape} and numbers of {dtype.itemsize} bytes")
    return shape, fortran, dtype
