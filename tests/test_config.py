"""Where values come from, what they may be, and what is said when they are wrong."""

from dataclasses import fields
from pathlib import Path

import pytest

from cse_cli.config import TrainConfig
from cse_cli.config.fields import about, convert
from cse_cli.config.sources import gather, load_recipe, recipe_names
from cse_cli.errors import InputError, UsageError
from cse_cli.methods.resolve import resolve
from cse_cli.pooling import POOLER_LAYERS
from cse_cli.training.record import config_toml


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
        (("seed=1", "seed=2"), "--set seed is given twice"),
        (("wiht=dcl",), "unknown setting 'wiht'; did you mean 'with'"),
        (("clip=inf",), "--set: --clip inf: a finite number is expected"),
        (("seed=4294967296",), "--seed 4294967296: 0 … 4294967295 is expected"),
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
        ({"with_": ("dcl,off-dropout",)}, "repeat --with for several"),
        ({"warmup": float("inf")}, "--warmup inf: a finite number is expected"),
        ({"method": "gs-infonce", "noise_mean": float("nan")}, "--noise-mean nan: a finite"),
        ({"threads": 10**11}, "--threads 100000000000: 1 … 1024 is expected"),
        ({"batch_size": 10**400, "seed": -1}, "--seed -1"),
        ({"pooler": "cls_mean"}, "--pooler 'cls_mean' is unknown"),
        ({"augmentation": False, "triplet_columns": "a,b"}, "--no-augmentation makes anchors"),
        ({"augmentation": False, "method": "esimcse"}, "leaves no positives for 'word-repetition'"),
        ({"text_column": "a", "triplet_columns": "a,b"}, "leave one out"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(values)


def test_whole_numbers_keep_every_digit() -> None:
    for text, number in (("9007199254740993", 9007199254740993), ("1e3", 1000), ("7.0", 7)):
        assert convert(TrainConfig, "batch_size", text) == number


def test_whoever_set_a_wrong_value_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSE_SEED", "abc")
    with pytest.raises(UsageError, match=r"^environment: --seed abc: a whole number is expected"):
        gather({})
    monkeypatch.delenv("CSE_SEED")
    (tmp_path / "x.toml").write_text("temperature = 99.0\n")
    with pytest.raises(UsageError, match=r"x.toml: --temperature 99.0: more than 0"):
        gather({}, config_file=tmp_path / "x.toml")
    with pytest.raises(UsageError, match=r"^--temperature 99.0"):
        gather({"temperature": 99.0})
    values, sources = gather({"method": "simcse"}, recipe="esimcse-bert-base")
    with pytest.raises(UsageError, match=r"^recipe esimcse-bert-base: --dup-rate belongs to"):
        resolve(values, sources)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"edited_as": "positive", "rtd_weight": 0.1},
            "--rtd-weight has no effect with --edited-as",
        ),
        ({"edit": "delete", "decode": "argmax"}, "--decode has no effect with --edit delete"),
        ({"edit": "insert", "mask_ratio": 0.2}, "--mask-ratio has no effect with --edit insert"),
        ({"edit_ratio": 0.2}, "--edit-ratio has no effect with --edit mask; it belongs to insert"),
    ],
)
def test_a_typed_option_without_effect_is_refused(options: dict[str, object], message: str) -> None:
    values, sources = gather({"method": "diffcse", **options})
    with pytest.raises(UsageError, match=message):
        resolve(values, sources)
    resolve(values)  # a run's own file holds every setting


def test_the_poolers_offered_are_those_there_are() -> None:
    (field,) = [field for field in fields(TrainConfig) if field.name == "pooler"]
    assert about(field).choices == tuple(POOLER_LAYERS)


def test_the_resolved_settings_survive_their_file(tmp_path: Path) -> None:
    run = resolve({"train_file": ('\N{GRINNING FACE} \x7f\t"é.txt',), "clip": 0.5})
    (tmp_path / "config.toml").write_text(config_toml(run.flat()), encoding="utf-8")
    assert resolve(gather({}, config_file=tmp_path / "config.toml")[0]) == run


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


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\ncse = 3"])
def test_project_settings_that_are_no_table(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=r"is 3, but \[tool\.cse\] is a table"):
        gather({})


def test_every_recipe_resolves() -> None:
    assert "demo" in recipe_names()
    for name in recipe_names():
        resolve(gather({}, recipe=name)[0])
    with pytest.raises(UsageError, match="unknown recipe 'dmo'; did you mean 'demo'"):
        load_recipe("dmo")
