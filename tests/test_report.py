"""Reporting: where the table goes, which gates fail, and that nothing half-written stays."""

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from cse_cli.cli.report import check_output, parse_gates, report, report_frame
from cse_cli.cli.stdout import ReaderGone, write_stdout
from cse_cli.errors import GateError, OutputError, UsageError
from cse_cli.results import Table

TASKS = ("STS12", "STS-B")


@pytest.fixture
def table() -> Table:
    made = Table()
    for model, values in {"a": (0.75, 0.85), "b": (0.7, 0.799996)}.items():
        for task, value in zip(TASKS, values, strict=True):
            made.add(model, task, "test", "spearman_all", value, 5)
            made.add(model, task, "test", "pearson_all", 0.1, 5)
        made.add_average(model, "spearman_all", TASKS)
    return made


def passed(table: Table, *gates: str) -> None:
    report(
        table, command="eval-sts", config={}, fail_under=gates, headline="spearman_all", json=True
    )


@pytest.mark.parametrize("gates", [(), ("74.9",), ("STS-B=79.99", "STS12=70"), ("avg=-1",)])
def test_reached_gates_pass(
    table: Table, gates: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    passed(table, *gates)
    assert '"spearman_all"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gates", "told"),
    [
        (("75",), "b, Avg: 74.9998 < 75"),
        (("STS-B=80",), "b, STS-B: 79.9996 < 80"),
        (("sts-b=90", "STS12=71"), "a, STS-B: 85.0000 < 90; b, STS-B: .*; b, STS12: 70.0000 < 71"),
    ],
)
def test_missed_gates_fail_with_every_miss(
    table: Table, gates: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GateError, match=told):
        passed(table, *gates)
    assert len(json.loads(capsys.readouterr().out)["rows"]) == len(table)


def test_a_single_task_is_its_own_average() -> None:
    made = Table()
    made.add("m", "T", "test", "accuracy", 0.5, 5)
    report(made, command="x", config={}, fail_under=["50"])
    with pytest.raises(GateError):
        report(made, command="x", config={}, fail_under=["50.1"])


def test_nan_fails_any_gate() -> None:
    made = Table()
    made.add("m", "T", "test", "spearman_all", math.nan, 5)
    with pytest.raises(GateError, match="nan < -100"):
        report(made, command="x", config={}, fail_under=["T=-100"])


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ("STS13=80", "'STS13' is not evaluated here, did you mean 'STS12'"),
        ("STS-B=high", "give a score such as 75"),
        ("nan", "give a score such as 75"),
        ("", "give a score such as 75"),
    ],
)
def test_gates_that_make_no_sense_are_usage_errors(gate: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_gates([gate], TASKS)


def test_an_average_that_is_not_there_is_told_beforehand() -> None:
    with pytest.raises(UsageError, match="no average"):
        parse_gates(["75"], TASKS, average=False)
    assert parse_gates(["75"], TASKS[:1], average=False)


def test_tasks_without_an_average_have_no_gate_on_it() -> None:
    made = Table()
    for task in TASKS:
        made.add("m", task, "test", "accuracy", 0.5, 5)
    with pytest.raises(UsageError, match="no average"):
        report(made, command="x", config={}, fail_under=["50"])


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("x.json", '{\n  "schema": 1'),
        ("x.csv", "model,task,split,metric,value,n"),
        ("x.md", "**Title**"),
        ("x.tex", r"\begin{table}"),
        ("x.TXT", "Title\nModel"),
    ],
)
def test_output_takes_its_format_from_the_extension(
    table: Table, tmp_path: Path, name: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    report(
        table,
        command="x",
        config={},
        output=path,
        title="Title",
        format="csv",
        headline="spearman_all",
    )
    assert path.read_text().startswith(start)
    assert capsys.readouterr().out.startswith("model,task")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_output_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"one of \.json, \.csv, \.md, \.tex, \.txt"):
        check_output(tmp_path / "x.xlsx")
    with pytest.raises(OutputError, match="there is no folder"):
        check_output(tmp_path / "none" / "x.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        check_output(tmp_path / "folder.csv")
    check_output(None)


def test_json_option_and_frames(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    frame = pd.DataFrame({"method": ["simcse"], "terms": [1]})
    report_frame(frame, command="methods", config={}, json=True, output=tmp_path / "m.md")
    assert json.loads(capsys.readouterr().out)["rows"] == [{"method": "simcse", "terms": 1}]
    assert "| simcse | 1 |" in (tmp_path / "m.md").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_full_standard_output_is_an_output_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OutputError, match="cannot write standard output: No space left"):
            write_stdout("x")


@contextmanager
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output is a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        yield


def test_without_a_reader_a_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with unread(monkeypatch), pytest.raises(ReaderGone):
        write_stdout("x")


def test_without_a_reader_the_file_and_the_gates_stay(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    with unread(monkeypatch), pytest.raises(GateError):
        report(table, command="x", config={}, output=path, fail_under=["STS-B=99"])
    assert path.read_text().startswith("model,task")


def test_characters_the_terminal_lacks_do_not_stop_a_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open(tmp_path / "out", "w", encoding="ascii") as ascii_only:
        monkeypatch.setattr(sys, "stdout", ascii_only)
        write_stdout("caf\u00e9 ─\n")
    assert (tmp_path / "out").read_text() == "caf? ?\n"
