"""Paired studies: arms differ by their letters alone, shards merge to the bytes of one machine, stops cost nothing."""

import dataclasses
import hashlib
import itertools
import sys

import msgspec
import pytest

from longspan import recipes
from longspan.arms import protocol
from longspan.arms.protocol import BUDGETS, RECIPE_SLOT, Shard, define
from longspan.arms.records import (
    DEFINITION,
    RESULTS,
    TIMINGS,
    WINNERS,
    SlotResult,
    SlotTiming,
    encode_line,
    merge,
    merge_timings,
    read_all,
    read_lines,
    write_lines,
)
from longspan.arms.runner import StudyFolder, define_for, run_tasks, slot_tasks, winner_tasks
from longspan.cli import run as command
from longspan.cli.compare_methods import run_workers
from longspan.config import as_dict
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.training.loop import train
from longspan.training.runs import Run

JSB = define("jsb", "frames", "print", {100: 243}, -12.0)
LETTER_FIELDS = {
    "c": {"clip"},
    "l": {"leaky_share", "leak_low", "leak_high"},
    "r": {"activation", "l1"},
    "m": {"momentum", "momentum_schedule", "learning_rate"},
}


@pytest.mark.parametrize("slot", range(6))
@pytest.mark.parametrize(("more", "fewer"), [("sgd+c", "sgd"), ("sgd+cl", "sgd+c"), ("sgd+clr", "sgd+cl")])
def test_two_arms_of_a_slot_differ_by_what_a_letter_brings_and_nothing_else(more, fewer, slot):
    (letter,) = set(more) - set(fewer) - {"+"}
    with_letter, without = (as_dict(JSB.config_of(arm, slot)) for arm in (more, fewer))
    different = {name for name in with_letter if with_letter[name] != without[name]}
    assert different <= LETTER_FIELDS[letter] | {"recipe"}
    assert different >= {"recipe"} | (LETTER_FIELDS[letter] - {"activation"} if letter != "m" else set())


def test_the_drawn_rate_is_the_effective_one_whatever_the_momentum():
    for slot in range(20):
        plain, momentum = (JSB.config_of(arm, slot) for arm in ("nade:sgd+cr", "nade:sgd+crm"))
        assert momentum.momentum > 0
        assert momentum.learning_rate / (1 - momentum.momentum) == pytest.approx(plain.learning_rate)


def test_the_regime_is_the_papers():
    for slot, arm in JSB.tasks():
        config = JSB.config_of(arm, slot)
        assert (config.dropout, config.averaging, config.lanes, config.chunk_length) == (0, 0, 1, 100)
        assert config.seed == JSB.seed * 1000 + slot
        if config.optimizer == "sgd":
            assert config.max_updates == BUDGETS["jsb"].updates == config.max_epochs * 243


def test_every_beginning_of_the_tasks_is_balanced():
    counts = dict.fromkeys(JSB.arms, 0)
    for slot, arm in JSB.tasks():
        counts[arm] += 1
        descent = [count for name, count in counts.items() if "hf" not in name]
        assert max(descent) - min(descent) <= 1
        assert counts[arm] == slot + 1
    assert counts["sgd"] == 40
    assert counts["hf"] == 12


def test_other_draws_are_another_definition():
    assert JSB.identity == define("jsb", "frames", "print", {100: 243}, -12.0).identity
    assert JSB.identity != define("jsb", "frames", "print", {100: 243}, -12.0, seed=7).identity
    assert JSB.identity != define("jsb", "frames", "other data", {100: 243}, -12.0).identity


def test_a_changed_space_is_another_definition(monkeypatch):
    monkeypatch.setitem(protocol.LETTER_SETTINGS, "c", {"clip": [1.0]})
    assert JSB.identity != define("jsb", "frames", "print", {100: 243}, -12.0).identity


def result(slot: int = 0, arm: str = "sgd", **changes) -> SlotResult:
    plain = SlotResult("jsb", slot, arm, "done", -9.0, -8.5, 3, 5, 500, "", {"clip": 1.0}, "id", "1", "avx2")
    return msgspec.structs.replace(plain, **changes)


