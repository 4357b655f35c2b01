"""Models: recurrent cells, and output distributions of the next frame or symbol.

Derive your own from `Cell`, `Output` or `ExactOutput`, and register them with `register_cell` and `register_output`.
"""

from longspan.models.cells import Cell, LeakyCell, Trace
from longspan.models.outputs import Bernoulli, ExactOutput, Gaussian, Output, Softmax
from longspan.models.parts import register_cell, register_output
from longspan.models.sequence import SequenceModel, build

__all__ = [
    "Bernoulli",
    "Cell",
    "ExactOutput",
    "Gaussian",
    "LeakyCell",
    "Output",
    "SequenceModel",
    "Softmax",
    "Trace",
    "build",
    "register_cell",
    "register_output",
]
