"""Damage to files: flipped bits, changed bytes, cuts, splices, extreme numbers and repetitions."""

import struct
from collections.abc import Iterator

import numpy as np

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutants(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Copies of a file, each damaged in one to three places."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        mutant = content
        for _ in range(random.integers(1, 4)):
            mutant = DAMAGES[random.integers(len(DAMAGES))](mutant, random) if mutant else mutant
        yield mutant


def _flip(content: bytes, random: np.random.Generator) -> bytes:
    damaged = bytearray(content)
    damaged[random.integers(len(content))] ^= 1 << int(random.integers(8))
    return bytes(damaged)


def _change(content: bytes, random: np.random.Generator) -> bytes:
    damaged = bytearray(content)
    damaged[random.integers(len(content))] = random.integers(256)
    return bytes(damaged)


def _cut(content: bytes, random: np.random.Generator) -> bytes:
    return content[: random.integers(len(content))]


def _splice(content: bytes, random: np.random.Generator) -> bytes:
    """A piece of the file once more, somewhere else."""
    start, place = random.integers(len(content), size=2)
    piece = content[start : start + random.integers(1, 64)]
    over = len(piece) * int(random.integers(2))
    return content[:place] + piece + content[place + over :]


def _overwrite(content: bytes, random: np.random.Generator) -> bytes:
    """An extreme number of one to eight bytes."""
    size, place = int(random.choice([1, 2, 4, 8])), int(random.integers(len(content)))
    number = struct.pack("<Q" if random.integers(2) else ">Q", int(EXTREMES[random.integers(len(EXTREMES))]))
    piece = number[:size] if number[0] else number[-size:]
    return content[:place] + piece + content[place + size :]


def _repeat(content: bytes, random: np.random.Generator) -> bytes:
    """A few bytes up to 5,000 times, as digits and brackets are in bombs of text."""
    place = int(random.integers(len(content)))
    piece = content[place : place + random.integers(1, 3)]
    return content[:place] + piece * int(random.integers(1, 5_000)) + content[place:]


DAMAGES = (_flip, _change, _cut, _splice, _overwrite, _repeat)
