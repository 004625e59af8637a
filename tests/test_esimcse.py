"""ESimCSE: repetition against a plain loop and re-tokenising, and the momentum queue."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_cli.config.ingredients import MomentumQueueConfig, WordRepetitionConfig
from cse_cli.data.corpus import open_corpus
from cse_cli.data.tokens import Tokens
from cse_cli.encoder import Encoder
from cse_cli.errors import UsageError
from cse_cli.methods.base import Views, draw
from cse_cli.methods.esimcse import WordRepetition, repeat, repetition_limit, word_limit
from cse_cli.methods.momentum_queue import MomentumQueue
from cse_cli.methods.resolve import resolve
from tests.trainer import make_trainer

CLS, SEP, PAD, FIRST = 2, 3, 0, 5  # of the tiny tokenizer; words are FIRST and above


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> Encoder:
    return Encoder.load(str(tiny_bert), pooler="cls")


def rows_of(contents: list[list[int]], starts: list[list[bool]] | None = None) -> Tokens:
    marks = starts or [[True] * len(row) for row in contents]
    return Tokens.from_rows(
        [[CLS, *row, SEP] for row in contents],
        PAD,
        [[False, *row, False] for row in marks],
    )


def unpadded(tokens: Tokens) -> list[list[int]]:
    return [ids[:n].tolist() for ids, n in zip(tokens.ids, tokens.lengths, strict=True)]


def is_repetition(longer: list[int], row: list[int]) -> bool:
    """Whether `longer` is `row` with some tokens twice in a row (each at most)."""
    if not row:
        return not longer
    if longer[:2] == [row[0]] * 2 and is_repetition(longer[2:], row[1:]):
        return True
    return longer[:1] == row[:1] and is_repetition(longer[1:], row[1:])


# ------------------------------------------------------------------------------ the number of them


@pytest.mark.parametrize(
    ("n", "rate", "limit"),
    [(0, 0.32, 0), (1, 0.32, 1), (2, 0.32, 2), (6, 0.32, 2), (10, 0.32, 3), (30, 0.32, 9),
     (30, 0.0, 2), (30, 1.0, 30), (100, 0.32, 32)],
)  # fmt: skip
def test_limit_is_equation_4(n: int, rate: float, limit: int) -> None:
    assert repetition_limit(n, rate) == limit


@pytest.mark.parametrize(
    ("n", "limit"), [(0, 0), (1, 0), (4, 0), (5, 1), (10, 2), (30, 9), (100, 9)]
)
def test_released_limit_is_exclusive_and_capped(n: int, limit: int) -> None:
    assert repetition_limit(n, 0.32, "released") == limit


@given(st.integers(0, 600), st.floats(0, 1))
def test_limits_never_exceed_what_there_is(n: int, rate: float) -> None:
    for rule in ("paper", "released"):
        assert 0 <= repetition_limit(n, rate, rule) <= n
        assert 0 <= word_limit(n, rate, rule) <= n
    assert word_limit(n, rate, "released") <= 9


# ---------------------------------------------------------------------------------- one row's ids


def test_repeat_doubles_the_named_positions() -> None:
    assert repeat([101, 7, 8, 102], [1]) == [101, 7, 7, 8, 102]
    assert repeat([7, 8], []) == [7, 8]
    assert repeat(torch.tensor([7, 8]), {1, 0}).tolist() == [7, 7, 8, 8]


@given(st.lists(st.integers(0, 99), max_size=30), st.data())
def test_repeat_against_a_loop(ids: list[int], data: st.DataObject) -> None:
    positions = data.draw(st.sets(st.integers(0, len(ids) - 1))) if ids else set()
    expected = []
    for place, token in enumerate(ids):
        expected += [token] * (2 if place in positions else 1)
    assert repeat(ids, positions) == expected


# ------------------------------------------------------------------------------- batches of rows

contents = st.lists(
    st.lists(st.integers(FIRST, 40), min_size=1, max_size=20), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(contents, st.floats(0, 1), st.sampled_from(["paper", "released"]), st.integers(0, 99))
def test_subword_repetition(
    encoder: Encoder, content: list[list[int]], rate: float, rule: str, seed: int
) -> None:
    part = WordRepetition(WordRepetitionConfig(dup_rate=rate, dup_rule=rule), encoder)
    tokens = rows_of(content)
    longer = part.positive(tokens, draw(seed, 1, "x"))
    for row, before in zip(unpadded(longer), content, strict=True):
        assert (row[0], row[-1]) == (CLS, SEP)
        assert row.count(CLS) == row.count(SEP) == 1
        assert is_repetition(row[1:-1], before)
        assert len(row) - 2 - len(before) <= repetition_limit(len(before), rate, rule)
    assert (longer.ids[~longer.mask] == PAD).all()
    assert not longer.starts[~longer.mask].any()
    assert longer.lengths.max() == longer.ids.shape[1]


def test_every_number_of_repetitions_up_to_the_limit_comes_evenly(encoder: Encoder) -> None:
    part = WordRepetition(WordRepetitionConfig(dup_rate=0.5), encoder)
    tokens = rows_of([list(range(FIRST, FIRST + 10))] * 6000)
    longer = part.positive(tokens, draw(0, 1, "x"))
    counts = torch.bincount(longer.lengths - tokens.lengths, minlength=6)
    assert len(counts) == 6  # 0 … int(0.5 * 10)
    assert (counts - 1000).abs().max() < 150  # 5 standard deviations
    doubled = (longer.ids[:, 1:] == longer.ids[:, :-1]) & (longer.ids[:, 1:] >= FIRST)
    places = longer.ids[:, 1:][doubled] - FIRST
    share = torch.bincount(places, minlength=10) / len(places)
    assert (share - 0.1).abs().max() < 0.02  # every position as often


def test_redrawn_at_every_step(encoder: Encoder) -> None:
    part = WordRepetition(WordRepetitionConfig(), encoder)
    tokens = rows_of([list(range(FIRST, FIRST + 20))] * 8)
    first, second = (part.positive(tokens, draw(0, step, "positive/0")) for step in (1, 2))
    assert unpadded(first) != unpadded(second)


def test_words_are_repeated_whole(encoder: Encoder) -> None:
    part = WordRepetition(WordRepetitionConfig(repeat="word", dup_rate=1.0), encoder)
    tokens = rows_of([[10, 11, 12, 13, 14]], [[True, False, False, True, True]])
    words = [[10, 11, 12], [13], [14]]
    seen = set()
    for seed in range(60):
        (row,) = unpadded(part.positive(tokens, draw(seed, 1, "x")))
        options = {
            tuple(t for i, w in enumerate(words) for t in w * (1 + (bits >> i & 1)))
            for bits in range(8)
        }
        assert tuple(row[1:-1]) in options
        seen.add(tuple(row))
    assert len(seen) == 8


def test_repeated_words_equal_the_retokenised_text(
    encoder: Encoder, sentences: list[str], tmp_path: Path
) -> None:
    """Words repeated in the stored row are the words repeated in the text, then tokenised."""
    file = tmp_path / "text.txt"  # first and last words of several tokens; no word twice
    texts = [f"zzxq, {' '.join(dict.fromkeys(s.split()))} balls." for s in sentences[:20]]
    file.write_text("\n".join(texts), encoding="utf-8")
    corpus = open_corpus([str(file)], encoder.tokenizer, max_length=64)
    part = WordRepetition(WordRepetitionConfig(repeat="word", dup_rate=1.0), encoder)
    rows = unpadded(part.positive(corpus.batch(torch.arange(20)), draw(0, 1, "x")))
    repeated = 0
    for row, text in zip(rows, texts, strict=True):
        words = text.split()
        pieces = [encoder.tokenizer(w, add_special_tokens=False)["input_ids"] for w in words]
        times = _times(row[1:-1], pieces)
        spoken = " ".join(w for w, n in zip(words, times, strict=True) for _ in range(n))
        assert row == encoder.tokenizer(spoken)["input_ids"]
        repeated += sum(times) - len(words)
    assert repeated > 20


def _times(row: list[int], pieces: list[list[int]]) -> list[int]:
    """How often each word stands in `row`, read greedily; fails where it is not words."""
    times = []
    for piece in pieces:
        assert row[: len(piece)] == piece
        row = row[len(piece) :]
        twice = row[: len(piece)] == piece
        row = row[len(piece) :] if twice else row
        times.append(2 if twice else 1)
    assert not row
    return times


def test_released_words_spare_the_last(encoder: Encoder) -> None:
    config = WordRepetitionConfig(repeat="word", dup_rate=1.0, dup_rule="released")
    part = WordRepetition(config, encoder)
    tokens = rows_of([[10, 11, 12]] * 200)
    rows = unpadded(part.positive(tokens, draw(0, 1, "x")))
    assert all(row[-3:-1] != [12, 12] for row in rows)
    assert any(len(row) > 5 for row in rows)


@pytest.mark.parametrize("kind", ["stop-word", "mask"])
def test_insertions_stand_behind_whole_words(encoder: Encoder, kind: str) -> None:
    part = WordRepetition(WordRepetitionConfig(repeat=kind, dup_rate=1.0), encoder)
    assert part.inserted is not None
    allowed = set(part.inserted.tolist())
    tokens = rows_of([[10, 11, 12]] * 100, [[True, False, True]] * 100)
    rows = unpadded(part.positive(tokens, draw(0, 1, "x")))
    for row in rows:
        extra = [t for t in row[1:-1] if t in allowed]
        assert [t for t in row[1:-1] if t not in allowed] == [10, 11, 12]
        assert row[row.index(10) + 1] == 11  # nothing inside the word
        assert len(extra) <= 2
    assert max(map(len, rows)) == 7
    if kind == "mask":
        assert allowed == {encoder.tokenizer.mask_token_id}
    else:
        assert set(encoder.tokenizer.convert_ids_to_tokens(sorted(allowed))) <= {"a", "the"} | set(
            "abcdefghijklmnopqrstuvwxyz"
        )


def test_rows_may_outgrow_the_training_length_but_not_the_positions(encoder: Encoder) -> None:
    part = WordRepetition(WordRepetitionConfig(dup_rate=1.0), encoder)
    assert part.room == 64
    tokens = rows_of([list(range(FIRST, FIRST + 30))] * 50 + [[10] * 62] * 10)
    longer = part.positive(tokens, draw(0, 1, "x"))
    assert longer.lengths[:50].max() > 32
    assert longer.lengths.max() == 64
    assert (longer.lengths[50:] == 64).all()
    encoder.pooled(longer)


def test_specials_inside_a_text_are_not_repeated(encoder: Encoder) -> None:
    part = WordRepetition(WordRepetitionConfig(dup_rate=1.0), encoder)
    tokens = rows_of([[10, SEP, 11]] * 100)
    assert all(row.count(SEP) == 2 for row in unpadded(part.positive(tokens, draw(0, 1, "x"))))


# ------------------------------------------------------------------------------ the momentum queue


@pytest.fixture
def queue_trainer(tiny_bert: Path, corpus_file: Path):
    def make(**settings: object):
        return make_trainer(tiny_bert, corpus_file, ["momentum-queue"], **settings)

    return make


def test_the_queue_fills_in_order_and_keeps_the_newest(queue_trainer) -> None:
    t = queue_trainer(queue_size="2.5x")
    (part,) = t.parts
    fills, newest = [], []
    for step in range(1, 5):
        fills.append(len(part.queue))
        assert part.negatives(t.step(step).views).shape == (8, len(part.queue))
        newest.append(part.queue[-8:].clone())
    assert fills == [0, 8, 16, 20]
    assert torch.equal(part.queue, torch.cat(newest)[-20:])
    assert not part.queue.requires_grad


@pytest.mark.parametrize("size", ["0", "0x"])
def test_an_empty_queue_is_simcse(size: str, queue_trainer, tiny_bert: Path, corpus_file) -> None:
    t, plain = queue_trainer(queue_size=size), make_trainer(tiny_bert, corpus_file)
    for step in (1, 2):
        assert torch.equal(t.step(step).loss, plain.step(step).loss)


def test_queue_vectors_are_the_originals_without_dropout(queue_trainer) -> None:
    t = queue_trainer(momentum=0.0)
    (part,) = t.parts
    outcome = t.step(1)
    t.encoder.eval()
    with torch.no_grad():
        clean = t.encoder.head(t.encoder.pooled(outcome.views.tokens).last)
    torch.testing.assert_close(part.queue, clean)


def test_the_average_moves_after_the_optimiser(queue_trainer) -> None:
    t = queue_trainer(momentum=0.75)
    (part,) = t.parts
    before = [p.clone() for p in part.encoder.parameters()]
    start = [p.detach().clone() for p in t.encoder.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, start, strict=True))  # the loaded model
    t.step(1)
    moved = list(t.encoder.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(start, moved, strict=True))
    for now, old, online in zip(part.encoder.parameters(), before, moved, strict=True):
        torch.testing.assert_close(now, 0.75 * old + 0.25 * online.detach())


def test_the_online_head(queue_trainer) -> None:
    t = queue_trainer(momentum=1.0, momentum_head="online")
    (part,) = t.parts
    outcome = t.step(1)
    with torch.no_grad():
        pooled = part.encoder.pooled(outcome.views.tokens).last
        online, average = t.encoder.head(pooled), part.encoder.head(pooled)
    torch.testing.assert_close(part.queue, online)
    assert not torch.allclose(online, average)


def test_a_batchnorm_head_uses_the_batch(queue_trainer) -> None:
    t = queue_trainer(head="batchnorm")
    (part,) = t.parts
    t.step(1)
    torch.testing.assert_close(part.queue.mean(0), torch.zeros(32), atol=1e-5, rtol=0)
    torch.testing.assert_close(part.queue.var(0, correction=0), torch.ones(32), atol=1e-2, rtol=0)


def test_the_copy_is_frozen_and_its_dropout_stays_off(queue_trainer) -> None:
    (part,) = queue_trainer().parts
    assert not any(p.requires_grad for p in part.parameters())
    part.train()
    assert not any(m.training for m in part.encoder.backbone.modules())


@pytest.mark.parametrize(
    ("name", "value"),
    [("queue_size", "-1"), ("queue_size", "2.5"), ("queue_size", "many"), ("queue_size", "-2x"),
     ("queue_size", "nanx"), ("dup_rate", 1.5), ("dup_rate", -0.1), ("momentum", 2.0),
     ("dup_rule", "papers"), ("repeat", "words")],
)  # fmt: skip
def test_bad_values_are_refused_in_one_line(name: str, value: object) -> None:
    flag = "--" + name.replace("_", "-")
    with pytest.raises(UsageError, match=flag) as error:
        resolve({"method": "esimcse", name: value})
    assert "\n" not in str(error.value)


def test_an_option_without_its_ingredient_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--queue-size belongs to 'momentum-queue'"):
        resolve({"method": "simcse", "queue_size": "160"})


def test_queue_negatives_take_no_gradient(encoder: Encoder) -> None:
    part = MomentumQueue(MomentumQueueConfig(), encoder)
    part.queue = torch.randn(5, 32, requires_grad=True)
    h = torch.randn(3, 32, requires_grad=True)
    tokens = rows_of([[10]] * 3)
    part.negatives(Views(h, h, tokens, tokens, 0.05, 0, 1)).sum().backward()
    assert part.queue.grad is None
    assert h.grad is not None
