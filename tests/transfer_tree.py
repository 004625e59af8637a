"""A small SentEval folder with every transfer task, and probing files."""

import random
from pathlib import Path

from cse_cli.data.transfer import SICK_CLASSES, TREC_CLASSES

ROWS = 40  # of each class


def write_transfer_tree(folder: Path, words: list[str], *, seed: int = 0) -> Path:
    """All tasks under `folder/downstream`, learnable by the words of a class; returns `folder`."""
    draw = random.Random(seed)

    def sentence(label: int = 0) -> str:
        own = words[2 * label : 2 * label + 3]
        return " ".join(draw.choices(words, k=draw.randint(2, 6)) + draw.choices(own, k=2))

    def write(name: str, lines: list[str], encoding: str = "utf-8") -> None:
        path = folder / "downstream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))

    binary = {
        "MR/rt-polarity.pos": 1,
        "MR/rt-polarity.neg": 0,
        "CR/custrev.pos": 1,
        "CR/custrev.neg": 0,
        "SUBJ/subj.objective": 1,
        "SUBJ/subj.subjective": 0,
        "MPQA/mpqa.pos": 1,
        "MPQA/mpqa.neg": 0,
    }
    for name, label in binary.items():
        write(name, [f"café {sentence(label)} " for _ in range(ROWS)], "latin-1")
    for split in ("train", "dev", "test"):
        pairs = [(sentence(label), label) for label in (0, 1) for _ in range(ROWS)]
        write(f"SST/binary/sentiment-{split}", [f"{text} \t{label}" for text, label in pairs])
        fives = [(label, sentence(label)) for label in range(5) for _ in range(ROWS // 2)]
        write(f"SST/fine/sentiment-{split}", [f"{label} {text}" for label, text in fives])
    for name in ("train_5500", "TREC_10"):
        asked = [f"{c}:x {sentence(i)} ?" for i, c in enumerate(TREC_CLASSES) for _ in range(ROWS)]
        write(f"TREC/{name}.label", asked, "latin-1")
    for split in ("train", "test"):
        rows = [
            f"{label}\t1\t2\t{sentence(0)}\t{sentence(0 if label else 2)}"
            for label in (0, 1)
            for _ in range(ROWS)
        ]
        write(f"MRPC/msr_paraphrase_{split}.txt", ["Quality\t#1 ID\t#2 ID\ta\tb", *rows])
    for split in ("train", "trial", "test_annotated"):
        rows = [
            f"{i}\t{sentence(0)}\t{sentence(label)}\t{5 - 2 * label + draw.random() - 0.5:.2f}\t{c}"
            for label, c in enumerate(SICK_CLASSES)
            for i in range(ROWS)
        ]
        write(f"SICK/SICK_{split}.txt", ["pair_ID\tA\tB\trelatedness_score\tentailment", *rows])
    return folder


def write_probing(folder: Path, words: list[str], *, seed: int = 0) -> Path:
    """`folder/probing/` with SentEval's tree_depth.txt and past_present.txt; returns `folder`."""
    draw = random.Random(seed)
    (folder / "probing").mkdir(parents=True, exist_ok=True)
    for name, labels in (("tree_depth", ("5", "6", "11")), ("past_present", ("PAST", "PRES"))):
        lines = []
        for split, rows in (("tr", 60), ("va", 20), ("te", 20)):
            for i in range(rows):
                number = i % len(labels)
                own = draw.choices(words[3 * number : 3 * number + 3], k=3)
                text = " ".join([*draw.choices(words, k=draw.randint(1, 6)), *own])
                lines.append(f"{split}\t{labels[number]}\t{text}\n")
        (folder / "probing" / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    return folder
