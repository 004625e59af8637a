"""Files that are there whole or not at all."""

import os
from pathlib import Path

import pytest

from cse_cli.errors import OutputError
from cse_cli.files import check_writable, whole_file


def test_the_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with whole_file(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


def test_a_failed_block_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def fail_halfway() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_device_is_written_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(pipe) as file:
            file.write(b"data")
        assert os.read(reader, 10) == b"data"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_an_output_error() -> None:
    told = "cannot write /dev/full: No space left"
    with pytest.raises(OutputError, match=told), whole_file("/dev/full") as file:
        file.write(b"x")


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(OutputError, match="there is no folder"):
        check_writable(tmp_path / "none" / "x")
    (tmp_path / "plain").write_text("")
    with pytest.raises(OutputError, match="there is no folder"):
        check_writable(tmp_path / "plain" / "x")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="permission denied"):
        check_writable(tmp_path / "x")


def test_long_names(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="name too long"):
        check_writable(tmp_path / ("x" * 300))
    path = tmp_path / ("x" * 255)
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
