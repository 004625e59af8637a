import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cse_cli.data.archive import unpack
from cse_cli.errors import InputError, OutputError

FILES = {"STS/one.txt": b"a\tb\n" * 300, "STS/two.txt": b"", "CR/pos": b"good .\n" * 100}


def tar_of(files: dict[str, bytes], *extra: tarfile.TarInfo, mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for member in extra:
            tar.addfile(member)
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_unpacks_every_file(tmp_path, mode):
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_of(FILES, member("./empty", tarfile.DIRTYPE), mode=mode))
    unpack(archive, tmp_path / "out")
    assert contents(tmp_path / "out") == FILES
    assert (tmp_path / "out" / "empty").is_dir()


@pytest.mark.parametrize(
    "hostile",
    [
        member("/tmp/cse-escaped"),
        member("../escaped"),
        member("STS/../../escaped"),
        member("..", tarfile.DIRTYPE),
        member("..\\escaped"),
        member("C:\\escaped"),
        member("C:escaped"),
        member("\\\\host\\share\\escaped"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.SYMTYPE, "../escaped"),
        member("link", tarfile.LNKTYPE, "../escaped"),
        member("device", tarfile.CHRTYPE),
        member("disk", tarfile.BLKTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda m: f"{m.name} {m.type.decode()} {m.linkname}",
)
def test_one_hostile_member_condemns_the_archive(tmp_path, hostile):
    archive = tmp_path / "in" / "a.tar"
    archive.parent.mkdir()
    archive.write_bytes(tar_of(FILES, hostile))
    with pytest.raises(InputError, match=r"a\.tar holds") as told:
        unpack(archive, tmp_path / "out" / "data")
    assert hostile.name in str(told.value)
    assert "\n" not in str(told.value)
    assert list((tmp_path / "out").iterdir()) == []
    assert not list(tmp_path.rglob("escaped"))
    assert not Path("/tmp/cse-escaped").exists()


def test_a_link_to_a_folder_cannot_smuggle_a_file_out(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = member("door", tarfile.SYMTYPE, str(outside))
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_of({}, link, member("door/escaped")))
    with pytest.raises(InputError):
        unpack(archive, tmp_path / "out")
    assert list(outside.iterdir()) == []


def end_of_members(data: bytes) -> int:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.getmembers()
        return tar.offset


WHOLE = tar_of(FILES)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, end_of_members(WHOLE) + tarfile.BLOCKSIZE - 1))
def test_a_tar_cut_anywhere_is_refused_and_leaves_nothing(tmp_path, cut):
    archive = tmp_path / "a.tar"
    archive.write_bytes(WHOLE[:cut])
    with pytest.raises(InputError, match="not a whole tar archive"):
        unpack(archive, tmp_path / "out")
    assert os.listdir(tmp_path) == ["a.tar"]


@pytest.mark.parametrize("share", [0.2, 0.9, 0.99])
def test_a_cut_compressed_tar_is_refused(tmp_path, share):
    archive = tmp_path / "a.tar"
    data = gzip.compress(tar_of({"noise": os.urandom(20_000)}))
    archive.write_bytes(data[: int(share * len(data))])
    with pytest.raises(InputError, match="not a whole tar archive"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [b"", b"<html>busy</html>", os.urandom(5000)])
def test_what_is_no_tar_is_refused(tmp_path, data):
    archive = tmp_path / "a.tar"
    archive.write_bytes(data)
    with pytest.raises(InputError, match="not a whole tar archive"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    data = bytearray(WHOLE)
    second = 512 + 1536  # behind the first header and its three blocks of content
    data[second : second + 8] = b"\xff" * 8
    archive = tmp_path / "a.tar"
    archive.write_bytes(data)
    with pytest.raises(InputError, match="not a whole tar archive"):
        unpack(archive, tmp_path / "out")


def test_a_file_in_place_of_a_folder_is_refused(tmp_path):
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_of({"STS": b"x", "STS/one.txt": b"y"}))
    with pytest.raises(InputError, match="a file and a folder of one name"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_an_output_error(tmp_path):
    archive = tmp_path / "a.tar"
    archive.write_bytes(WHOLE)
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot unpack into"):
        unpack(archive, tmp_path / "file" / "out")
