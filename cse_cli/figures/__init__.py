"""Every picture this project draws: from a table of results to PNG, SVG or PDF, in one look."""

from cse_cli.figures.curves import draw_curves
from cse_cli.figures.geometry import draw_geometry
from cse_cli.figures.length_bias import draw_length_bias
from cse_cli.figures.panels import Matrix
from cse_cli.figures.smoothing import draw_smoothing, draw_token_matrices
from cse_cli.figures.style import FORMATS, check_figure_path, save

__all__ = [
    "FORMATS",
    "Matrix",
    "check_figure_path",
    "draw_curves",
    "draw_geometry",
    "draw_length_bias",
    "draw_smoothing",
    "draw_token_matrices",
    "save",
]
