"""`cse probe-smoothing --pooler` on a model that does not say how it is pooled."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cse_cli.cli.app import app


@pytest.mark.parametrize("poolers", ["mean", "mean,cls"])
def test_poolers_that_were_given_are_not_asked_for(
    poolers: str, tiny_bert: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("the dog runs\nthe cat sleeps\n")
    command = ["probe-smoothing", str(tiny_bert), "--file", str(tmp_path / "texts.txt")]
    result = CliRunner().invoke(app, [*command, "--pooler", poolers, "--json"])
    assert result.exit_code == 0, result.output
    assert "does not say how it is pooled" not in result.stderr
