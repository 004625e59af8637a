"""`cse data list` and `fetch` with the real huggingface_hub against a hub on localhost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub_server import LARGE, Hub, hub  # noqa: F401
from tests.test_data_archive import contents, member, tar_of

REPO = "princeton-nlp/datasets-for-simcse"
FILE = "wiki1m_for_simcse.txt"
TASKS = {"STS/STS12-en-test/STS.gs.MSRpar.txt": b"4.5\n", "CR/custrev.pos": b"good .\n" * 30_000}
TEXT = b"".join(b"Sentence number %d of a small corpus .\n" % i for i in range(10_000))
LONG_TEXT = TEXT * 60  # huggingface_hub writes what has arrived in pieces of 10 MB
HALF = len(LONG_TEXT) // 2


def start(*arguments: str, env: dict[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "cse_cli", "data", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


def cse(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    process = start(*arguments, env=env)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@pytest.fixture
def simcse(hub: Hub) -> Hub:  # noqa: F811
    """The authors' repository, in small."""
    files = {FILE: TEXT, "nli_for_simcse.csv": b"sent0,sent1,hard_neg\na,b,c\n"}
    hub.add(REPO, {**files, "senteval.tar": tar_of(TASKS)}, kind="datasets")
    return hub


def assert_one_line(stderr: str, *parts: str) -> None:
    last = stderr.strip().splitlines()[-1]
    assert "Traceback" not in stderr
    for part in parts:
        assert part in last


def test_corpora_land_byte_for_byte_and_stdout_is_their_paths(simcse, tmp_path):
    assert len(TEXT) > LARGE  # one file goes the way of large files, by redirect, one does not
    out = tmp_path / "new" / "out"
    run = cse("fetch", "wiki1m", "nli", "--out", str(out), env=simcse.environment(tmp_path))
    assert (run.returncode, run.stdout) == (0, f"{out / FILE}\n{out / 'nli_for_simcse.csv'}\n")
    assert (out / FILE).read_bytes() == TEXT
    assert sorted(os.listdir(out)) == ["nli_for_simcse.csv", FILE]
    assert "fetching wiki1m" in run.stderr


def test_the_default_folder_is_in_the_cache(simcse, tmp_path):
    run = cse("fetch", "nli", env=simcse.environment(tmp_path))
    landed = tmp_path / "cse" / "data" / "nli_for_simcse.csv"
    assert run.stdout == f"{landed}\n"
    again = json.loads(cse("fetch", "nli", "--json", env=simcse.environment(tmp_path)).stdout)
    assert (again["schema"], again["command"]) == (1, "data fetch")
    assert again["rows"] == [{"name": "nli", "path": str(landed)}]


def test_what_is_there_is_not_fetched_again(simcse, tmp_path):
    (tmp_path / FILE).write_text("mine\n")
    run = cse("fetch", "wiki1m", "--out", str(tmp_path), env=simcse.environment(tmp_path))
    assert (run.returncode, run.stdout) == (0, f"{tmp_path / FILE}\n")
    assert (tmp_path / FILE).read_text() == "mine\n"
    assert simcse.requests == []


def test_a_dropped_connection_is_picked_up_within_one_run(simcse, tmp_path):
    simcse.add(REPO, {FILE: LONG_TEXT}, kind="datasets")
    simcse.break_download(FILE, after=HALF)
    run = cse("fetch", "wiki1m", "--out", str(tmp_path / "o"), env=simcse.environment(tmp_path))
    assert run.returncode == 0
    assert (tmp_path / "o" / FILE).read_bytes() == LONG_TEXT
    resumed = {request["range"] for request in simcse.asked("GET", FILE)} - {""}
    assert len(resumed) == 1


def test_a_broken_download_resumes_in_the_next_run(simcse, tmp_path):
    out, env = tmp_path / "o", simcse.environment(tmp_path)
    simcse.add(REPO, {FILE: LONG_TEXT}, kind="datasets")
    simcse.break_download(FILE, after=HALF, refusals=1)
    first = cse("fetch", "wiki1m", "--out", str(out), env=env)
    assert (first.returncode, first.stdout) == (3, "")
    assert_one_line(first.stderr, FILE, "run the same command again")
    assert not (out / FILE).exists()
    (partial,) = (out / ".cse-download-wiki1m").glob("*.partial")
    arrived = partial.stat().st_size
    assert 0 < arrived <= HALF

    simcse.requests.clear()
    second = cse("fetch", "wiki1m", "--out", str(out), env=env)
    assert second.returncode == 0
    assert (out / FILE).read_bytes() == LONG_TEXT
    assert {request["range"] for request in simcse.asked("GET", FILE)} == {f"bytes={arrived}-"}
    assert os.listdir(out) == [FILE]


