"""A small Hugging Face hub on localhost, spoken to by the real huggingface_hub.

It serves models and datasets from folders or bytes: `/{repo}/resolve/{revision}/{file}` and
`/datasets/{repo}/resolve/...` (HEAD, GET, byte ranges, ETag, X-Repo-Commit, large files redirected
to a content store with X-Linked-Size and X-Linked-Etag) and the `/api/models|datasets/...` calls
behind `model_info`, `list_repo_tree` and `snapshot_download`. Downloads can be broken on purpose.

    from tests.hub_server import hub  # noqa: F401, a pytest fixture

    def test_it(hub, tmp_path):
        hub.add("org/tiny", folder)                      # a model
        subprocess.run([...], env=hub.environment(tmp_path))

HF_ENDPOINT is read when huggingface_hub is imported, so what uses it runs in a subprocess.
"""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

LARGE = 100_000  # bytes from which a file is "LFS": SHA-256 as its ETag, served by redirect
UNWANTED = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE")


@dataclass
class Break:
    """Cut one download of a file after `after` bytes, then answer `refusals` retries with 503."""

    after: int
    refusals: int
    due: bool = True


@dataclass
class Hub:
    """The state of the server: what it holds, what was asked for, what to break."""

    url: str = ""
    files: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)
    breaks: dict[str, Break] = field(default_factory=dict)
    instead: dict[str, bytes] = field(default_factory=dict)  # sent under the headers of a file
    pause: float = 0.0  # seconds before every body

    def add(
        self, repo: str, content: Path | str | Mapping[str, bytes], *, kind: str = "models"
    ) -> None:
        """Serve a folder, or named bytes, as `repo`; `kind` is "models" or "datasets"."""
        if not isinstance(content, Mapping):
            root = Path(content)
            paths = (path for path in sorted(root.rglob("*")) if path.is_file())
            content = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
        self.files[kind, repo] = dict(content)

    def break_download(self, file: str, after: int, *, refusals: int = 0) -> None:
        """Let the next download of `file` die after `after` bytes of the body.

        huggingface_hub retries that by itself, unless the retry is refused.
        """
        self.breaks[file] = Break(after, refusals)

    def asked(self, method: str, file: str) -> list[dict[str, str]]:
        """The requests of one method for one file, redirected ones included."""
        return [r for r in self.requests if r["method"] == method and r["file"] == file]

    def environment(self, home: Path, **extra: str) -> dict[str, str]:
        """Environment of a subprocess that knows this hub only and keeps its caches in `home`."""
        kept = {k: v for k, v in os.environ.items() if k not in UNWANTED}
        return {
            **{k: v for k, v in kept.items() if not k.lower().endswith("_proxy")},
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home / "huggingface"),
            "CSE_CACHE": str(home / "cse"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            **extra,
        }


def commit_of(files: Mapping[str, bytes]) -> str:
    """Forty hex digits that change with the content, as a commit does."""
    digest = hashlib.sha1()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name])
    return digest.hexdigest()


def etag_of(data: bytes) -> str:
    """SHA-256 for large files, git's blob hash for small ones."""
    if len(data) >= LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    body = b""

    def log_message(self, *args: object) -> None:
        """Keep the test's standard error clean."""

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._route()

    def _route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/store/(models|datasets)/(.+)/=/(.+)", path):
            return self._send_file(*match.groups(), stored=True)
        if match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+|[^/]+)/resolve/([^/]+)/(.+)", path):
            kind = "datasets" if match[1] else "models"
            return self._send_file(kind, match[2], match[4], revision=match[3])
        if match := re.fullmatch(
            r"/api/(models|datasets)/([^/]+/[^/]+?)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.*))?)?",
            path,
        ):
            return self._send_api(*match.groups())
        return self._error(404, "EntryNotFound")

    def _send_file(
        self, kind: str, repo: str, file: str, *, revision: str = "main", stored: bool = False
    ) -> None:
        sent_range = self.headers.get("Range", "")
        self.hub.requests.append({"method": self.command, "file": file, "range": sent_range})
        files = self.hub.files.get((kind, repo))
        if files is None:
            return self._error(401, "RepoNotFound")
        cut = self.hub.breaks.get(file)
        if cut and not cut.due and cut.refusals and self.command == "GET":
            cut.refusals -= 1
            return self._send(503, b"", {})
        commit = commit_of(files)
        if revision not in ("main", commit):
            return self._error(404, "RevisionNotFound", commit)
        if file not in files:
            return self._error(404, "EntryNotFound", commit)
        data = files[file]
        headers = {"ETag": f'"{etag_of(data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if len(data) >= LARGE and not stored:
            headers["X-Linked-Etag"] = headers.pop("ETag")
            headers["X-Linked-Size"] = str(len(data))
            headers["Location"] = f"{self.hub.url}/store/{kind}/{repo}/=/{file}"
            return self._send(302, b"", headers)
        data = self.hub.instead.get(file, data)
        start = int(sent_range.removeprefix("bytes=").split("-")[0]) if sent_range else 0
        if start and start >= len(data):
            return self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        if sent_range:
            end = sent_range.split("-")[1]
            stop = int(end) + 1 if end else len(data)
            headers["Content-Range"] = f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}"
            return self._send(206, data[start:stop], headers, cut)
        return self._send(200, data, headers, cut)

    def _send_api(
        self, kind: str, repo: str, call: str | None, _revision: str | None, under: str | None
    ) -> None:
        files = self.hub.files.get((kind, repo))
        if files is None:
            return self._error(401, "RepoNotFound")
        if call == "tree":
            return self._json([_tree_entry(n, d) for n, d in files.items() if _in(n, under)])
        if call == "paths-info":
            wanted = json.loads(self.body)["paths"]
            return self._json([_tree_entry(n, d) for n, d in files.items() if n in wanted])
        listed = [{"rfilename": name} for name in files]
        commit = commit_of(files)
        fields = {"private": False, "gated": False, "disabled": False, "downloads": 0, "likes": 0}
        return self._json(
            {"_id": "0" * 24, "id": repo, "sha": commit, "siblings": listed, "tags": [], **fields}
        )

    def _json(self, answer: object) -> None:
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str, commit: str | None = None) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": code}
        self._send(status, b"", {**headers, "X-Repo-Commit": commit} if commit else headers)

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str], cut: Break | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        time.sleep(self.hub.pause)
        if cut is None or not cut.due:
            self.wfile.write(body)
            return
        cut.due = False
        self.wfile.write(body[: cut.after])
        self.close_connection = True


def _in(name: str, under: str | None) -> bool:
    return not under or name.startswith(f"{under}/")


def _tree_entry(name: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "file",
        "path": name,
        "size": len(data),
        "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
    }
    if len(data) >= LARGE:
        entry["lfs"] = {"oid": etag_of(data), "size": len(data), "pointerSize": 134}
    return entry


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A running hub that holds nothing yet."""
    state = Hub()
    handler = type("Handler", (_Handler,), {"hub": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
