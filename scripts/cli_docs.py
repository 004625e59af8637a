"""Write docs/cli.md from the commands' own `--help`; with --check, fail where it is out of date.

Usage: python scripts/cli_docs.py [--check]
"""

import os
import sys
from pathlib import Path

os.environ |= {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb"}

import typer.main
from typer.testing import CliRunner

from cse_cli.cli.app import app

TARGET = Path(__file__).parents[1] / "docs" / "cli.md"
PREAMBLE = """# The command line

Made from `cse … --help` by `make docs`; `make check` fails when it is out of date.

Data goes to standard output, logs and progress to standard error. Exit codes: 0 fine, 1 a gate
(`--fail-under`) failed, 2 usage or configuration, 3 an input is missing or unusable, 4 training
diverged, 5 the output cannot be written, 70 a bug in cse, 130 and 143 interrupted.

`cse train` takes a setting from the first of: option, `CSE_*` variable, `--config FILE`,
`[tool.cse]` in pyproject.toml, recipe, built-in default. Every other command takes its options'
values from the command line; where it has such an option, an option left out comes from
`CSE_DEVICE`, `CSE_THREADS`, `CSE_BATCH_TOKENS` or `CSE_FORMAT`, and the data folder from `CSE_DATA`
or `data_dir` of `[tool.cse]`. `CSE_CACHE` is the folder of what is downloaded and kept.

`--json` of every command that measures prints one document:

```json
{"schema": 1, "command": "eval-sts",
 "rows": [{"model": "…", "task": "STS12", "split": "test", "metric": "spearman_all",
           "value": 0.7237, "n": 3108}],
 "config": {}, "versions": {}}
```

Values are unscaled and unrounded; what is undefined is `null`. The average of the tasks is the row
with `"task": "Avg"`. Rows of one metric are told apart by further keys where they apply: `subset`,
`pooler`, `layer`, `threshold`, `unit`, `classifier`, `seed`, `k`.
"""


def commands(group, path=()):
    """(words, command) of every command, groups first."""
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def document() -> str:
    """The whole page."""
    runner = CliRunner()
    parts = [PREAMBLE]
    for words in commands(typer.main.get_command(app)):
        result = runner.invoke(app, [*words, "--help"], prog_name="cse")
        parts.append(f"## cse {' '.join(words)}\n\n```text\n{result.output.strip()}\n```\n")
    return "\n".join(parts)


def main() -> int:
    text = document()
    if "--check" in sys.argv:
        if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
            print("docs/cli.md is out of date: run `make docs`", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
