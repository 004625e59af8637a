from pathlib import Path

import pytest

from cse_cli.data.locate import cache_folder, fetched_folder, resolve_data_dir
from cse_cli.errors import InputError


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("CSE_DATA", "CSE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def senteval(tmp_path):
    folder = tmp_path / "out" / "senteval"
    (folder / "downstream").mkdir(parents=True)
    return folder


def test_nothing_configured_is_none(monkeypatch):
    assert resolve_data_dir() is None
    monkeypatch.setenv("CSE_DATA", "")
    assert resolve_data_dir() is None


def test_the_option_wins_over_the_variable(monkeypatch, senteval, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("CSE_DATA", str(other))
    assert resolve_data_dir() == other
    assert resolve_data_dir(senteval) == senteval


@pytest.mark.parametrize("near", [".", "..", "downstream", "downstream/../downstream/"])
def test_the_folder_around_and_the_folder_below_are_understood(senteval, near):
    assert resolve_data_dir(senteval / near).resolve() == senteval


def test_a_folder_of_another_kind_is_left_to_the_reader(tmp_path):
    assert resolve_data_dir(tmp_path) == tmp_path


def test_a_missing_folder_is_an_input_error_that_names_its_source(monkeypatch, tmp_path):
    with pytest.raises(InputError, match=r"--data-dir is '.*gone'.*cse data fetch senteval"):
        resolve_data_dir(tmp_path / "gone")
    monkeypatch.setenv("CSE_DATA", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="CSE_DATA is"):
        resolve_data_dir()


def test_the_cache_folder(monkeypatch, tmp_path):
    assert cache_folder() == Path.home() / ".cache" / "cse"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "cse"
    monkeypatch.setenv("CSE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    assert fetched_folder() == tmp_path / "own" / "data"
    assert list(tmp_path.iterdir()) == []


def test_the_home_of_nobody_is_an_input_error(monkeypatch):
    with pytest.raises(InputError, match="--data-dir is '~nosuchuser/x'"):
        resolve_data_dir("~nosuchuser/x")
    monkeypatch.setenv("CSE_CACHE", "~nosuchuser/x")
    with pytest.raises(InputError, match="CSE_CACHE is '~nosuchuser/x'"):
        cache_folder()
