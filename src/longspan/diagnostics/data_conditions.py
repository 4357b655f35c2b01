"""Conditions of data: what is wrong before any model sees them."""

from longspan.diagnostics.case import Case, Finding
from longspan.diagnostics.remedies import Remedy

ALL = 0.99
"""A property holds for all steps if it holds for this share of them."""
AHEAD = 0.03
"""Data are misaligned if only future inputs explain this share of the targets' variance."""
OVERLAPPING, TOO_ALIKE = 0.5, 2.0
"""Splits overlap if this share of validation passages also occurs in training, and this many times as many as the two
halves of training have in common."""
LONGER = 1.5
"""Training sequences were probably cut if validation ones are this many times as long."""


def misaligned(case: Case) -> Finding | None:
    """Targets that are paired with the wrong inputs."""
    checks = case.seen.data_checks
    best = max(checks.echo, key=checks.echo.__getitem__, default=None)
    pairs = [Remedy("pair every step with the one after it", "inputs, targets = sequence[:-1], sequence[1:]")]
    if best is not None and best >= 0 and best != 1 and checks.echo[best] >= ALL:
        later = "the input of the same step" if best == 0 else f"the input {best} steps later"
        says = (
            "The answer stands in the input: there is nothing to predict."
            if best == 0
            else "Inputs and targets are misaligned: a step in between is never seen."
        )
        return Finding("misaligned", says, [f"the target equals {later} in {checks.echo[best]:.1%} of steps"], pairs)
    if case.seen.kind in ("music", "text") and checks.echo.get(1, 1.0) < ALL:
        shown = f"a step's target is the next step's input in only {checks.echo[1]:.1%} of steps"
        return Finding("misaligned", "Inputs and targets are misaligned.", [shown], pairs)
    if checks.explained is not None and case.poor:
        past, both = (max(share, 0.0) for share in checks.explained)
        if both - past > max(AHEAD, past / 2):
            shown = f"the last inputs explain {past:.0%} of the targets' variance, with the next two {both:.0%}"
            moved = "inputs, targets = inputs[1:], targets[:-1]  # once more if that is not enough"
            return Finding(
                "misaligned",
                "Inputs and targets are misaligned: targets depend on inputs still to come.",
                [shown],
                [Remedy("move the targets a step later", moved)],
            )
    return None


def state_not_carried(case: Case) -> Finding | None:
    """Training sequences that are cut where a chunk ends."""
    checks, length = case.seen.data_checks, case.config.chunk_length
    self_continuing = checks.echo.get(1, 0.0) >= ALL
    cut = self_continuing and checks.cut > 0.5
    shortened = checks.longest_train <= length and checks.longest_valid >= LONGER * checks.longest_train
    if not cut and not (shortened and checks.full_chunks > 0.5):
        return None
    evidence = [
        f"training sequences end after {checks.longest_train} steps, validation ones after {checks.longest_valid}"
    ]
    if cut:
        evidence.insert(0, f"{checks.cut:.0%} of the resets fall inside a sequence")
    line = "resets[chunk, 0] = starts_here[chunk]  # in Dataset.epoch: only where a sequence starts"
    longer = case.prescribe.train(
        "let a chunk hold a whole sequence", chunk_length=max(checks.longest_valid, 2 * length)
    )
    return Finding(
        "state not carried",
        "The state is not carried from chunk to chunk: training never sees more of the past than a chunk.",
        evidence,
        [Remedy("reset the state only where a sequence starts", line), longer],
    )


def splits_overlap(case: Case) -> Finding | None:
    """Validation data that were trained on."""
    overlap, alike = case.seen.data_checks.overlap, case.seen.data_checks.alike
    if overlap < max(OVERLAPPING, TOO_ALIKE * alike):
        return None
    return Finding(
        "splits overlap",
        "The validation split stands in the training split: its score does not measure generalization.",
        [f"{overlap:.0%} of its passages are also in the training split, whose halves share {alike:.0%}"],
        [
            Remedy(
                "split by whole pieces, each in one split only",
                "train = [song for song in songs if not any(np.array_equal(song, held) for held in valid + test)]",
            )
        ],
    )