def test_any_order_and_any_repetition_merges_to_the_same_list():
    results = [result(slot, arm) for slot in range(3) for arm in ("sgd", "sgd+c")]
    expected = merge(results)
    for shuffled in itertools.islice(itertools.permutations(results), 0, 720, 31):
        assert merge([*shuffled, *shuffled[:2]]) == expected
    assert merge([*merge(results[:2]), *merge(results[2:])]) == expected


@pytest.mark.parametrize("what", ["definition", "version", "instruction_set"])
def test_results_that_are_not_comparable_do_not_merge_unless_told(what):
    mixture = [result(0), result(1, **{what: "other"})]
    with pytest.raises(InputError, match=what.replace("_", " ")):
        merge(mixture)
    assert len(merge(mixture, allow_mixed=True)) == 2


def test_contradicting_results_never_merge():
    with pytest.raises(InputError, match="two results"):
        merge([result(), result(valid=-8.0)], allow_mixed=True)


def test_a_slot_run_twice_has_its_shorter_time():
    timings = [SlotTiming("jsb", 0, "sgd", "id", seconds, "cpu") for seconds in (9.0, 3.0, 5.0)]
    assert [each.processor_seconds for each in merge_timings(timings)] == [3.0]


def test_a_torn_last_line_is_passed_over_and_a_torn_middle_one_refused(tmp_path):
    lines = [encode_line(result(slot)) for slot in range(3)]
    file = tmp_path / "jsb.jsonl"
    file.write_bytes(b"".join(lines)[:-7])
    assert read_lines(file, SlotResult) == [result(0), result(1)]
    file.write_bytes(lines[0][:-7] + b"\n" + lines[1])
    with pytest.raises(InputError, match="line 1"):
        read_lines(file, SlotResult)


ARMS = ("sgd", "nade:sgd+crm")


def run_all(folder, data, shard="1/1", interrupted=lambda: False):
    study = StudyFolder(folder, define_for(data, seed=1), Shard.parse(shard))
    tasks = slot_tasks(study.definition, study.shard, arms=ARMS)
    return list(run_tasks(study, data, tasks, environment={}, interrupted=interrupted))


def slots_in(folder):
    return read_all(sorted(folder.glob(f"*{RESULTS}")), SlotResult)


def run_winners(folder, data, results, shard="1/1"):
    study = StudyFolder(folder, define_for(data, seed=1), Shard.parse(shard))
    tasks = winner_tasks(study.definition, study.shard, results)
    return [ended.result for ended in run_tasks(study, data, tasks, environment={})]


def merged_bytes(*folders, ending=RESULTS):
    command(["merge", *map(str, folders), "-o", str(folders[0] / "merged")])
    return (folders[0] / "merged" / f"jsb{ending}").read_bytes()


def test_shards_in_two_folders_merge_to_the_bytes_of_one_machine(tiny, tmp_path):
    alone = [each for each, _ in run_all(tmp_path / "one", tiny)]
    assert [(each.slot, each.arm) for each in alone] == [(slot, arm) for slot in range(3) for arm in ARMS]
    assert {each.updates for each in alone} == {10}
    run_all(tmp_path / "first", tiny, "1/2")
    run_all(tmp_path / "second", tiny, "2/2")
    assert merged_bytes(tmp_path / "first", tmp_path / "second") == merged_bytes(tmp_path / "one")
    assert (tmp_path / "first" / "merged" / f"jsb{DEFINITION}").exists()
    assert len(read_lines(tmp_path / "first" / "merged" / f"jsb{TIMINGS}", SlotTiming)) == 6


def test_a_stopped_shard_goes_on_to_the_same_results_and_repeats_nothing(tiny, tmp_path):
    expected = [each for each, _ in run_all(tmp_path / "one", tiny)]
    asked = itertools.count()
    stopped = run_all(tmp_path / "two", tiny, interrupted=lambda: next(asked) >= 2)
    assert len(stopped) < len(expected)
    rest = run_all(tmp_path / "two", tiny)
    assert [each for each, _ in [*stopped, *rest]] == expected
    assert run_all(tmp_path / "two", tiny) == []
    assert not any((tmp_path / "two" / "runs").glob("*/*"))


