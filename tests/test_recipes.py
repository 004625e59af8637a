"""Published settings: each one runs, and each printed average is either right or marked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cse_cli.config.sources import gather, load_recipe, recipe_names
from cse_cli.errors import UsageError
from cse_cli.methods.resolve import resolve

PUBLISHED = [name for name in recipe_names() if name != "demo"]
# Rows of seven two-decimal numbers and their printed mean: each rounding is at most 0.005.
ROUNDING = 0.01


def cse(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cse_cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", recipe_names())
def test_resolves(name: str) -> None:
    values, _ = gather({}, recipe=name)
    run = resolve(values)
    for key, value in load_recipe(name)["settings"].items():
        key = "with_" if key == "with" else key
        found = run.flat()[key]
        assert (list(found) if isinstance(found, tuple) else found) == value


@pytest.mark.parametrize("name", PUBLISHED)
def test_says_where_it_comes_from(name: str) -> None:
    tables = load_recipe(name)
    assert set(tables) <= {"settings", "paper", "claimed"}
    assert {"citation", "backbone", "summary", "source"} <= set(tables["paper"])
    if "claimed" in tables:
        assert {"table", "metric", "scores"} <= set(tables["claimed"])
        assert tables["claimed"]["metric"] in ("spearman", "accuracy")


@pytest.mark.parametrize("name", PUBLISHED)
def test_claims_agree_with_their_own_rows_or_are_marked(name: str) -> None:
    claimed = load_recipe(name).get("claimed", {})
    scores = dict(claimed.get("scores", {}))
    average = scores.pop("Avg", None)
    if len(scores) == 7 and abs(sum(scores.values()) / 7 - average) > ROUNDING:
        assert "averages" in claimed["disagrees"]


@pytest.mark.parametrize(
    "name",
    [
        "gs-infonce-bert-large",
        "gs-infonce-roberta-large",
        "sscl-progressive-bert-base",
        "sscl-progressive-bert-large",
        "sscl-plain-bert-large-cls-transfer",
        "diffcse-roberta-base",
    ],
)
def test_known_contradictions_are_marked(name: str) -> None:
    assert load_recipe(name)["claimed"]["disagrees"]


@pytest.mark.parametrize(
    ("name", "rate", "batch"),
    [
        ("simcse-roberta-large", 3e-5, 512),
        ("esimcse-roberta-base", 1e-5, 64),
        ("simcse-pp-bert-large", 8e-6, 64),
        ("diffcse-bert-base", 7e-6, 64),
        ("diffcse-roberta-base-transfer", 3e-6, 128),
        ("gs-infonce-roberta-large-released", 2e-5, 128),
        ("simcse-supervised-bert-base", 5e-5, 512),
    ],
)
def test_learning_rates_and_batches(name: str, rate: float, batch: int) -> None:
    settings = load_recipe(name)["settings"]
    assert (settings["learning_rate"], settings["batch_size"]) == (rate, batch)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("simcse-bert-base", {"learning_rate": 3e-5, "batch_size": 64}),
        ("simcse-bert-large", {"learning_rate": 1e-5, "batch_size": 64}),
        ("simcse-roberta-base", {"learning_rate": 1e-5, "batch_size": 512}),
        ("sscl-bert-base", {"learning_rate": 3e-5, "batch_size": 64}),
        (
            "esimcse-bert-base",
            {"dup_rate": 0.32, "queue_size": "2.5x", "momentum": 0.995, "batch_size": 64},
        ),
        ("esimcse-bert-large", {"dropout": 0.15, "dup_rate": 0.32, "queue_size": "2.5x"}),
        (
            "esimcse-roberta-large-released",
            {"dropout": 0.15, "dup_rate": 0.28, "queue_size": "128"},
        ),
        ("esimcse-roberta-base-released", {"dropout": 0.1, "dup_rate": 0.3, "queue_size": "160"}),
        ("gs-infonce-bert-base", {"noise_std": 1.0, "noise_count": "3x", "noise_weight": 1.0}),
        ("gs-infonce-bert-base-released", {"dropout": 0.2, "noise_std": 0.5}),
        ("gs-infonce-bert-large-released", {"dropout": 0.2, "noise_std": 0.1}),
        ("gs-infonce-roberta-base-released", {"dropout": 0.1, "noise_std": 0.1}),
        ("gs-infonce-roberta-large-released", {"dropout": 0.1, "noise_std": 0.5}),
        (
            "simcse-pp-bert-base",
            {"off_dropout_m": 0.9, "dcl_temperature": 5.0, "dcl_weight": 0.1},
        ),
        ("diffcse-roberta-base", {"mask_ratio": 0.2, "rtd_weight": 0.005, "learning_rate": 1e-5}),
        ("diffcse-bert-base-transfer", {"mask_ratio": 0.15, "rtd_weight": 0.05}),
    ],
)
def test_a_recipe_trains_by_the_papers_settings(name: str, expected: dict[str, object]) -> None:
    run = resolve(gather({}, recipe=name)[0])
    assert {key: run.flat()[key] for key in expected} == expected


def test_an_option_wins_over_the_recipe() -> None:
    values, sources = gather({}, recipe="esimcse-bert-base", sets=["batch_size=128"])
    assert values["batch_size"] == 128
    assert sources["batch_size"] == "--set"
    assert values["queue_size"] == "2.5x"


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'esimcse-bert-base'"):
        load_recipe("esimcse-bert-bas")


def test_the_list_shows_every_recipe() -> None:
    done = cse("recipes")
    assert [line.split()[0] for line in done.stdout.splitlines()] == recipe_names()
    assert "disagrees with itself" in done.stdout


def test_show_prints_toml_that_train_takes(tmp_path: Path) -> None:
    import tomllib

    shown = cse("recipes", "show", "sscl-bert-base")
    assert tomllib.loads(shown.stdout) == load_recipe("sscl-bert-base")
    as_json = json.loads(cse("recipes", "show", "sscl-bert-base", "--json").stdout)
    assert as_json["settings"] == load_recipe("sscl-bert-base")["settings"]
    assert as_json["schema"] == 1


def test_show_refuses_an_unknown_name_with_exit_2() -> None:
    done = cse("recipes", "show", "nothing-like-it")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "flag",
    [
        "--variant",
        "--dup-rule",
        "--momentum-head",
        "--noise-weight",
        "--m-mode",
        "--dcl-reduction",
        "--bt-center",
        "--decode",
        "--edit",
        "--rtd-reduction",
    ],
)
def test_methods_documents_every_flag(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    from cse_cli.cli.methods import methods

    methods(None, ingredients=True)
    assert f"{flag} [" in capsys.readouterr().out
