"""Memory of the song or text: a model that also recalls what the sequence said before."""

from longspan.memory.interface import (
    MEMORIES,
    Memory,
    Recollection,
    Trail,
    check_memory,
    memory_of,
    proposal_of,
    reader_of,
    register_memory,
    remember,
)

__all__ = [
    "MEMORIES",
    "Memory",
    "Recollection",
    "Trail",
    "check_memory",
    "memory_of",
    "proposal_of",
    "reader_of",
    "register_memory",
    "remember",
]
