"""Every format read back: exact values for machines, the right two decimals for people."""

import io
import json
import math
import re
from importlib import metadata

import pandas as pd
import pytest

from cse_cli.errors import UsageError
from cse_cli.render import FORMATS, render, render_frame
from cse_cli.results import Table

TITLE = "STS test, Spearman x 100 (all)"
TASKS = ("STS12", "STS-B")
VALUES = {"small_model": (0.1 + 0.2, 0.81), "100% & more|x": (0.7237049, 0.6)}


@pytest.fixture
def table() -> Table:
    made = Table()
    for model, values in VALUES.items():
        for task, value in zip(TASKS, values, strict=True):
            made.add(model, task, "test", "spearman_all", value, 10, pooler="cls")
            made.add(model, task, "test", "pearson_all", value / 2, 10, pooler="cls")
        made.add(model, "STS12", "test", "spearman", 0.5, 4, subset="MSRpar", pooler="cls")
        made.add(model, "STS12", "test", "pearson", 0.25, 4, subset="MSRpar", pooler="cls")
        for metric in ("spearman_all", "pearson_all"):
            made.add_average(model, metric, TASKS, pooler="cls")
    return made


def shown(table: Table, format: str, **options: object) -> str:
    return render(table, format, headline="spearman_all", title=TITLE, **options)


