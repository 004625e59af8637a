"""Where values come from, what they may be, and what is said when they are wrong."""

from pathlib import Path

import pytest

from cse_cli.config.sources import gather, load_recipe, recipe_names
from cse_cli.errors import InputError, UsageError
from cse_cli.methods.resolve import resolve


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_precedence_from_the_lowest_to_the_highest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seed(**options: object) -> object:
        config = tmp_path / "run.toml"
        return gather(
            options,
            config_file=config if config.exists() else None,
            recipe="demo",
            sets=("learning_rate=1e-9",),
        )[0].get("eval_steps")

    assert seed() == load_recipe("demo")["settings"]["eval_steps"]
    (tmp_path / "pyproject.toml").write_text("[tool.cse]\neval_steps = 11\n")
    assert seed() == 11
    (tmp_path / "run.toml").write_text("eval_steps = 12\n")
    assert seed() == 12
    monkeypatch.setenv("CSE_EVAL_STEPS", "13")
    assert seed() == 13
    assert seed(eval_steps=14) == 14


def test_sources_say_who_set_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSE_SEED", "5")
    _, sources = gather({"batch_size": 8, "clip": None}, sets=("temperature=0.1",))
    assert sources == {"seed": "environment", "batch_size": "option", "temperature": "--set"}


def test_set_reads_toml_values_and_plain_text() -> None:
    values, _ = gather({}, sets=("neg_layer=[1, 2]", "schedule=cosine", "warmup=0.1"))
    assert values == {"neg_layer": ("1", "2"), "schedule": "cosine", "warmup": 0.1}


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("batchsize=3",), "unknown setting 'batchsize'; did you mean 'batch_size'"),
        (("batch_size",), "NAME=VALUE is expected"),
        (("batch_size=many",), "--batch-size many: a whole number is expected"),
        (("batch_size=2.5",), "--batch-size 2.5: a whole number is expected"),
        (("temperature=hot",), "--temperature hot: a number is expected"),
        (("compile=maybe",), "--compile maybe: true or false is expected"),
    ],
)
def test_wrong_settings_are_named(sets: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        gather({}, sets=sets)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "simsce"}, "unknown method 'simsce'; did you mean 'simcse'"),
        ({"with_": ("layer-negative",)}, "did you mean 'layer-negatives'"),
        ({"temperature": 0.0}, "--temperature 0.0: more than 0, at most 10 is expected"),
        ({"temperature": float("nan")}, "--temperature nan"),
        ({"batch_size": 1}, "--batch-size 1: at least 2 is expected"),
        ({"dropout": 1.5}, "--dropout 1.5: 0 … 0.99 is expected"),
        ({"schedule": "liner"}, "--schedule 'liner' is unknown; did you mean 'linear'"),
        ({"neg_layer": ("1",)}, "--neg-layer belongs to 'layer-negatives'; add --with"),
        ({"method": "sscl", "variant": "papers"}, "did you mean 'paper'"),
        ({"project_dim": 8, "head": "tanh"}, "--project-dim replaces the head"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(values)


def test_method_and_added_ingredients_keep_their_order() -> None:
    assert resolve({"method": "simcse"}).ingredients == []
    run = resolve({"method": "simcse", "with_": ("layer-negatives",), "neg_layer": ("1", "2")})
    assert run.ingredients == ["layer-negatives"]
    assert run.flat()["neg_layer"] == ("1", "2")
    assert resolve({"project_dim": 8}).train.head == "linear"


def test_a_config_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("a = = 3")
    with pytest.raises(InputError, match="is not TOML"):
        gather({}, config_file=tmp_path / "x.toml")
    with pytest.raises(InputError, match="cannot be read"):
        gather({}, config_file=tmp_path / "absent.toml")


def test_every_recipe_resolves() -> None:
    assert "demo" in recipe_names()
    for name in recipe_names():
        resolve(gather({}, recipe=name)[0])
    with pytest.raises(UsageError, match="unknown recipe 'dmo'; did you mean 'demo'"):
        load_recipe("dmo")
