"""Weights in one byte each, for models that are shipped: int8 with one scale for each row of a matrix.

Vectors, of which there are few, stay as they are. A run folder may hold weights in this form; they are restored when
they are read, so that nothing else knows of it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from longspan.errors import InputError

SCALE = ":scale"
"""What the name of an array of scales adds to that of the matrix."""
LARGEST = 127


class Rows(NamedTuple):
    """A matrix as whole numbers from -127 to 127, and what one of them means in each row."""

    numbers: np.ndarray
    scales: np.ndarray

    @staticmethod
    def of(matrix: np.ndarray) -> "Rows":
        """The nearest such numbers to those of a matrix.

        Example:
            >>> Rows.of(np.array([[0.5, -1.27], [0, 0]], np.float32)).numbers.tolist()
            [[50, -127], [0, 0]]
        """
        scales = (np.abs(matrix).max(axis=1) / LARGEST).astype(np.float32)
        numbers = np.rint(matrix / np.where(scales > 0, scales, 1)[:, None])
        return Rows(numbers.astype(np.int8), scales)

    def restored(self) -> np.ndarray:
        """The matrix in single precision; refused unless each row has one scale: with more, the product is larger."""
        if self.numbers.ndim != 2 or self.numbers.dtype != np.int8 or self.scales.shape != self.numbers.shape[:1]:
            raise InputError(
                f"expected rows of int8 with a scale for each, got {self.numbers.dtype}{self.numbers.shape} with "
                f"{self.scales.shape}: restore model.safetensors"
            )
        return self.numbers.astype(np.float32) * self.scales[:, None]


def rounded(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays by name with every matrix in single precision replaced by its rows; `restored` reverses it.

    Example:
        >>> sorted(rounded({"weights": np.eye(2, dtype=np.float32), "bias": np.zeros(2, np.float32)}))
        ['bias', 'weights', 'weights:scale']
    """
    found: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if array.ndim == 2 and array.dtype == np.float32 and array.size:
            rows = Rows.of(array)
            found |= {name: rows.numbers, name + SCALE: rows.scales}
        else:
            found[name] = array
    return found


def restored(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays by name in single precision; those that were never rounded are returned unchanged."""
    return {
        name: Rows(array, arrays[name + SCALE]).restored() if name + SCALE in arrays else array
        for name, array in arrays.items()
        if not name.endswith(SCALE)
    }
