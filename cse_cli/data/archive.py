"""Unpack a tar archive from elsewhere: all of it or nothing, and never outside its folder.

An archive of evaluation data holds plain files and folders. A member that is anything else (a
link, a device, a pipe) or whose path is absolute or climbs with `..` condemns the whole archive
before a byte is written. Owners and permissions in it are ignored.
"""

import lzma
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from cse_cli.errors import InputError, OutputError

_BROKEN = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)
_CLASH = (FileExistsError, IsADirectoryError, NotADirectoryError)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack `archive` (tar, also compressed) into the new `folder`; on any failure it is removed.

    Raises:
        InputError: not a tar archive, cut short, or with a member that does not belong in it.
        OutputError: `folder` cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        _extract(archive, folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise OutputError(f"cannot unpack into {folder}: {error.strerror or error}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _extract(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            for member in _checked_members(tar, archive):
                _write(tar, member, folder / member.name)
    except _BROKEN as error:
        raise InputError(f"{archive.name} is not a whole tar archive ({error})") from error
    except _CLASH as error:
        raise InputError(f"{archive.name} holds a file and a folder of one name") from error


def _checked_members(tar: tarfile.TarFile, archive: Path) -> list[tarfile.TarInfo]:
    members = tar.getmembers()
    for member in members:
        if not (member.isreg() or member.isdir()):
            raise InputError(f"{archive.name} holds '{member.name}', neither a file nor a folder")
        if _leaves(member.name):
            raise InputError(f"{archive.name} holds '{member.name}', which would leave its folder")
    # tarfile takes a cut or damaged header for the end; a real end is a block of zeros.
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    if tar.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it ends in the middle")
    return members


def _leaves(name: str) -> bool:
    """Whether the path is absolute, has a drive letter, or climbs, by either system's rules."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    return bool(posix.root or windows.anchor or ".." in posix.parts or ".." in windows.parts)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None  # a plain file, by _checked_members
    with source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy)
