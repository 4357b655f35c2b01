"""What the data themselves say before any model sees them: alignment, carried states, splits that overlap."""

import msgspec
import numpy as np

from longspan.bounds import Figure, Share, Whole
from longspan.config import TrainConfig
from longspan.data.dataset import Chunks, Dataset
from longspan.data.recall import identities, longest_matches
from longspan.probes.steps import Steps, steps_of

SHIFTS = tuple(range(-4, 5))
"""Shifts of the inputs against the targets that are examined; positive ones are inputs still to come."""
PAST, AHEAD = (-4, -3, -2, -1, 0), (1, 2)
"""Shifts of the inputs from which targets are explained."""
WINDOW = 32
"""Steps that must agree for two passages to count as the same."""
EXAMINED = 50_000
FITTED = 20_000
WIDEST = 100
"""Inputs wider than this are not regressed on."""
PAIRED = 40
"""Numbers from which targets are explained, up to which their products are used, too."""
RIDGE = 1e-3


class DataChecks(msgspec.Struct, frozen=True):
    """Facts about the training data and their splits.

    Attributes:
        echo: by shift, the fraction of steps whose target equals the input that many steps later; empty if inputs and
            targets have different forms.
        explained: the share of the targets' variance that regression on the last inputs explains, and, if they are
            few, on their products; and the share that it explains if it also sees the next inputs; None if inputs are
            too wide, or targets repeat the inputs.
        cut: of data that continue themselves, the fraction of resets where a sequence goes on from the one before it.
        longest_train, longest_valid: steps of the longest sequences.
        full_chunks: fraction of the training chunks that are as long as chunks may be.
        overlap: fraction of the passages of the validation split that also stand in the training split.
        alike: fraction of the passages of one half of the training split that also stand in the other half.
        hits: how often the longest match of the past continues in the same way, for matches of one step and of four or
            more; None for data that do not continue themselves.
    """

    echo: dict[int, Share]
    explained: tuple[Figure, Figure] | None
    cut: Share
    longest_train: Whole
    longest_valid: Whole
    full_chunks: Share
    overlap: Share
    alike: Share
    hits: tuple[Share, Share] | None


def check_data(data: Dataset, config: TrainConfig) -> DataChecks:
    """Examine the splits of a data set, and the training chunks as a config cuts them."""
    data = data.with_cues("none")  # what follows from the past is no fault of the data
    train, valid = steps_of(data, "train", EXAMINED), steps_of(data, "valid", EXAMINED)
    chunks = data.epoch(0, seed=config.seed, chunk_length=config.chunk_length, lanes=config.lanes)
    echo = _echo(train) if _same_form(train) else {}
    lengths = _sequence_lengths(chunks)
    return DataChecks(
        echo=echo,
        explained=None if max(echo.values(), default=0) > 0.99 else _explained(train, data.record.size),
        cut=_cut_share(chunks) if echo.get(1, 0.0) > 0.99 else 0.0,
        longest_train=int(lengths.max()),
        longest_valid=max(end - begin for begin, end in valid.bounds),
        full_chunks=float(np.mean(np.asarray(chunks.lengths) == config.chunk_length)),
        overlap=_overlap(train, valid),
        alike=_overlap(*_halves(train)),
        hits=_hits(valid) if data.record.kind in ("music", "text") else None,
    )


def _same_form(steps: Steps) -> bool:
    return steps.inputs.shape[1:] == steps.targets.shape[1:] and steps.inputs.dtype == steps.targets.dtype


def _echo(steps: Steps) -> dict[int, float]:
    ids = identities(np.concatenate([steps.inputs, steps.targets]))
    inputs, targets = np.split(ids, 2)
    found = {}
    for shift in SHIFTS:
        rows = _shifted_rows(steps, shift)
        found[shift] = float(np.mean(inputs[rows + shift] == targets[rows])) if len(rows) else 0.0
    return found


def _shifted_rows(steps: Steps, *shifts: int) -> np.ndarray:
    """Counted steps whose sequence has steps at all of these shifts."""
    rows = np.flatnonzero(steps.mask)
    for shift in shifts:
        rows = rows[(rows + shift >= 0) & (rows + shift < len(steps.starts))]
        rows = rows[steps.starts[rows + shift] == steps.starts[rows]]
    return rows


def _explained(steps: Steps, size: int) -> tuple[float, float] | None:
    inputs, targets = _as_numbers(steps.inputs), _as_numbers(steps.targets, size)
    rows = _shifted_rows(steps, *PAST, *AHEAD)[:FITTED]
    if inputs is None or targets is None or len(rows) < 4 * inputs.shape[1] * len(PAST + AHEAD):
        return None
    past, both = (np.concatenate([inputs[rows + shift] for shift in shifts], axis=1) for shifts in (PAST, PAST + AHEAD))
    return _most_explained(past, targets[rows]), _most_explained(both, targets[rows])


