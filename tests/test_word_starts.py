"""Word starts agree with tokenising word by word, for every family of tokenizers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_cli.data.tokenise import BatchTokenizer
from cse_cli.data.word_starts import _WHITE, LAST_SPACE, word_starts
from tests.small_tokenizers import FAMILIES, byte_level, wordpiece, wrap

CORES = {name: make() for name, make in FAMILIES.items()}
WORDS = st.text("abcdeTs'é中文,.-(2", min_size=1, max_size=8)
BEGIN, END = 1, 2
SPACE_IN_WORD = {"byte-level", "unigram-unprefixed"}  # families whose later words carry the space


def pieces(family: str, word: str, *, first: bool) -> list[int]:
    """The token ids of one word by itself, as they are within a sentence."""
    text = word if first or family not in SPACE_IN_WORD else f" {word}"
    return CORES[family].encode(text, add_special_tokens=False).ids


def sequences(core, texts, max_length=512):
    cutter = BatchTokenizer(wrap(core), max_length)
    return cutter.pack(texts, cutter.encode(texts), cutter.dtype())


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=150, deadline=None)
@given(sentences=st.lists(st.lists(WORDS, min_size=1, max_size=6), min_size=1, max_size=4))
def test_starts_agree_with_tokenising_word_by_word(family, sentences):
    packed = sequences(CORES[family], [" ".join(words) for words in sentences])
    ids, starts = [], []
    for words in sentences:
        ids.append(BEGIN)
        starts.append(False)
        for i, word in enumerate(words):
            tokens = pieces(family, word, first=i == 0)
            ids += tokens
            starts += [True] + [False] * (len(tokens) - 1) if tokens else []
        ids.append(END)
        starts.append(False)
    assert packed.ids.tolist() == ids
    assert packed.starts.tolist() == starts


def marked(core, text):
    """The tokens of `text`, starts marked by a bar in front."""
    packed = sequences(core, [text])
    tokens = [core.id_to_token(i) for i in packed.ids]
    return " ".join("|" * int(start) + t for t, start in zip(tokens, packed.starts, strict=True))


def test_a_space_too_many_begins_no_word():
    for trim in (False, True):
        core = byte_level(trim=trim, prefix=False)
        assert marked(core, "a  a") == "<s> |a Ġ |Ġa </s>"
        assert marked(core, "a 文").startswith("<s> |a |Ġ ")  # here the space is the word's own
        assert marked(core, "a 文").count("|") == 2


def test_glued_punctuation_and_characters_split_in_bytes_begin_no_word():
    assert marked(wordpiece(), "the cat, (a").count("|") == 3
    assert marked(byte_level(trim=False, prefix=False), "文文 a").count("|") == 2


def test_a_word_whose_first_character_the_tokenizer_drops_still_begins():
    assert marked(wordpiece(), "a \u200ethe").count("|") == 2


def test_every_white_space_of_python_is_known():
    spaces = [code for code in range(0x110000) if chr(code).isspace()]
    assert max(spaces) == LAST_SPACE
    assert np.flatnonzero(_WHITE).tolist() == spaces


def test_texts_do_not_leak_into_each_other():
    texts = ["ab", "cd e"]
    spans = np.array([[0, 2], [0, 2], [3, 4]])
    assert word_starts(texts, np.array([1, 2]), spans).tolist() == [True, True, True]
    spans = np.array([[0, 1], [1, 2], [0, 1], [1, 2], [3, 4]])
    assert word_starts(texts, np.array([2, 3]), spans).tolist() == [True, False, True, False, True]