def test_processes_that_share_a_folder_share_its_slots(tiny, tmp_path):
    study = StudyFolder(tmp_path, define_for(tiny, seed=1), Shard())
    tasks = slot_tasks(study.definition, study.shard, slots=2, arms=("sgd",))
    study.open()
    with study.claimed(tasks[0]) as mine:  # as another process would hold it
        assert mine
        (first,) = run_tasks(study, tiny, tasks, environment={})
    (second,) = run_tasks(study, tiny, tasks, environment={})
    assert [first.result.slot, second.result.slot] == [1, 0]
    assert slots_in(tmp_path) == [first.result, second.result]


@pytest.fixture
def chosen_from(tiny):
    """Made-up results of all slots of one arm, of which slot 1 is the best."""
    definition = define_for(tiny, seed=1)
    return [result(slot, valid=[1.0, 3.0, 2.0][slot], definition=definition.identity) for slot in range(3)]


def test_winners_are_the_slots_that_validation_chose_with_seeds_of_their_own(tiny, tmp_path, chosen_from):
    winners = run_winners(tmp_path / "one", tiny, chosen_from)
    definition = define_for(tiny, seed=1)
    assert {(each.arm, each.slot) for each in winners} == {("sgd", 1)}
    assert not {each.seed for each in winners} & {definition.config_of("sgd", slot).seed for slot in range(500)}
    assert len({each.valid for each in winners}) == 3
    first = winners[0]
    config = dataclasses.replace(definition.config_of("sgd", 1), seed=first.seed)
    run = Run.create(tmp_path / "again", config, tiny.record, {})
    with run.locked():
        model = train(run, tiny).model
    assert SplitEvaluator(tiny, "test").scores(model).log_likelihood == first.test["log_likelihood"]

    run_winners(tmp_path / "two", tiny, chosen_from, "1/2")
    run_winners(tmp_path / "two", tiny, chosen_from, "2/2")
    assert run_winners(tmp_path / "two", tiny, chosen_from) == []
    alone, parts = (merged_bytes(tmp_path / folder, ending=WINNERS) for folder in ("one", "two"))
    assert alone == parts
    write_lines(tmp_path / f"jsb{WINNERS}", [msgspec.structs.replace(first, definition="other")])
    assert command(["merge", str(tmp_path), "-o", str(tmp_path / "one" / "merged")]) == 2


def test_no_winner_of_an_arm_whose_slots_are_not_all_there(tiny, chosen_from):
    definition = define_for(tiny, seed=1)
    assert winner_tasks(definition, Shard(), chosen_from[:2]) == []
    chosen = winner_tasks(definition, Shard(), chosen_from, slots=1)
    assert {(task.arm, task.slot) for task in chosen} == {("sgd", 0)}
    with pytest.raises(InputError, match="definition x"):
        winner_tasks(definition, Shard(), [msgspec.structs.replace(chosen_from[0], definition="x")])


def test_ablations_are_a_study_of_their_own_with_the_same_draws(tiny, tmp_path):
    paper, letters = (define("jsb", "frames", "print", {100: 243}, -12.0, ablations=each) for each in (False, True))
    assert (paper.compares_letters, letters.compares_letters) == (False, True)
    assert paper.identity != letters.identity
    for arm in set(paper.arms) & set(letters.arms):
        assert paper.config_of(arm, 3) == letters.config_of(arm, 3)
    full = as_dict(letters.config_of("sgd+clrm", 3))
    for letter, fields in LETTER_FIELDS.items():
        fewer = as_dict(letters.config_of(f"sgd+{'clrm'.replace(letter, '')}", 3))
        more = as_dict(letters.config_of(f"sgd+{letter}", 3))
        plain = as_dict(letters.config_of("sgd", 3))
        for one, other in ((full, fewer), (more, plain)):
            assert {name for name in one if one[name] != other[name]} <= fields | {"recipe"}


COUNTED_SETTINGS = """
activation averaging block cd_steps cell cg_iterations chunk_length class_rule classes clip curvature_sequences data
decay_steps dropout hidden_size initial_damping input_scale l1 lanes leak_high leak_low leaky_share learning_rate
learning_rate_schedule loss max_epochs max_updates minimal_damping momentum momentum_schedule nade_size optimizer output
output_scale patience plateau_epochs pretrain_frames pretrain_rate pretrain_recurrent rbm_size recipe recurrent_init
recurrent_scale seed slice_size span structural_damping tempering threads
"""


