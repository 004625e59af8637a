"""The look all figures share, and how their files are written."""

import errno
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from cse_cli.data.sts import STS_TASKS
from cse_cli.errors import OutputError, UsageError
from cse_cli.figures import (
    Matrix,
    check_figure_path,
    draw_curves,
    draw_geometry,
    draw_length_bias,
    draw_smoothing,
    draw_token_matrices,
    save,
)
from cse_cli.figures.style import COLOURS, COLUMN, look
from cse_cli.results import AVERAGE, Table
from cse_cli.tasks.geometry import VIEWS
from tests.probe_data import is_figure

MODELS = ["mlm-minilm-l6", "_sscl $5$", "a rather long name, a path/to/it"]
TASKS = (*STS_TASKS, AVERAGE)
LONG = "/a/path/that/is/far/too/long/for/one/column/of/a/paper/and/has/to/be/cut/runs/sscl"


def banded(
    table: Table, metric: str, value: float, *, model: str, task: str = "STS-B", **keys: object
) -> None:
    for name, shift in ((metric, 0.0), (f"{metric}_low", -0.02), (f"{metric}_high", 0.02)):
        table.add(model, task, "test", name, value + shift, 10, **keys)


def smoothing(models: list[str] = MODELS) -> Figure:
    table = Table()
    for i, model in enumerate(models):
        for pooler, layer in itertools.product(("mean", "cls"), range(12)):
            banded(table, "setsim", 0.7 + 0.02 * layer - 0.1 * i, model=model, pooler=pooler,
                   layer=layer)  # fmt: skip
        for layer in range(13):
            banded(table, "toksim", 0.1 + 0.05 * layer, model=model, layer=layer)
    return draw_smoothing(table)


def length_bias(models: list[str] = MODELS) -> Figure:
    table = Table()
    for i, model in enumerate(models):
        for n, name in enumerate(
            ["0", "1", "2", "3", "4-5", "6-8", "9+"][i:]
        ):  # bins may be absent
            for metric in ("spearman", "similarity"):
                banded(table, metric, 0.8 - 0.05 * n, model=model, subset=name, unit="word")
    return draw_length_bias(table)


def _add(table: Table, model: str, metric: str, value: float, **keys: object) -> None:
    table.add(model, "STS-B", "test", metric, value, 10, **keys)


def geometry(models: list[str] = MODELS) -> Figure:
    table = Table()
    for i, model in enumerate(models):
        add = partial(_add, table, model)
        add("alignment", 0.2 + i / 30, threshold=">4")
        add("uniformity", -2.5 + i / 3)
        add("spearman_all", 0.8)
        for group, middle in itertools.product(("0-1", "4-5"), np.linspace(-0.975, 0.975, 40)):
            add("cosine_density", max(0, 2 - abs(middle)), subset=group, threshold=middle)
        for k in range(1, 65):
            add("singular_value", 1 / k, k=k)
        for threshold in np.linspace(0, 1, 51):
            add("correlation_share", (1 - threshold) ** 9, threshold=threshold)
        for k in (16, 32, 64, 128):
            add("rank", min(k, 64), k=k)
            add("top_similarity", 0.5 + k / 500, subset="mean", k=k)
            add("noise_similarity", 0.2, subset="mean", k=k)
        for k in (8, 16, 32, 64, 96):
            add("spearman_truncated", 0.5 + k / 500, k=k)
            add("spearman_pca", 0.5 + k / 400, k=k)
    return draw_geometry(table, list(VIEWS))


def curves(models: list[str] = MODELS) -> Figure:
    table = Table()
    for i, model in enumerate(models):
        for step in range(1, 60):
            table.add(model, "training", "train", "loss", 2 / step + i, 1, k=step)
        for step in range(10, 60, 10):
            banded(table, "dev", 0.7 + step / 900 + i / 50, model=model, k=step)
    return draw_curves(table, ["dev", "loss"])