def pipes(text: str) -> list[list[str]]:
    """The cells of the pipe tables in `text`, without the rule under a header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if not line.startswith("| --")]
    return [[cell.strip().replace(r"\|", "|") for cell in row] for row in rows]


def test_json_is_exact_and_has_the_schema(table: Table) -> None:
    text = render(table, "json", command="eval-sts", config={"split": "test", "tasks": TASKS})
    document = json.loads(text)
    assert list(document) == ["schema", "command", "rows", "config", "versions"]
    assert (document["schema"], document["command"]) == (1, "eval-sts")
    assert document["rows"] == [row.as_dict() for row in table]
    assert document["config"] == {"split": "test", "tasks": list(TASKS)}
    assert document["versions"]["torch"] == metadata.version("torch")
    assert set(document["versions"]) == {
        *("cse_cli", "python", "torch", "transformers", "numpy", "scipy", "sklearn")
    }


def test_json_without_numbers_for_what_has_none() -> None:
    made = Table()
    for value in (math.nan, math.inf, 0.5):
        made.add("m", "T", "test", "spearman_all", value, 1)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    rows = json.loads(render(made, "json"), parse_constant=refuse)["rows"]
    assert [row["value"] for row in rows] == [None, None, 0.5]


def test_csv_is_exact(table: Table) -> None:
    frame = pd.read_csv(io.StringIO(render(table, "csv")))
    assert list(frame.columns) == [
        *("model", "task", "split", "metric", "value", "n", "pooler", "subset")
    ]
    assert frame["value"].tolist() == [row.value for row in table]
    assert frame["model"].tolist() == [row.model for row in table]
    assert frame["subset"].isna().sum() == 12


def test_markdown_shows_the_headline_with_the_best_in_bold(table: Table) -> None:
    text = shown(table, "markdown")
    assert text.startswith(f"**{TITLE}**\n\n")
    assert pipes(text) == [
        ["Model", "STS12", "STS-B", "Avg"],
        ["small_model", "30.00", "**81.00**", "55.50"],
        ["100% & more|x", "**72.37**", "60.00", "**66.19**"],
        ["Task", "Subset", "n", "small_model", "100% & more|x"],
        ["STS12", "MSRpar", "4", "50.00", "50.00"],
    ]


def test_latex_is_booktabs_and_escaped(table: Table) -> None:
    text = shown(table, "latex")
    first, second = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL)
    assert first.splitlines() == [
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"Model & STS12 & STS-B & Avg \\",
        r"\midrule",
        r"small\_model & 30.00 & \textbf{81.00} & 55.50 \\",
        r"100\% \& more|x & \textbf{72.37} & 60.00 & \textbf{66.19} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert r"\begin{tabular}{llrrr}" in second
    assert rf"\caption{{{TITLE}}}" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1


def test_latex_escapes_every_special_character() -> None:
    made = Table()
    made.add(r"\a~b^c#d$e{f}g", "T", "test", "spearman_all", 0.5, 1)
    assert r"\textbackslash{}a\textasciitilde{}b\textasciicircum{}c\#d\$e\{f\}g & 50.00" in render(
        made, "latex"
    )


def test_plain_text_is_as_wide_as_it_needs_to_be(table: Table) -> None:
    made = Table([*table])
    made.add("m" * 300, "STS12", "test", "spearman_all", 0.5, 1, pooler="cls")
    lines = shown(made, "table").splitlines()
    assert lines[0] == TITLE
    assert lines[1].split() == ["Model", "STS12", "STS-B", "Avg"]
    assert lines[3].split() == ["small_model", "30.00", "81.00", "55.50"]
    assert lines[5].split() == ["m" * 300, "50.00"]
    assert not any(line != line.rstrip() for line in lines)
    assert "\x1b" not in shown(made, "table")


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_terminal_never_cuts_a_number(
    table: Table, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for task in ("STS13", "STS14", "STS15", "STS16", "SICK-R"):
        table.add("small_model", task, "test", "spearman_all", 0.7531, 10, pooler="cls")
    text = shown(table, "table", terminal=True)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= width
    for number in ("30.00", "81.00", "55.50", "72.37", "75.31", "60.00", "66.19", "50.00"):
        assert any(number in line for line in lines)
    names = re.sub(r"\s", "", "".join(lines))
    assert "STS13" in names
    assert "SICK-R" in names


def test_a_model_name_is_text_not_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    made = Table()
    made.add("[red]run[/red]", "T", "test", "spearman_all", 0.5, 1)
    assert "[red]run[/red]" in render(made, "table", terminal=True)


def test_keys_that_differ_become_columns() -> None:
    made = Table()
    for layer, value in ((1, 0.4), (2, 0.5)):
        made.add("m", "STS-B", "test", "spearman_all", value, 9, layer=layer, pooler="cls")
    assert pipes(render(made, "markdown")) == [
        ["Model", "Layer", "STS-B"],
        ["m", "1", "40.00"],
        ["m", "2", "**50.00**"],
    ]


def test_several_metrics_of_one_task_are_columns() -> None:
    made = Table()
    for model, aligned in (("a", 0.25), ("b", 0.125)):
        made.add(model, "STS-B", "test", "alignment", aligned, 9)
        made.add(model, "STS-B", "test", "uniformity", -2.5, 9)
        made.add(model, "STS-B", "test", "parameters", 22_713_216, 9)
    assert pipes(render(made, "markdown")) == [
        ["Model", "alignment", "uniformity", "parameters"],
        ["a", "0.2500", "-2.5000", "22,713,216"],
        ["b", "**0.1250**", "-2.5000", "22,713,216"],
    ]


def test_nan_and_absent_values_look_different() -> None:
    made = Table()
    made.add("a", "X", "test", "accuracy", math.nan, 1)
    made.add("b", "Y", "test", "accuracy", 0.875, 1)
    assert pipes(render(made, "markdown")) == [
        ["Model", "X", "Y"],
        ["a", "nan", ""],
        ["b", "", "87.50"],
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_frames_and_empty_tables_render(format: str) -> None:
    frame = pd.DataFrame({"name": ["a|b", None], "rows": [3, 4], "share": [0.5, math.nan]})
    text = render_frame(frame, format, command="data list", config={"x": 1})
    assert text.endswith("\n")
    if format == "json":
        rows = json.loads(text)["rows"]
        assert rows[0] == {"name": "a|b", "rows": 3, "share": 0.5}
        assert rows[1]["share"] is None
    if format == "csv":
        assert pd.read_csv(io.StringIO(text))["rows"].tolist() == [3, 4]
    if format == "markdown":
        assert pipes(text)[1:] == [["a|b", "3", "0.5000"], ["", "4", ""]]
    assert render(Table(), format) is not None


def test_unknown_format_gets_a_suggestion(table: Table) -> None:
    with pytest.raises(UsageError, match="did you mean 'markdown'"):
        render(table, "markdwn")
