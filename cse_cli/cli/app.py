"""The command line: every command, in the order in which people meet them."""

from importlib import import_module
from typing import Annotated

import typer

from cse_cli import __version__
from cse_cli.cli.group import CseGroup

# One line a command: (name, module, function). A function that is a Typer is a group, whose own
# commands stand below it.
COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("train", "train", "train"),
    ("eval-sts", "eval_sts", "eval_sts"),
    ("eval-transfer", "eval_transfer", "eval_transfer"),
    ("probe-linguistic", "probe_linguistic", "probe_linguistic"),
    ("probe-smoothing", "probe_smoothing", "probe_smoothing"),
    ("length-bias", "length_bias", "length_bias"),
    ("geometry", "geometry", "geometry"),
    ("retrieve", "retrieve", "retrieve"),
    ("curves", "curves", "curves"),
    ("encode", "encode", "encode"),
    ("info", "info", "info"),
    ("methods", "methods", "methods"),
    ("recipes", "recipes", "recipes_app"),
    ("data", "data", "data_app"),
    ("data make-probing", "make_probing", "make_probing"),
)

app = typer.Typer(
    name="cse",
    cls=CseGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Contrastive sentence embeddings: train an encoder, judge it, look inside it.",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cse {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and leave.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
) -> None:
    pass


_groups = {"": app}
for _name, _module, _function in COMMANDS:
    _command = getattr(import_module(f"cse_cli.cli.{_module}"), _function)
    _group, _, _word = _name.rpartition(" ")
    if isinstance(_command, typer.Typer):
        _groups[_name] = _command
        _groups[_group].add_typer(_command, name=_word)
    else:
        _groups[_group].command(_word)(_command)