def matrices(models: list[str] = MODELS) -> Figure:
    tokens = ["[CLS]", "a", "man", "plays", "$5", "_x", "[SEP]"]
    x = np.random.default_rng(0).normal(size=(7, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return draw_token_matrices([Matrix(f"{model}, layer 12", tokens, x @ x.T) for model in models])


EVERY = [smoothing, length_bias, geometry, curves, matrices]
every_figure = pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
Make = Callable[..., Figure]


# ---------------------------------------------------------------------------- the look


@every_figure
def test_titles_and_labels_are_there(make: Make) -> None:
    figure = make()
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert panels
    for axes in panels:
        assert axes.get_title(loc="left")
        assert axes.get_xlabel()
    assert panels[0].get_ylabel()
    if make is matrices:
        assert any(axes.get_xlabel() == "Cosine of two tokens" for axes in figure.axes)


@every_figure
def test_nothing_covers_data_and_nothing_is_cut(make: Make) -> None:
    figure = make()
    figure.canvas.draw()
    whole = figure.bbox
    for box in figure.legends:
        extent = box.get_window_extent()
        assert whole.x0 <= extent.x0
        assert extent.x1 <= whole.x1
        assert whole.y0 - 1 <= extent.y0
        for axes in figure.axes:
            assert not extent.overlaps(axes.get_window_extent())
    for axes in figure.axes:
        extent = axes.get_tightbbox()
        assert whole.x0 - 2 <= extent.x0
        assert extent.x1 <= whole.x1 + 2
        assert whole.y0 - 2 <= extent.y0
        assert extent.y1 <= whole.y1 + 2
        if axes.get_label() != "<colorbar>":
            assert axes.get_window_extent().height > 0.4 * 72  # no panel is squeezed away
    if figure.get_suptitle():
        extent = figure._suptitle.get_window_extent()  # type: ignore[attr-defined]
        assert extent.x1 <= whole.x1
        assert not any(extent.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    for one, other in itertools.combinations(figure.axes, 2):
        assert not one.get_window_extent().overlaps(other.get_window_extent())


@every_figure
def test_every_label_is_in_the_legend(make: Make) -> None:
    figure = make()
    if make is matrices:
        assert not figure.legends
        return
    shown = [text.get_text().lstrip("\u200b") for text in figure.legends[0].get_texts()]
    for model in MODELS:
        assert any(label.startswith(model) for label in shown), shown


def test_a_path_is_cut_to_its_end() -> None:
    figure = curves([LONG, LONG + "-2"])
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert all(label.startswith("…") for label in shown)
    assert shown[0].endswith("runs/sscl")
    assert shown[1].endswith("runs/sscl-2")
    figure.canvas.draw()
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


@every_figure
def test_text_is_legible_in_a_column(make: Make) -> None:
    figure = make()
    assert figure.get_figwidth() in (pytest.approx(COLUMN), pytest.approx(2 * COLUMN))
    sizes = [t.get_fontsize() for t in figure.findobj(matplotlib.text.Text) if t.get_text()]
    assert min(sizes) >= 6
    assert figure.get_facecolor()[:3] == (1, 1, 1)


def luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLINDNESS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_differ_for_the_colour_blind(kind: str) -> None:
    seen = []
    for colour in COLOURS:
        linear = np.array(to_rgb(colour)) ** 2.2
        seen.append(np.clip(np.array(BLINDNESS[kind]) @ linear, 0, 1) ** (1 / 2.2))
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 0.1


def test_colours_stand_out_from_white() -> None:
    for colour in COLOURS:
        assert 1.05 / (luminance(colour) + 0.05) > 2


def test_twenty_series_look_different() -> None:
    assert len({look(i) for i in range(20)}) == 20


def test_users_settings_neither_matter_nor_change() -> None:
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30, "text.color": "red"}):
        figure = curves()
    assert figure.axes[0].get_facecolor()[:3] == (1, 1, 1)
    assert dict(matplotlib.rcParams) == before


def test_no_window_system_is_touched() -> None:
    code = "import sys, cse_cli.figures\nprint('matplotlib.pyplot' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n"


# ---------------------------------------------------------------------------- the files


@every_figure
@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_same_numbers_same_bytes(make: Make, kind: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    save(make(), first)
    save(make(), second)
    assert is_figure(first)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]  # nothing else is left


def test_a_figure_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "a.PNG"  # extensions in any case
    path.write_bytes(b"old")
    save(curves(), path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["a.gif", "a", "a.png.txt", ".png"])
def test_other_extensions_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        check_figure_path(tmp_path / name)


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no folder"):
        save(curves(), tmp_path / "missing" / "a.png")
    (tmp_path / "b.png").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        save(curves(), tmp_path / "b.png")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="permission"):
        save(curves(), tmp_path / "a.png")


def test_a_full_disk_keeps_the_old_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    figure = curves()

    def full(file: object, **_: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(figure, "savefig", full)
    with pytest.raises(OutputError, match="No space left"):
        save(figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_labels_are_text_not_formulas(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    save(curves(["_sscl $5$ \\frac <b> & é"]), path)
    assert "_sscl $5$ \\frac" in path.read_text(encoding="utf-8")


def test_a_script_without_font_still_draws(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    tokens = ["[CLS]", "猫", "座", "[SEP]"]
    save(draw_token_matrices([Matrix("多语言", tokens, np.eye(4))]), tmp_path / "a.png")
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_missing_numbers_leave_gaps(tmp_path: Path) -> None:
    table = Table()
    for layer in range(3):
        for end in ("", "_low", "_high"):
            table.add("m", "t", "", f"toksim{end}", float("nan"), 0, layer=layer)
    for layer in range(2):
        for end in ("", "_low", "_high"):
            table.add("m", "t", "", f"setsim{end}", 0.5, 1, layer=layer, pooler="mean")
    save(draw_smoothing(table), tmp_path / "a.png")
    assert is_figure(tmp_path / "a.png")
