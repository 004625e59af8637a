"""`cse data make-probing`: probing sets from any corpus, without a parser."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cse_cli.cli.options import Format, Json, Output
from cse_cli.errors import InputError, UsageError, suggestion

if TYPE_CHECKING:
    from cse_cli.data.make_probing import ProbingRow

Corpus = Annotated[
    list[str],
    typer.Argument(
        metavar="CORPUS",
        help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, each also .gz; `-` is standard "
        "input. Several files are one corpus.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Gets a folder `probing` in SentEval's layout; then it is a --data-dir of "
        "`cse probe-linguistic`.",
        show_default=False,
    ),
]
TaskNames = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAME[,NAME...]",
        help="Which of SentLen, WordContent, BigramShift and CoordInv; else all that the corpus "
        "has enough sentences for.",
        show_default=False,
    ),
]
Size = Annotated[
    int,
    typer.Option(
        "--size",
        metavar="ROWS",
        min=24,
        help="Rows of each task at most: ten twelfths train, one dev, one test. SentEval's have "
        "120000.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="FILE",
        help="Leave out the sentences of this file, for instance a training corpus; repeatable.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of every random choice.")]
TextColumn = Annotated[
    str | None,
    typer.Option(
        "--text-column",
        metavar="NAME",
        help="The column of .csv, .tsv and .jsonl files; else the only one, or `text`.",
        show_default=False,
    ),
]


def make_probing(
    corpus: Corpus,
    out: Out,
    tasks: TaskNames = None,
    size: Size = 120_000,
    exclude: Exclude = None,
    seed: Seed = 0,
    text_column: TextColumn = None,
    format: Format = "table",
    json: Json = False,
    output: Output = None,
) -> None:
    """Build probing sets from a corpus: balanced, split, no sentence in two splits.

    SentLen, WordContent, BigramShift and CoordInv, in SentEval's layout, from sentences of 5 to 28
    words. The same corpus and seed give the same files.

    Example: cse data make-probing wiki.txt --out my-probes --exclude train.txt
    """
    import pandas as pd

    from cse_cli.cli.report import check_output, report_frame
    from cse_cli.data.make_probing import sentence_pool, write_probing
    from cse_cli.data.readers import iter_texts
    from cse_cli.progress import log

    check_output(output)
    chosen = _tasks(tasks)
    if (out / "probing").exists():
        raise UsageError(f"--out {out}: there is a folder {out / 'probing'} already")
    left_out = iter_texts(exclude, text_column=text_column) if exclude else ()
    pool = sentence_pool(iter_texts(corpus, text_column=text_column), left_out)
    log(f"{len(pool)} distinct sentences of 5 to 28 words")
    made = _make(pool, chosen, size=size, seed=seed, must=bool(tasks))
    paths = write_probing(out, made)
    lines = [
        {
            "task": task,
            "classes": len({row.label for row in rows}),
            **{name: sum(row.split == name for row in rows) for name in ("tr", "va", "te")},
            "path": str(paths[task]),
        }
        for task, rows in made.items()
    ]
    report_frame(
        pd.DataFrame(lines, dtype=object),
        command="data make-probing",
        config={"corpus": corpus, "out": out, "size": size, "exclude": exclude, "seed": seed},
        format=format,
        json=json,
        output=output,
    )


def _make(
    pool: Sequence[str], tasks: Sequence[str], *, size: int, seed: int, must: bool
) -> "dict[str, list[ProbingRow]]":
    """The rows of every task that `pool` has enough sentences for; `must` wants all of them.

    Raises InputError where one that must be is not, or none is.
    """
    from cse_cli.data.make_probing import make_probing
    from cse_cli.progress import warn

    made = {}
    for task in tasks:
        if rows := make_probing(pool, task, size=size, seed=seed):
            made[task] = rows
        elif must:
            raise InputError(f"the corpus has too few sentences for {task}")
        else:
            warn(f"the corpus has too few sentences for {task}: it is not made")
    if not made:
        raise InputError("the corpus has too few sentences for any probing set")
    return made


def _tasks(names: Sequence[str] | None) -> list[str]:
    """The tasks asked for, each once; all by default."""
    from cse_cli.data.make_probing import BUILDERS
    from cse_cli.data.probing import probing_task

    asked = [probing_task(n.strip()) for text in names or () for n in text.split(",") if n.strip()]
    for task in asked:
        if task not in BUILDERS:
            raise UsageError(
                f"--tasks {task}: this one needs a parser; {suggestion(task, BUILDERS)}"
            )
    return [task for task in BUILDERS if task in asked or not asked]
