"""Slots as Optuna records them: parameters with the ranges they come from, which is what its dashboard draws."""

from longspan.search import storage
from longspan.search.definition import StudyDefinition
from longspan.search.space import Choices, Interval


def recorded_parameters(definition: StudyDefinition, slot: int) -> tuple[dict, dict]:
    """Parameters and distributions of a slot.

    The recipe of slot 0 may lie outside the space, so ranges are widened to hold it; a value that no range can hold (a
    zero on a logarithmic axis) is left out of the record. The trial's run folder has every setting in any case.
    """
    config = definition.config_of(slot)
    parameters, distributions = {}, {}
    for name, dimension in definition.parsed_space.items():
        distribution = _distribution(dimension, getattr(definition.base, name))
        value = getattr(config, name)
        if distribution is not None and _holds(distribution, value):
            parameters[name], distributions[name] = value, distribution
    return parameters, distributions


def _distribution(dimension, shipped):
    kinds = storage.import_optuna().distributions
    if isinstance(dimension, Choices):
        return kinds.CategoricalDistribution(tuple(dict.fromkeys((*dimension.values, shipped))))
    if not isinstance(dimension, Interval):
        return None
    low, high = dimension.low, dimension.high
    if isinstance(shipped, int | float) and (shipped > 0 or not dimension.log):
        low, high = min(low, shipped), max(high, shipped)
    if dimension.whole:
        return kinds.IntDistribution(int(low), int(high), log=dimension.log)
    return kinds.FloatDistribution(low, high, log=dimension.log)


def _holds(distribution, value) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:
        return False
