"""Tokens of the Penn Treebank as the paper counts them, and of a user's text."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longspan.data import load
from longspan.data.text import TextData, load_text_file
from longspan.data.vocabulary import Unit, Vocabulary
from longspan.errors import InputError
from longspan.limits import TEXT_BYTES, UNBROKEN_BYTES
from tests.support.real_data import DATA, needs_benchmarks

LINES = [f"the cat number {word} sat on the mat" for word in "abcdefghijklmnopqrst"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "story.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def words_of(lines: list[str]) -> list[str]:
    return [word for line in lines for word in [*line.split(), "\n"]]


@needs_benchmarks
def test_penn_treebank_has_the_papers_counts() -> None:
    words, characters = load("ptb-words", DATA), load("ptb-chars", DATA)
    assert isinstance(words, TextData)
    assert isinstance(characters, TextData)
    assert {split: len(tokens) for split, tokens in words.splits.items()} == {
        "train": 929_589,
        "valid": 73_760,
        "test": 82_430,
    }
    assert {split: len(tokens) for split, tokens in characters.splits.items()} == {
        "train": 5_017_482,
        "valid": 393_042,
        "test": 442_423,
    }
    assert (len(words.vocabulary), len(characters.vocabulary)) == (10_000, 50)
    lines = (DATA / "ptb.test.txt").read_text().splitlines()
    assert words.symbols.decode(words.splits["test"]) == "".join(f"{' '.join(line.split())}\n" for line in lines)
    assert characters.symbols.decode(characters.splits["test"]) == "".join(f"{line.strip()}\n" for line in lines)


@pytest.mark.parametrize("unit", ["word", "character"])
def test_lines_are_split_in_order(path: Path, unit: Unit) -> None:
    data = load_text_file(path, "story", unit)
    assert {split: int(np.sum(ids == data.end_token)) for split, ids in data.splits.items()} == {
        "train": 18,
        "valid": 1,
        "test": 1,
    }
    for split, lines in zip(("train", "valid", "test"), (LINES[:18], LINES[18:19], LINES[19:]), strict=True):
        ids = data.splits[split]
        assert ids.dtype == np.int32
        assert ids[-1] == data.end_token
        if unit == "character":
            assert data.symbols.decode(ids) == "".join(line + "\n" for line in lines)
        else:
            expected = ["<unk>" if len(word) == 1 and word != "\n" else word for word in words_of(lines)]
            assert [data.vocabulary[token] for token in ids] == expected


def test_the_most_frequent_words_are_kept(path: Path) -> None:
    counts = Counter(words_of(LINES[:18]))
    data = load_text_file(path, "story", "word", vocabulary_size=5)
    kept = set(data.vocabulary) - {"<unk>"}
    assert len(data.vocabulary) == 5
    assert "\n" in kept
    assert min(counts[word] for word in kept) >= max(counts[word] for word in set(counts) - kept)
    lost = sum(count for word, count in counts.items() if word not in kept)
    (remark,) = data.remarks
    assert remark.startswith(f"{100 * lost / 162:.1f} % of train, ")
    assert remark.endswith("became <unk>: seen less than 2 times in training, or beyond the 5 most frequent")
    assert np.sum(data.splits["train"] == data.vocabulary.index("<unk>")) == lost


def test_rare_characters_are_unknown_only_beyond_the_limit(path: Path) -> None:
    whole = load_text_file(path, "story")
    assert set(whole.vocabulary) == set("\n".join(LINES))
    assert whole.remarks == ()
    small = load_text_file(path, "story", vocabulary_size=4)
    assert len(small.vocabulary) == 4
    assert {"\n", "\ufffd", "t", " "} == set(small.vocabulary)


def test_how_often_a_word_must_be_seen_is_a_choice(path: Path) -> None:
    usual, every = (load_text_file(path, "story", "word", minimum_count=least) for least in (None, 1))
    assert set(every.vocabulary) - set(usual.vocabulary) == set("abcdefghijklmnopqr")
    assert "cannot learn it" in every.remarks[1]
    assert set(load_text_file(path, "story", "word", minimum_count=100).vocabulary) == {"\n", "<unk>"}
    with pytest.raises(InputError, match="minimum_count must be at least 1"):
        load_text_file(path, "story", "word", minimum_count=0)


def test_tokens_take_punctuation_off_words(tmp_path: Path) -> None:
    path = tmp_path / "said.txt"
    path.write_text("\n".join(['"Well," said the well-known cat, "I don\'t (yet) owe 3.14%."'] * 20))
    data = load_text_file(path, "said", "token")
    words = ['"', "Well", ",", '"', "said", "the", "well-known", "cat", ",", '"', "I", "don't", "(", "yet", ")"]
    assert [data.vocabulary[token] for token in data.splits["test"]] == [*words, "owe", "3.14", "%", ".", '"', "\n"]
    assert 'the well-known cat, " I don\'t (yet) owe 3.14%. "' in data.symbols.decode(data.splits["test"])
    assert data.metrics == ("perplexity",)


@given(st.text(max_size=40))
def test_bytes_survive_encoding_in_any_language(text: str) -> None:
    data = Vocabulary("byte", tuple(map(chr, range(256))))
    text = text.encode("utf-8", "replace").decode()
    assert data.decode(data.encode(text)) == text
    assert len(data.encode(text)) == len(text.encode())


def test_bytes_need_no_encoding(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("Käse\n".encode("latin-1") * 50)
    data = load_text_file(path, "latin", "byte")
    assert len(data.vocabulary) == 256
    assert data.symbols.unknown is None
    assert data.metrics == ("bits_per_byte",)
    assert sum(map(len, data.splits.values())) == 250


@pytest.mark.parametrize("unit", ["character", "byte", "word", "token"])
def test_one_long_line_is_cut_where_no_symbol_is_split(tmp_path: Path, unit: Unit) -> None:
    path, text = tmp_path / "line.txt", "Grüße aus 東京 und " * 200
    path.write_text(text)
    data = load_text_file(path, "line", unit)
    whole = "".join(
        data.symbols.decode(data.splits[split]) + " " * (unit in ("word", "token")) for split in data.splits
    )
    assert whole.split() == text.split()
    assert len(data.splits["test"]) == pytest.approx(len(data.splits["train"]) / 18, rel=0.05)


def test_a_text_without_blanks_may_be_long(tmp_path: Path) -> None:
    text = "天地玄黃宇宙洪荒" * (UNBROKEN_BYTES // 20)
    assert len(text.encode()) > UNBROKEN_BYTES
    path = tmp_path / "chinese.txt"
    path.write_text(text)
    data = load_text_file(path, "chinese")
    assert "".join(data.symbols.decode(data.splits[split]) for split in data.splits).strip() == text
    with pytest.raises(InputError, match="without a space"):
        load_text_file(path, "chinese", "word")


def test_n_grams_stand_beside_a_text(path: Path) -> None:
    (best, figures), (_, single) = load_text_file(path, "story").baselines("test").rows()
    assert best.endswith("-gram, Kneser-Ney")
    assert figures["bits_per_character"] < single["bits_per_character"] / 2


@given(st.text(alphabet="the ca\n", max_size=40))
def test_characters_survive_encoding(text: str) -> None:
    data = Vocabulary("character", tuple("\nthe ca"))
    assert data.decode(data.encode(text)) == text


@given(st.lists(st.lists(st.sampled_from(["the", "cat", "<unk>"]), max_size=4), min_size=1, max_size=5))
def test_words_survive_encoding(lines: list[list[str]]) -> None:
    data = Vocabulary("word", ("\n", "the", "cat", "<unk>"))
    text = "\n".join(" ".join(line) for line in lines)
    assert data.decode(data.encode(text)) == text


def test_strangers_become_unknown_or_are_refused() -> None:
    words = Vocabulary("word", ("\n", "the", "<unk>"))
    assert words.encode("the zebra\n").tolist() == [1, 2, 0]
    characters = Vocabulary("character", ("\n", "a"))
    with pytest.raises(InputError, match="outside the vocabulary of 2"):
        characters.encode("az")


def test_windows_newlines_and_byte_order_mark_do_not_matter(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "windows.txt"
    other.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_text_file(other, "w").fingerprint == load_text_file(path, "s").fingerprint


def test_fingerprint_tells_contents_apart(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(path.read_text().replace("cat", "tac"))
    prints = {load_text_file(file, "x", unit).fingerprint for file in (path, other) for unit in ("word", "character")}
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"one line only", "has 1 line, expected at least 10"),
        (b"", "has 0 lines"),
        (b"a\nb\n", "has 2 lines"),
        (b"one\r\n" + "ein Käse\n".encode("latin-1") * 20, r"not UTF-8 text \(line 2\)"),
    ],
)
def test_unusable_texts_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        load_text_file(path, "bad")


def test_a_large_text_is_refused(path: Path) -> None:
    os.truncate(path, TEXT_BYTES + 1)
    with pytest.raises(InputError, match=f"more than the {TEXT_BYTES} allowed"):
        load_text_file(path, "big")


def test_a_vocabulary_needs_room(path: Path) -> None:
    with pytest.raises(InputError, match=r"vocabulary size must be from 3 .* got 2"):
        load_text_file(path, "x", "word", 2)
