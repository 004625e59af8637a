"""`cse data`: the public data of the SimCSE authors, fetched and counted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cse_cli.cli.options import Format, Json, Output

if TYPE_CHECKING:
    from cse_cli.data.checks import Check

data_app = typer.Typer(
    name="data",
    help="Get training corpora and the SentEval folder, and check that they are whole.",
    no_args_is_help=True,
)

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Where datasets lie; else `data` in CSE_CACHE or the user's cache folder.",
        show_default=False,
    ),
]


def _complete_names(incomplete: str) -> list[str]:
    from cse_cli.data.catalog import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


@data_app.command("list")
def data_list(
    out: Out = None,
    format: Format = "table",
    json: Json = False,
    output: Output = None,
) -> None:
    """List the datasets to fetch, and where they lie.

    Example: cse data list
    """
    import pandas as pd

    from cse_cli.cli.report import report_frame
    from cse_cli.data.catalog import DATASETS, REPOSITORY
    from cse_cli.data.locate import fetched_folder

    folder = out or fetched_folder()
    rows = [
        {
            "name": dataset.name,
            "rows": dataset.rows,
            "megabytes": dataset.megabytes,
            "path": str(dataset.place(folder)) if dataset.place(folder).exists() else "",
            "about": dataset.about,
        }
        for dataset in DATASETS.values()
    ]
    report_frame(
        pd.DataFrame(rows, dtype=object),
        command="data list",
        config={"out": str(folder), "repository": REPOSITORY},
        format=format,
        json=json,
        output=output,
    )


@data_app.command("fetch")
def data_fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="wiki1m, nli or senteval; several, one after the other.",
            autocompletion=_complete_names,
            show_default=False,
        ),
    ],
    out: Out = None,
    json: Json = False,
) -> None:
    """Download datasets from the hub; print their paths.

    A broken download goes on where it stopped when the same command is run again, and what is
    there already is not fetched twice. HF_ENDPOINT names a mirror, HF_HUB_OFFLINE=1 forbids the
    network.

    Example: export CSE_DATA=$(cse data fetch senteval)
    """
    from cse_cli.cli.stdout import print_result
    from cse_cli.data.catalog import dataset
    from cse_cli.data.fetch import fetch
    from cse_cli.data.locate import fetched_folder
    from cse_cli.progress import log

    folder = out or fetched_folder()
    landed = []
    for wanted in [dataset(name) for name in names]:
        if wanted.place(folder).exists():
            log(f"{wanted.name} is there already; delete {wanted.place(folder)} to fetch it again")
        else:
            log(f"fetching {wanted.name} ({wanted.file}, {wanted.megabytes} MB) into {folder}")
        path = fetch(wanted, folder)
        landed.append({"name": wanted.name, "path": str(path)})
        if not json:
            print_result(f"{path}\n")
    if json:
        import pandas as pd

        from cse_cli.cli.report import report_frame

        report_frame(
            pd.DataFrame(landed), command="data fetch", config={"out": str(folder)}, json=True
        )


@data_app.command("verify")
def data_verify(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR|FILE",
            help="SentEval folders, folders of `cse data fetch`, or corpus files "
            "(.txt, .csv, also .gz); else CSE_DATA, else what was fetched.",
            show_default=False,
        ),
    ] = None,
    format: Format = "table",
    json: Json = False,
    output: Output = None,
) -> None:
    """Count the rows, look at every line; exit 3 if one is wrong.

    Example: cse data verify data/senteval corpus.txt
    """
    import pandas as pd

    from cse_cli.cli.inputs import data_folder
    from cse_cli.cli.report import check_output, report_frame
    from cse_cli.data.checks import failures
    from cse_cli.data.locate import fetched_folder
    from cse_cli.data.verify import verify
    from cse_cli.errors import InputError

    check_output(output)
    chosen = paths or [data_folder(None) or fetched_folder()]
    checks = [check for path in chosen for check in verify(path)]
    report_frame(
        pd.DataFrame([check.as_dict() for check in checks], dtype=object),
        command="data verify",
        config={"paths": [str(path) for path in chosen]},
        format=format,
        json=json,
        output=output,
    )
    if failed := failures(checks):
        raise InputError(f"{len(failed)} of {len(checks)} checks failed: {_first(failed)}")


def _first(failed: "list[Check]", shown: int = 3) -> str:
    """The first few failures, each with what to look at."""
    lines = [f"{check.task} {check.part}: {check.problem}" for check in failed[:shown]]
    return "; ".join(lines) + (" …" if len(failed) > shown else "")
