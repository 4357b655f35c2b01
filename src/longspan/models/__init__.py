"""Models: recurrent cells, and output distributions of the next frame or symbol.

Derive your own from `Cell`, `Output` or `ExactOutput`, and register them with `register_cell` and `register_output`.
"""

from longspan.models.cells import LeakyCell
from longspan.models.model import SequenceModel, build
from longspan.models.outputs import Bernoulli, Gaussian, Softmax
from longspan.models.parts import Cell, ExactOutput, Output, Trace, register_cell, register_output

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
