"""What all probing commands do alike: help without torch, a terminal's sparkline, the viewer."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cse_cli.cli.probes import Outputs, Probe, by_subset, finish, labelled
from cse_cli.errors import OutputError, UsageError
from cse_cli.figures import draw_curves
from cse_cli.results import Table
from cse_cli.sparkline import BARS
from tests.probe_data import app
from tests.test_curves import write_run

REPOSITORY = Path(__file__).parents[1]
HEAVY = ("torch", "numpy", "pandas", "transformers", "scipy", "sklearn", "matplotlib")
COMMANDS = ("probe_smoothing", "length_bias", "geometry", "curves")


def probe() -> Probe:
    table = Table()
    for step in (1, 2, 3):
        table.add("m", "training", "train", "loss", 1 / step, 1, k=step)
    return Probe(table, [("Runs", table)], lambda: draw_curves(table, ["loss"]), [("loss m", [1])])


def outputs(out: Path | None = None, *, show: bool = False, output: Path | None = None) -> Outputs:
    return Outputs("table", False, output, out, show)


@pytest.mark.parametrize("module", COMMANDS)
def test_a_command_is_defined_without_anything_heavy(module: str) -> None:
    code = (
        f"import sys, cse_cli.cli.{module}\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr


def on_a_terminal(*words: str, folder: Path) -> str:
    """What a user sees who types the command: both streams go to a pseudo-terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1", "COLUMNS": "100"}
    code = "from tests.probe_data import app; app()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=follower,
        stderr=follower,
        cwd=folder,
        env=environment,
    )
    os.close(follower)
    seen = b""
    try:
        while part := os.read(leader, 65536):
            seen += part
    except OSError:  # the terminal's other end is closed
        pass
    finally:
        os.close(leader)
    assert process.wait() == 0, seen.decode()
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode())


def test_a_terminal_without_a_figure_shows_sparklines(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    seen = on_a_terminal("curves", "run", folder=tmp_path)
    line = next(line for line in seen.splitlines() if line.startswith("loss run"))
    assert BARS[-1] in line  # the first loss is the largest
    assert "0.050 to 2.000" in line
    assert not any(bar in on_a_terminal("curves", "run", "--json", folder=tmp_path) for bar in BARS)
    drawn = on_a_terminal("curves", "run", "--out", "c.png", folder=tmp_path)
    assert not any(bar in drawn for bar in BARS)
    assert "c.png: drawn" in drawn


@pytest.mark.parametrize(
    ("terminal", "ci", "opens"), [(True, "", 1), (True, "1", 0), (False, "", 0)]
)
def test_show_opens_the_figure_on_a_terminal_only_and_never_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, ci: str, opens: int
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("CI", ci)
    where = outputs(tmp_path / "a.png", show=True).check()
    finish(probe(), where, command="curves", config={})
    assert opened == [str(tmp_path / "a.png")] * opens


def test_files_are_checked_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--out"):
        outputs(show=True).check()
    with pytest.raises(UsageError, match=r"\.png"):
        outputs(tmp_path / "a.gif").check()
    with pytest.raises(OutputError, match="no folder"):
        outputs(output=tmp_path / "missing" / "a.json").check()


def test_output_holds_all_rows_for_machines_and_sections_for_people(tmp_path: Path) -> None:
    for name in ("a.json", "a.csv", "a.md"):
        finish(probe(), outputs(output=tmp_path / name), command="curves", config={"seed": 1})
    assert '"command": "curves"' in (tmp_path / "a.json").read_text()
    assert (tmp_path / "a.csv").read_text().count("\n") == 4
    assert "**Runs**" in (tmp_path / "a.md").read_text()


def test_labels_name_the_checkpoints_in_order() -> None:
    assert labelled(["x/a", "y/b"], ["one", " two "]) == {"one": "x/a", "two": "y/b"}
    assert labelled(["x/a", "y/a"], None) == {"x/a": "x/a", "y/a": "y/a"}
    with pytest.raises(UsageError, match="two checkpoints are called 'one'"):
        labelled(["a", "b"], ["one", "one"])


def test_rows_for_people_keep_what_tells_them_apart() -> None:
    table = Table()
    table.add("m", "t", "test", "setsim", 0.5, 3, pooler="cls", layer=1)
    row = by_subset(table, lambda r: f"layer {r.keys['layer']}", keep=["pooler"], metric="x").rows[
        0
    ]
    assert (row.metric, dict(row.keys)) == ("x", {"subset": "layer 1", "pooler": "cls"})


def test_help_holds_examples_that_name_the_command() -> None:
    from typer.testing import CliRunner

    for command in ("probe-smoothing", "length-bias", "geometry", "curves"):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0
        assert result.stdout.count(f"Example: cse {command} ") == 2
