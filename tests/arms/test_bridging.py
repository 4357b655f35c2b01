"""`longspan bridge`: equal draws for all methods, resumable, and a summary of seeds that solve a task."""

import dataclasses
import xml.etree.ElementTree as ElementTree

import pytest

from longspan.arms.bridging import (
    METHODS,
    Attempt,
    BridgingFolder,
    best_slot,
    config_of,
    read_attempts,
    run_study,
    summarize,
)
from longspan.arms.protocol import Shard
from longspan.errors import InputError
from longspan.reporting.span_picture import draw


def attempt(method="sgd", span=10, stage="seed", number=0, solved=True, error_rate=0.0, seconds=1.0, **rest):
    fields = {"task": "addition", "epochs": 3, "status": "done", "settings": {}, "version": "0", "processor": "p"}
    return Attempt(
        method=method,
        span=span,
        stage=stage,
        number=number,
        solved=solved,
        error_rate=error_rate,
        seconds=seconds,
        **(fields | rest),
    )


def test_all_methods_draw_the_same_shared_settings():
    configs = {method: config_of(method, "temporal-order", 30, 3) for method in METHODS}
    effective = {
        round(config.learning_rate / (1 - config.momentum), 10)
        for method, config in configs.items()
        if METHODS[method].recipe != "hf"
    }
    assert len(effective) == 1
    assert len({config.input_scale for config in configs.values()}) == 1
    assert len({config.seed for config in configs.values()}) == 1
    assert configs["sgd"].clip == "none"
    assert configs["sgd+crm, identity"].recurrent_init == "identity"
    assert configs["sgd+cm, omega"].omega > 0
    assert configs["sgd+clm, time scales"].leak_high == 0.999
    assert len({config_of("sgd", "addition", 30, slot).learning_rate for slot in range(8)}) == 8


def test_the_best_slot_solved_it_first_or_came_closest():
    slow, fast = attempt(stage="tuning", number=0, seconds=5.0), attempt(stage="tuning", number=1, seconds=2.0)
    failed = attempt(stage="tuning", number=2, solved=False, error_rate=0.3, seconds=1.0)
    worse = attempt(stage="tuning", number=3, solved=False, error_rate=0.4, seconds=0.5)
    assert best_slot([slow, fast, failed, worse], "addition", 10, "sgd") == fast
    assert best_slot([failed, worse], "addition", 10, "sgd") == failed


def test_the_summary_counts_seeds_and_the_picture_is_well_formed():
    seeds = [attempt(number=number, solved=number < 3, seconds=number + 1.0) for number in range(5)]
    tuning = [attempt(stage="tuning", number=number, solved=number < 2) for number in range(8)]
    (found,) = summarize(seeds + tuning)
    assert (found.solved, found.seeds, found.slots_solved, found.seconds) == (3, 5, 2, 2.0)
    spans = [dataclasses.replace(found, span=span, method=method) for span in (10, 100) for method in ("sgd", "a<b")]
    picture = ElementTree.fromstring(draw(spans))
    dots = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == 4 * 5
    assert sum(dot.get("class") == "solved" for dot in dots) == 4 * 3
    places = {(dot.get("cx"), dot.get("cy")) for dot in dots}
    assert len(places) == len(dots)
    assert all(0 < float(dot.get("cx")) < float(picture.get("viewBox").split()[2]) for dot in dots)


def test_a_study_is_resumed_and_split_into_shards(tmp_path):
    def study(shard=None, seconds=0.05):
        return run_study(
            BridgingFolder(tmp_path, shard or Shard()),
            ["memorization"],
            spans=(1,),
            methods=("sgd+c", "sgd+crm, identity"),
            shard=shard,
            slots=2,
            seeds=1,
            seconds=seconds,
        )

    first = next(iter(study()))
    assert (first.stage, first.number) == ("tuning", 0)
    rest = [*study(Shard(1, 2)), *study(Shard(2, 2))]
    assert len(rest) == 5
    assert len(read_attempts(tmp_path)) == 6
    assert list(study()) == []
    with pytest.raises(InputError, match=r"has runs of 0.05 s, asked for 20 s"):
        list(study(seconds=20.0))
    assert {each.settings["learning_rate"] for each in read_attempts(tmp_path) if each.stage == "seed"}


def test_unknown_methods_and_torn_results_are_refused(tmp_path):
    with pytest.raises(InputError, match="unknown method"):
        list(run_study(BridgingFolder(tmp_path, Shard()), ["addition"], methods=("sgd+x",)))
    (tmp_path / "a.jsonl").write_text('{"task": 3}\n')
    with pytest.raises(InputError, match="line 1 of"):
        read_attempts(tmp_path)
