"""One file from a dataset on the Hugging Face hub, downloaded so that a broken download resumes.

huggingface_hub does the talking (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, proxies, progress bar,
retries within one run). Its own `hf_hub_download` forgets a broken download when the process ends;
here the bytes stay in `FILE.ETAG.partial` until a later run has the rest.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import HfFileMetadata, http_get
from huggingface_hub.utils import build_hf_headers

from cse_cli.errors import InputError, OutputError, first_line

_SHA256 = re.compile(r"[0-9a-f]{64}")


def in_hub_cache(repo: str, file: str, kind: str = "dataset") -> Path | None:
    """The file of a `kind` of repository in huggingface_hub's own cache, downloaded before."""
    found = try_to_load_from_cache(repo, file, repo_type=kind)
    return Path(found) if isinstance(found, str) else None


def download(repo: str, file: str, folder: Path) -> Path:
    """Download `file` of the dataset `repo` into `folder`, going on from a broken download.

    Returns the whole file, its checksum compared where the hub tells one.

    Raises:
        InputError: offline, no such file, the connection broke, or the content is wrong.
        OutputError: no room for it.
    """
    whole = folder / file
    if whole.is_file():  # an earlier run ended between downloading and unpacking
        return whole
    with _in_one_line(file):
        metadata = get_hf_file_metadata(hf_hub_url(repo, file, repo_type="dataset"))
        if not metadata.etag or not metadata.commit_hash:
            raise FileMetadataError("the server names no ETag or no commit")
        # By commit: should the branch move between two runs, the tail still fits the head.
        url = hf_hub_url(repo, file, repo_type="dataset", revision=metadata.commit_hash)
        partial = folder / f"{file}.{metadata.etag[:16]}.partial"
        with partial.open("ab") as handle:
            if metadata.size is None or handle.tell() < metadata.size:
                http_get(url, handle, resume_size=handle.tell(), headers=_headers())
    _compare(partial, metadata, file)
    os.replace(partial, whole)
    return whole


def _headers() -> dict[str, str]:
    """Uncompressed, or the byte ranges of two runs would not fit together."""
    return {**build_hf_headers(), "Accept-Encoding": "identity"}


def _compare(partial: Path, metadata: HfFileMetadata, file: str) -> None:
    """Size, and the SHA-256 that large files have as ETag; a file that differs is deleted."""
    sound = metadata.size in (None, partial.stat().st_size)
    if sound and _SHA256.fullmatch(metadata.etag or ""):
        with partial.open("rb") as handle:
            sound = hashlib.file_digest(handle, "sha256").hexdigest() == metadata.etag
    if not sound:
        partial.unlink()
        raise InputError(
            f"the download of {file} is damaged (size or checksum differ from the hub's) and was "
            "deleted; run the same command again"
        )


@contextmanager
def _in_one_line(file: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into one line that says what to do."""
    hub = constants.ENDPOINT
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise InputError(
            f"{file} is not here and HF_HUB_OFFLINE forbids to download it; unset HF_HUB_OFFLINE, "
            "or run `cse data fetch` on a machine with network and copy the folder"
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError) as error:
        raise InputError(
            f"{hub} has no {file}, or asks for a login; check HF_ENDPOINT and HF_TOKEN"
        ) from error
    except (HTTPError, FileMetadataError) as error:
        raise InputError(
            f"cannot download {file} from {hub} ({first_line(error)}); what has arrived is kept: "
            "run the same command again to go on, or set HF_ENDPOINT to a mirror"
        ) from error
    except OSError as error:
        if error.errno is None:
            raise InputError(f"cannot download {file} from {hub}: {first_line(error)}") from error
        raise OutputError(f"cannot write {file}: {error.strerror}; see --out") from error