def _most_explained(inputs: np.ndarray, targets: np.ndarray) -> float:
    """The share explained by the inputs or, where they are few beside the rows, also by the products of any two."""
    plain, (left, right) = _share_explained(inputs, targets), np.triu_indices(inputs.shape[1], 1)
    if inputs.shape[1] > PAIRED or len(inputs) < 4 * len(left):
        return plain
    products = np.concatenate([inputs, inputs[:, left] * inputs[:, right]], axis=1)
    return max(plain, _share_explained(products, targets))


def _as_numbers(values: np.ndarray, size: int | None = None) -> np.ndarray | None:
    """Numbers, keys or symbols as vectors of numbers; None if they would be too wide."""
    if values.ndim == 1:
        size = max(size or 0, int(values.max()) + 1)
        return np.eye(size)[values] if size <= WIDEST else None
    return values.astype(np.float64) if values.shape[1] <= WIDEST else None


def _share_explained(inputs: np.ndarray, targets: np.ndarray) -> float:
    """R squared of ridge regression, on the second half of the rows after a fit to the first."""
    half = len(inputs) // 2
    mean_in, mean_out = inputs[:half].mean(axis=0), targets[:half].mean(axis=0)
    left, right = inputs[:half] - mean_in, targets[:half] - mean_out
    weights = np.linalg.solve(left.T @ left + RIDGE * half * np.eye(left.shape[1]), left.T @ right)
    missed = targets[half:] - mean_out - (inputs[half:] - mean_in) @ weights
    spread = np.square(targets[half:] - mean_out).sum()
    return float(1 - np.square(missed).sum() / spread) if spread > 0 else 0.0


def _sequence_lengths(chunks: Chunks) -> np.ndarray:
    """Number of steps between the resets of the training chunks."""
    resets, lengths = np.asarray(chunks.resets), np.asarray(chunks.lengths)
    present = np.arange(resets.shape[1]) < lengths[:, None]
    found = []
    for lane in range(resets.shape[2]):
        flat = resets[:, :, lane][present]
        found.append(np.diff(np.append(np.flatnonzero(flat), len(flat))))
    return np.concatenate(found)


def _cut_share(chunks: Chunks) -> float:
    """Fraction of resets, other than the first, whose input is the target just before it."""
    inputs, targets, resets = (np.asarray(part) for part in chunks[:3])
    lengths = np.asarray(chunks.lengths)
    going_on = begun = 0
    for chunk in range(1, len(lengths)):
        last = lengths[chunk - 1] - 1
        for lane in np.flatnonzero(resets[chunk, 0]):
            first = inputs[chunk, 0, lane]
            begun += 1
            going_on += bool(np.any(first) and np.array_equal(first, targets[chunk - 1, last, lane]))
    return going_on / begun if begun else 0.0


def _overlap(train: Steps, valid: Steps) -> float:
    """Fraction of passages of the validation split that stand in the training split, target by target."""
    both = identities(np.concatenate([_rows(train), _rows(valid)]))
    length = min(WINDOW, max(end - begin for begin, end in valid.bounds))
    known = _passages(both[: len(train.starts)], train.starts, length)
    asked = _passages(both[len(train.starts) :], valid.starts, length)
    return float(np.isin(asked, known).mean()) if len(asked) else 0.0


def _halves(steps: Steps) -> tuple[Steps, Steps]:
    """The first half of the sequences, or of a single one, and the second."""
    bounds = steps.bounds
    middle = bounds[len(bounds) // 2][0] if len(bounds) > 1 else len(steps.starts) // 2
    first, second = (Steps(*(part[rows] for part in steps)) for rows in (slice(0, middle), slice(middle, None)))
    return first, second._replace(starts=np.maximum(second.starts - middle, 0))


def _rows(steps: Steps) -> np.ndarray:
    """Inputs and targets side by side; only the targets where they say it all."""
    parts = [steps.inputs, np.where(steps.mask.reshape(-1, *[1] * (steps.targets.ndim - 1)), steps.targets, 0)]
    return np.concatenate([part.reshape(len(part), -1).astype(np.float64) for part in parts], axis=1)


def _passages(ids: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """A hash of every `length` consecutive steps within a sequence."""
    factors = np.random.default_rng(0).integers(1, 2**62, length, dtype=np.int64) | 1
    count = len(ids) - length + 1
    if count <= 0:
        return np.zeros(0, np.int64)
    hashes = np.zeros(count, np.int64)
    for place in range(length):
        hashes += factors[place] * (ids[place : place + count].astype(np.int64) + 1)
    return hashes[starts[:count] == starts[length - 1 :]]


def _hits(steps: Steps) -> tuple[float, float] | None:
    right, lengths = [], []
    for begin, end in steps.bounds:
        ids = identities(steps.targets[begin:end])
        matches = longest_matches(ids)
        matched = matches.position >= 0
        right.append(ids[matches.position[matched]] == ids[matched])
        lengths.append(matches.length[matched])
    hit, length = np.concatenate(right), np.concatenate(lengths)
    short, long = hit[length == 1], hit[length >= 4]
    return (float(short.mean()), float(long.mean())) if len(short) and len(long) else None