def test_the_rest_of_a_changed_file_is_not_glued_to_the_old_start(simcse, tmp_path):
    out, env = tmp_path / "o", simcse.environment(tmp_path)
    simcse.add(REPO, {FILE: LONG_TEXT}, kind="datasets")
    simcse.break_download(FILE, after=HALF, refusals=1)
    assert cse("fetch", "wiki1m", "--out", str(out), env=env).returncode == 3
    changed = LONG_TEXT.replace(b"small", b"SMALL")
    simcse.add(REPO, {FILE: changed}, kind="datasets")
    assert cse("fetch", "wiki1m", "--out", str(out), env=env).returncode == 0
    assert (out / FILE).read_bytes() == changed


def test_damaged_content_is_deleted_and_the_next_run_is_clean(simcse, tmp_path):
    out, env = tmp_path / "o", simcse.environment(tmp_path)
    simcse.instead[FILE] = TEXT[:-2] + b"!\n"
    run = cse("fetch", "wiki1m", "--out", str(out), env=env)
    assert (run.returncode, run.stdout) == (3, "")
    assert_one_line(run.stderr, FILE, "damaged", "run the same command again")
    assert os.listdir(out) == []
    simcse.instead.clear()
    assert cse("fetch", "wiki1m", "--out", str(out), env=env).returncode == 0
    assert (out / FILE).read_bytes() == TEXT


def test_two_processes_fetch_once(simcse, tmp_path):
    simcse.pause = 0.5
    env, out = simcse.environment(tmp_path), tmp_path / "o"
    both = [start("fetch", "wiki1m", "--out", str(out), env=env) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers == [f"{out / FILE}\n"] * 2
    assert (out / FILE).read_bytes() == TEXT
    assert os.listdir(out) == [FILE]
    assert len(simcse.asked("GET", FILE)) == 2  # the redirect and the content, once


def test_ctrl_c_leaves_quietly(simcse, tmp_path):
    simcse.pause = 2
    out = tmp_path / "o"
    process = start("fetch", "wiki1m", "--out", str(out), env=simcse.environment(tmp_path))
    while not simcse.asked("GET", FILE) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "")
    assert "Traceback" not in errors
    assert os.listdir(out) == []


def test_offline_says_what_to_do_and_leaves_nothing(simcse, tmp_path):
    env = simcse.environment(tmp_path, HF_HUB_OFFLINE="1")
    run = cse("fetch", "senteval", "--out", str(tmp_path / "o"), env=env)
    assert (run.returncode, run.stdout) == (3, "")
    assert_one_line(run.stderr, "senteval.tar", "HF_HUB_OFFLINE", "copy the folder")
    assert os.listdir(tmp_path / "o") == []
    assert simcse.requests == []


def test_offline_takes_what_huggingface_hub_has_in_its_own_cache(simcse, tmp_path):
    call = f"hf_hub_download('{REPO}', '{FILE}', repo_type='dataset')"
    script = f"from huggingface_hub import hf_hub_download; {call}"
    subprocess.run([sys.executable, "-c", script], env=simcse.environment(tmp_path), check=True)
    env = simcse.environment(tmp_path, HF_HUB_OFFLINE="1")
    run = cse("fetch", "wiki1m", "--out", str(tmp_path / "o"), env=env)
    assert run.returncode == 0
    assert (tmp_path / "o" / FILE).read_bytes() == TEXT
    assert not (tmp_path / "o" / FILE).is_symlink()


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "{hub}/elsewhere"])
def test_no_hub_there_is_one_line(simcse, tmp_path, endpoint):
    env = simcse.environment(tmp_path, HF_ENDPOINT=endpoint.format(hub=simcse.url))
    run = cse("fetch", "wiki1m", "--out", str(tmp_path / "o"), env=env)
    assert (run.returncode, run.stdout) == (3, "")
    assert_one_line(run.stderr, "HF_ENDPOINT")
    assert os.listdir(tmp_path / "o") == []


def test_a_repository_without_the_file_is_one_line(hub, tmp_path):  # noqa: F811
    hub.add(REPO, {"README.md": b"moved"}, kind="datasets")
    run = cse("fetch", "wiki1m", "--out", str(tmp_path / "o"), env=hub.environment(tmp_path))
    assert run.returncode == 3
    assert_one_line(run.stderr, FILE, "HF_ENDPOINT")


def test_an_unknown_name_is_a_usage_error_before_anything_is_fetched(simcse, tmp_path):
    run = cse("fetch", "nli", "sentevl", env=simcse.environment(tmp_path))
    assert (run.returncode, run.stdout) == (2, "")
    assert_one_line(run.stderr, "did you mean 'senteval'?")
    assert simcse.requests == []


