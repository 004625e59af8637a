"""The rules of the house, held by reading the source: imports go down, files stay small."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from cse_cli.methods import INGREDIENTS

PACKAGE = Path(__file__).parents[1] / "cse_cli"
FILES = sorted(PACKAGE.rglob("*.py"))

# Each layer may import from its own and from lower ones.
LAYERS = {
    "cli": 4,
    "training": 3,
    "methods": 2,
    "tasks": 2,
    "config": 0,
    "errors": 0,
}
MIDDLE = 1  # encoder, checkpoint, data, classifier, maths, results and their like
MAX_LINES, MAX_FUNCTION = 320, 60


def unit(path: Path) -> str:
    """The package's part a file belongs to: its first folder, or its own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def layer(name: str) -> int:
    return LAYERS.get(name, MIDDLE)


def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, at import time) of everything a file imports from this package or elsewhere."""
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    guarded = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        top = id(node) not in inside
        if isinstance(node, ast.Import):
            found += [(alias.name, top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, top))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_only_go_down(path: Path) -> None:
    here = unit(path)
    if here in ("__main__", "__init__"):
        return
    for module, _ in imports(path):
        parts = module.split(".")
        if parts[0] != "cse_cli" or len(parts) == 1:
            continue
        assert layer(parts[1]) <= layer(here), f"{here} imports {module}, which is above it"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_right_files_know_a_terminal_or_a_plot(path: Path) -> None:
    here = unit(path)
    roots = {module.split(".")[0] for module, _ in imports(path)}
    assert "typer" not in roots or here == "cli"
    assert "rich" not in roots or here in ("cli", "render", "progress")
    assert "matplotlib" not in roots or here == "figures"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno <= MAX_FUNCTION, node.name


def test_ingredients_and_tasks_do_not_import_each_other() -> None:
    ingredients = {target.partition(":")[0] for target in INGREDIENTS.values()}
    tasks = {f"cse_cli.tasks.{path.stem}" for path in (PACKAGE / "tasks").glob("[!_]*.py")}
    for family in (ingredients, tasks):
        for name in family:
            path = PACKAGE.parent / (name.replace(".", "/") + ".py")
            others = family & {module for module, _ in imports(path)}
            assert others <= {name}, f"{name} imports {others}"


HEAVY = ("torch", "numpy", "pandas", "transformers", "scipy", "sklearn", "matplotlib")


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["eval-sts", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from cse_cli.__main__ import main\n"
        f"sys.argv = ['cse', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"print('heavy:', [m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "heavy: []", result.stderr


def test_every_module_imports() -> None:
    names = [".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in FILES]
    code = "import importlib\n" + "\n".join(
        f"importlib.import_module({name.removesuffix('.__init__')!r})"
        for name in names
        if not name.endswith("__main__")
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
