"""Logs and bars: standard error only, plain off a terminal, colourless with NO_COLOR."""

import io
import os
import subprocess
import sys

import pytest

from cse_cli.progress import log, track, warn


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in place of standard error (in the test itself: pytest puts its own back)."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_off_a_terminal_lines_are_plain_and_no_bar_is_drawn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log("a [bold]line[/bold]")
    warn("look")
    assert list(track(range(3), 3, "encoding")) == [0, 1, 2]
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "a [bold]line[/bold]\nwarning: look\n"


def test_a_terminal_gets_colours_and_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    warn("look")
    assert "\x1b[" in terminal.getvalue()
    assert list(track(range(3), 3, "encoding")) == [0, 1, 2]
    assert "encoding" in terminal.getvalue()


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    warn("look")
    assert "\x1b[1;33m" not in terminal.getvalue()
    assert "\x1b[33m" not in terminal.getvalue()
    assert "warning: " in terminal.getvalue()


def test_a_long_line_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    log("x" * 200)
    assert "x" * 200 in terminal.getvalue()


def test_a_reader_who_has_left_stops_nothing() -> None:
    code = "from cse_cli.progress import log; log('x'); log('y'); print('done')"
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writing, text=True)
    os.close(writing)
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_a_failing_loop_ends_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        list(track((1 // item for item in range(3)), 3, "encoding"))
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back


def test_rich_is_imported_only_on_a_terminal() -> None:
    code = "import sys; from cse_cli.progress import log; log('x'); print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "x\n")