def test_a_file_for_a_folder_is_an_output_error(simcse, tmp_path):
    (tmp_path / "file").write_text("here")
    run = cse("fetch", "nli", "--out", str(tmp_path / "file"), env=simcse.environment(tmp_path))
    assert (run.returncode, run.stdout) == (5, "")
    assert_one_line(run.stderr, "--out")


def test_a_full_disk_is_an_output_error(simcse, tmp_path):
    # A limit on the size of a file stands in for the disk: the write fails in the same place.
    half = len(TEXT) // 2
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({half}, {half}));"
    script = f"{limit} from cse_cli.__main__ import main; main()"
    command = [sys.executable, "-c", script, "data", "fetch", "wiki1m", "--out", str(tmp_path)]
    env = simcse.environment(tmp_path)
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (5, "")
    assert_one_line(run.stderr, FILE)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("above", ["", "downstream/", "SentEval/data/downstream/"])
def test_senteval_is_unpacked_to_where_data_dir_wants_it(simcse, tmp_path, above):
    archive = tar_of({above + name: data for name, data in TASKS.items()})
    simcse.add(REPO, {"senteval.tar": archive}, kind="datasets")
    out = tmp_path / "o"
    run = cse("fetch", "senteval", "--out", str(out), env=simcse.environment(tmp_path))
    assert (run.returncode, run.stdout) == (0, f"{out / 'senteval'}\n")
    assert contents(out / "senteval" / "downstream") == TASKS
    assert os.listdir(out) == ["senteval"]
    assert os.listdir(out / "senteval") == ["downstream"]


def test_what_a_killed_run_left_is_no_obstacle(simcse, tmp_path):
    out, env = tmp_path / "o", simcse.environment(tmp_path)
    work = out / ".cse-download-senteval"
    for left in ("staged/STS/half", "arranged/downstream/STS/half"):
        (work / left).mkdir(parents=True)
    (work / "senteval.tar").write_bytes(tar_of(TASKS))
    (work / "senteval.tar.older.partial").write_bytes(b"of another version")
    run = cse("fetch", "senteval", "--out", str(out), env=env)
    assert (run.returncode, run.stdout) == (0, f"{out / 'senteval'}\n")
    assert contents(out / "senteval" / "downstream") == TASKS
    assert os.listdir(out) == ["senteval"]
    assert simcse.requests == []  # the archive itself was whole


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (tar_of(TASKS, member("../../escaped")), "would leave its folder"),
        (tar_of(TASKS, member("link", b"2", "/etc/passwd")), "neither a file nor a folder"),
        (tar_of(TASKS)[:150_000], "not a whole tar archive"),
        (tar_of({"readme.txt": b"hello"}), "no folder STS"),
    ],
    ids=["climbs", "link", "cut", "other"],
)
def test_a_bad_archive_leaves_nothing_and_can_be_fetched_anew(simcse, tmp_path, archive, said):
    out, env = tmp_path / "o", simcse.environment(tmp_path)
    simcse.add(REPO, {"senteval.tar": archive}, kind="datasets")
    run = cse("fetch", "senteval", "--out", str(out), env=env)
    assert (run.returncode, run.stdout) == (3, "")
    assert_one_line(run.stderr, "senteval.tar", said)
    assert os.listdir(out) == []
    assert not list(tmp_path.rglob("escaped"))
    simcse.add(REPO, {"senteval.tar": tar_of(TASKS)}, kind="datasets")
    assert cse("fetch", "senteval", "--out", str(out), env=env).returncode == 0


def test_list_tells_what_there_is_and_what_was_fetched(simcse, tmp_path):
    env = simcse.environment(tmp_path)
    cse("fetch", "nli", "--out", str(tmp_path / "o"), env=env)
    run = cse("list", "--out", str(tmp_path / "o"), "--json", env=env)
    document = json.loads(run.stdout)
    assert (document["schema"], document["command"]) == (1, "data list")
    rows = {row["name"]: row for row in document["rows"]}
    assert {name: row["rows"] for name, row in rows.items()} == {
        "wiki1m": 1_000_000,
        "nli": 275_601,
        "senteval": None,
    }
    assert rows["nli"]["path"] == str(tmp_path / "o" / "nli_for_simcse.csv")
    assert rows["wiki1m"]["path"] == ""


def test_the_hub_serves_models_to_huggingface_hub(hub, tmp_path):  # noqa: F811
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(os.urandom(LARGE))
    hub.add("org/tiny", folder)
    script = (
        "from huggingface_hub import model_info, snapshot_download\n"
        "print(snapshot_download('org/tiny'))\n"
        "print(model_info('org/tiny').sha)\n"
    )
    command = [sys.executable, "-c", script]
    env = hub.environment(tmp_path)
    run = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    path, sha = run.stdout.split()
    assert contents(Path(path)) == contents(folder)
    assert Path(path).name == sha
