"""A grid as a Markdown table or a LaTeX one."""

from collections.abc import Iterable

from cse_cli.render.grids import Grid

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def to_markdown(grid: Grid) -> str:
    """A pipe table under its title in bold; the best values are bold."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def cell(row: int, column: int) -> str:
        text = _escape_pipes(grid.cells[row][column])
        return f"**{text}**" if (row, column) in grid.best else text

    columns = range(len(grid.header))
    lines = [f"**{grid.title}**", ""] if grid.title else []
    lines.append(line(_escape_pipes(name) for name in grid.header))
    lines.append(line("---:" if numeric else "---" for numeric in grid.numeric))
    lines += [line(cell(row, column) for column in columns) for row in range(len(grid.cells))]
    return "\n".join(lines) + "\n"


def to_latex(grid: Grid) -> str:
    r"""A table for `\usepackage{booktabs}`, with a caption where the grid has a title."""

    def line(cells: Iterable[str]) -> str:
        return " & ".join(cells) + r" \\"

    def cell(row: int, column: int) -> str:
        text = _escape_latex(grid.cells[row][column])
        return rf"\textbf{{{text}}}" if (row, column) in grid.best else text

    columns = range(len(grid.header))
    alignment = "".join("r" if numeric else "l" for numeric in grid.numeric)
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    lines += [line(map(_escape_latex, grid.header)), r"\midrule"]
    lines += [line(cell(row, column) for column in columns) for row in range(len(grid.cells))]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if grid.title:
        caption = rf"\caption{{{_escape_latex(grid.title)}}}"
        lines = [r"\begin{table}", r"\centering", caption, *lines, r"\end{table}"]
    return "\n".join(lines) + "\n"


def _escape_pipes(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
