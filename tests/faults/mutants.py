"""Damage to files: flipped bits, changed bytes, cuts, splices, extreme numbers, repetitions, other values in JSON."""

import copy
import json
import struct
from collections.abc import Iterator

import numpy as np

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutants(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Copies of a file, each damaged in one to three places; none is the file itself, which would be no try."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        mutant = content
        while mutant == content and content:
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


def _reshape(content: bytes, random: np.random.Generator) -> bytes:
    """JSON in which one value has become something else or is missing; anything else gets a flipped bit."""
    lines = content.splitlines() if content.count(b"\n{") else [content]
    chosen = int(random.integers(len(lines)))
    try:
        document = json.loads(lines[chosen])
        places = list(_places(document))
    except (ValueError, RecursionError):
        return _flip(content, random)
    if not places:
        return _flip(content, random)
    holder, key = places[random.integers(len(places))]
    if random.integers(4):
        holder[key] = copy.deepcopy(OTHERS[random.integers(len(OTHERS))])
    else:
        del holder[key]
    lines[chosen] = json.dumps(document).encode()
    return b"\n".join(lines) + b"\n"


def _places(document: object) -> Iterator[tuple]:
    """Every place of a document that holds a value, as its container and its key."""
    items = list(
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield document, key
        yield from _places(value)


OTHERS = (None, -1, 0, 2**70, 1e308, -1e-9, True, "", "../x", "\x1b[31m<script>", [], {}, [[1]], {"a": 1}, ["a"] * 3)
DAMAGES = (_flip, _change, _cut, _splice, _overwrite, _repeat, _reshape)
