"""Which tokens begin a whitespace word, told from the character spans of a fast tokenizer.

Word repetition (ESimCSE) repeats whole words, and a token row alone does not say where words are:
a WordPiece row marks continuations but not punctuation glued to a word, and in byte-level or
sentencepiece rows the space itself may be a token. So the text is asked, once, when it is
tokenised, and the answer is kept as one bit a token.
"""

from collections.abc import Sequence

import numpy as np

LAST_SPACE = 0x3000  # the ideographic space; no code point above it is white space
_WHITE = np.array([chr(code).isspace() for code in range(LAST_SPACE + 1)] + [False])


def word_starts(texts: Sequence[str], counts: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mark the first token of every whitespace word (as `str.split` finds words).

    `counts` (N,) says how many tokens each of the N `texts` has, special tokens left out, at least
    one each; `spans` (K, 2) are the character spans, within its own text, of all K tokens in order.
    Returns (K,) bool. A token that stands for the space before a word (`Ġ`, `▁`) begins that word;
    of several tokens within one character only the first can begin one. Of a word that was cut on
    its left, the first token kept begins it.
    """
    joined = " " + " ".join(texts)  # so that a text's first character, too, follows a space
    codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
    white = _WHITE[np.minimum(codes, LAST_SPACE + 1)]
    begins = np.append(~white, False)  # a word begins here; False behind the end
    begins[1:-1] &= white[:-1]
    words = np.concatenate([[0], np.cumsum(begins[:-1])])  # words begun before a position
    letters = np.concatenate([[0], np.cumsum(~white)])

    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    base = 1 + np.concatenate([[0], np.cumsum(sizes[:-1] + 1)])  # where each text begins
    first = np.concatenate([[0], np.cumsum(counts[:-1])])  # each text's first token
    left, right = (spans + np.repeat(base, counts)[:, None]).T

    reached = words[right]
    before = np.concatenate([[0], reached[:-1]])
    before[first] = words[base]
    space = (letters[left] == letters[right]) & begins[right]  # only the space before a word
    after_space = np.concatenate([[False], space[:-1]])
    after_space[first] = False
    return space | ((reached > before) & ~after_space)
