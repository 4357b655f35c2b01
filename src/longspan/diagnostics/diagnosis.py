"""The diagnosis of a run: what was measured, and what is wrong.

Conditions are asked in an order in which a cause comes before what follows from it: data first, then steps that are too
long or too short, then units, then memory, then how well and how long the model was fitted. Their thresholds were set
on made-up melodies, sentences and tasks; `python -m benchmarks.diagnosis` tries them on other data.
"""

from collections.abc import Mapping

import msgspec

from longspan.config import TrainConfig
from longspan.data.dataset import Dataset, TargetKind
from longspan.diagnostics import data_conditions, model_conditions, step_conditions
from longspan.diagnostics.case import Case, Condition, Finding
from longspan.diagnostics.measures import LAGS, STEPS, Measures, measure
from longspan.diagnostics.remedies import Brought, Prescriber, measured
from longspan.errors import InputError
from longspan.training.runs import Run

CONDITIONS: tuple[Condition, ...] = (
    data_conditions.misaligned,
    data_conditions.state_not_carried,
    data_conditions.splits_overlap,
    step_conditions.exploding,
    step_conditions.rate_too_large,
    step_conditions.cliff,
    step_conditions.clipped_throughout,
    step_conditions.rate_too_small,
    model_conditions.dead_units,
    model_conditions.saturated,
    model_conditions.vanishing,
    model_conditions.memory_cut_off,
    model_conditions.overfitting,
    step_conditions.under_trained,
    model_conditions.memory_unused,
    step_conditions.nothing_learned,
)


class Diagnosis(msgspec.Struct, frozen=True):
    """What was measured of a run, and what is wrong with it.

    Attributes:
        findings: the conditions that hold, causes before what follows from them; empty if nothing is wrong.
        measures: everything that was measured.
        model: checksum of the weights examined, so that a diagnosis of other weights is not shown.
        target_kind: what the run predicts.
        in_python: whether remedies are Python, because the data were handed in from there.
    """

    findings: list[Finding]
    measures: Measures
    model: str
    target_kind: TargetKind
    in_python: bool = False

    @property
    def verdict(self) -> str:
        """The first finding in one sentence."""
        return (
            self.findings[0].says if self.findings else "No alarm: nothing that is checked for is wrong with this run."
        )

    def keep(self, run: Run) -> bool:
        """Write it into the run folder, where the report finds it; not while another process trains the run."""
        try:
            with run.locked():
                run.write_diagnosis(msgspec.to_builtins(self))
        except InputError:
            return False
        return True


class Kept(msgspec.Struct, frozen=True):
    """What is read of a diagnosis that a run folder keeps: all but the findings."""

    measures: Measures
    model: str
    target_kind: TargetKind
    in_python: bool = False


def diagnose_run(
    run: Run, data: Dataset, *, split: str = "valid", lags: int = LAGS, steps: int = STEPS, in_python: bool = False
) -> Diagnosis:
    """Examine a run on a split of its data and name what is wrong.

    Args:
        run: the run; its folder is only read.
        data: the data it was trained on.
        split: the split on whose sequences the model is run.
        lags: how many steps back gradients are followed.
        steps: about how many steps are examined.
        in_python: whether the data were handed in from Python, so that remedies are Python, too.
    """
    seen = measure(run, data, split=split, lags=lags, steps=steps)
    return _judged(run, Kept(seen, run.model_checksum(), data.target_kind, in_python))


def kept_diagnosis(run: Run) -> Diagnosis | None:
    """The diagnosis kept in a run folder, if it is of the weights that are there now.

    Findings are derived again from what was measured: commands to paste never come from a file.
    """
    kept = run.diagnosis()
    if kept is None:
        return None
    try:
        found = msgspec.convert(kept, Kept, str_keys=True)
    except msgspec.ValidationError:  # of another version
        return None
    return _judged(run, found) if found.model == run.model_checksum() else None


def _judged(run: Run, kept: Kept) -> Diagnosis:
    prescriber = Prescriber(run, kept.target_kind, in_python=kept.in_python)
    findings = findings_of(kept.measures, run.config, prescriber)
    return Diagnosis(findings, kept.measures, kept.model, kept.target_kind, kept.in_python)


def findings_of(seen: Measures, config: TrainConfig, prescribe: Prescriber) -> list[Finding]:
    """All conditions that hold, causes first, with what their first remedy brought where it was measured."""
    case, brought = Case(seen, config, prescribe), measured()
    found: dict[str, Finding] = {}
    for condition in CONDITIONS:
        if (finding := condition(case)) is not None:
            found.setdefault(finding.name, finding)
    return [_with_experience(finding, brought) for finding in found.values()]


def _with_experience(finding: Finding, brought: Mapping[str, Brought]) -> Finding:
    if finding.name not in brought:
        return finding
    tried = next((remedy for remedy in finding.remedies if remedy.settings), None)
    known = [
        msgspec.structs.replace(remedy, brought=brought[finding.name]) if remedy is tried else remedy
        for remedy in finding.remedies
    ]
    return msgspec.structs.replace(finding, remedies=known)