@pytest.mark.parametrize(
    ("definition", "identity", "digest"),
    [
        (JSB, "79a7b6e7", "9072d9ab65022328"),
        (define("ptb-words", "words", "print", {40: 23000}, -7.0), "3e3b493e", "323a66c4fdab3012"),
        (define("ptb-chars", "characters", "print", {50: 1000, 150: 300}, -3.0), "988f3f7c", "86038d7c3b9b44c8"),
    ],
    ids=lambda each: each.data if isinstance(each, protocol.Definition) else "",
)
def test_counted_slots_keep_their_identity_and_settings(definition, identity, digest):
    """Both were computed by version 0.2.0a2, which makes the counted slots. Winners are trained by later versions, so a
    default that changes must be written into the protocol with its old value."""
    configs = [as_dict(definition.config_of(arm, slot)) for slot, arm in definition.tasks()]
    content = msgspec.json.encode([{name: config[name] for name in COUNTED_SETTINGS.split()} for config in configs])
    assert definition.identity == identity
    assert hashlib.sha256(content).hexdigest()[:16] == digest


WORKER = """
import os, pathlib, signal, sys, time
marks = pathlib.Path(sys.argv[1])
(marks / str(os.getpid())).touch()
if len(list(marks.iterdir())) == 1:
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
(marks / f"ready-{os.getpid()}").touch()
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""


def test_workers_are_restarted_when_killed_and_stopped_with_their_parent(tmp_path):
    def run(folder, seconds, code, interrupted):
        (tmp_path / folder).mkdir()
        return run_workers([sys.executable, "-c", WORKER, str(tmp_path / folder), seconds, code], 2, interrupted)

    assert run("done", "0", "0", lambda: False) == 0
    assert len(list((tmp_path / "done").glob("ready-*"))) == 2
    assert run("failed", "0", "2", lambda: False) == 2
    ready = lambda: len(list((tmp_path / "stopped").glob("ready-*"))) == 2  # noqa: E731
    assert run("stopped", "600", "0", ready) == 130


def test_bad_input_is_one_line(tmp_path, capsys):
    assert command(["merge", str(tmp_path / "nothing")]) == 2
    write_lines(tmp_path / "a.jsonl", [result(0), result(1, version="2")])
    assert command(["merge", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    assert all(line.startswith("longspan: ") for line in capsys.readouterr().err.splitlines())
    for arguments in (["temporal-order"], *(["jsb", "--shard", shard] for shard in ("0/2", "3/2", "x", "1"))):
        assert command(["compare-methods", *arguments]) == 2
    assert capsys.readouterr().err.count("longspan: ") == 5
    hosted = ["--storage", "sqlite:///x.db"]
    for arguments in (["--workers", "0"], ["--winners", "x", "--recipes"], [*hosted, "--shard", "1/2"]):
        assert command(["compare-methods", "jsb", *arguments]) == 2
    assert capsys.readouterr().err.count("longspan: ") == 3


def test_the_shipped_recipe_is_run_apart_without_dropout_and_averaging(tiny, tmp_path):
    definition = define_for(tiny, seed=1)
    for arm in definition.arms:
        config = definition.config_of(arm, RECIPE_SLOT)
        assert (config.dropout, config.averaging, config.recipe) == (0, 0, arm)
        assert config.max_updates == (10 if config.optimizer == "sgd" else 0)
    assert config_without_limits(definition.config_of("sgd+c", RECIPE_SLOT)) == config_without_limits(
        dataclasses.replace(recipes.settings("sgd+c", "jsb"), dropout=0, averaging=0)
    )
    study = StudyFolder(tmp_path, definition, Shard())
    tasks = slot_tasks(definition, Shard(), arms=("sgd",), recipes_only=True)
    ((ended, _),) = run_tasks(study, tiny, tasks, environment={})
    assert ended.slot == RECIPE_SLOT


def config_without_limits(config):
    return dataclasses.replace(config, max_updates=0, max_epochs=1, patience=1)
