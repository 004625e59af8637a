"""What `cse train` does once its options are typed: resolve, claim the folder, train, report."""

import dataclasses
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cse_cli.cli.group import Interrupted
from cse_cli.cli.stdout import write_stdout
from cse_cli.config.fields import flag
from cse_cli.config.sources import gather, load_recipe, merge, read_toml
from cse_cli.data.locate import resolve_data_dir
from cse_cli.data.sources import STDIN, find_source
from cse_cli.errors import CseError, InputError, UsageError
from cse_cli.methods.resolve import Run, resolve
from cse_cli.progress import log
from cse_cli.shards import process

# Settings that a resumed run may be given anew: they change how it runs, not what comes out.
RESUMABLE = {"threads", "device", "save_steps"}
DEMO_RECIPE = "demo"


def run_training(
    options: Mapping[str, Any],
    *,
    out: Path | None,
    config: Path | None,
    recipe: str | None,
    sets: Sequence[str],
    dry_run: bool,
    overwrite: bool,
    resume: bool,
    seeds: str | None,
    jobs: int,
    json: bool,
) -> None:
    """Train as told and print the checkpoint's path, or the result as JSON."""
    numbers = None if seeds is None else _seeds(seeds)
    if jobs > 1 and seeds is None:
        raise UsageError("--jobs is the number of --seeds trained at a time; there are none")
    if resume and overwrite:
        raise UsageError("--resume goes on with the run, --overwrite removes it; leave one out")
    if numbers is not None and options.get("seed") is not None:
        raise UsageError("--seeds names the seeds; leave --seed out")
    if resume:
        if out is None:
            raise UsageError("--resume needs the --out of the run to go on with")
        if config is not None or recipe is not None or sets:
            raise UsageError("--resume goes on with the run's own settings, not with others")
        run, sources = resumed(options, out, numbers), dict[str, str]()
    else:
        run, sources = configured(options, config, recipe, sets)
    check_inputs(run, once=numbers is None and process()[1] == 1)
    run = on_this_machine(run, resume=resume)
    writes = process()[0] == 0
    if dry_run:
        if writes:
            _print_dry_run(run, sources, json)
        return
    out = out or _new_folder(run)
    if numbers is not None:
        _train_seeds(run, numbers, out, jobs, overwrite, resume, json)
        return
    progress = train_into(run, out, overwrite=overwrite, resume=resume)
    if not writes:
        return
    if not json:
        write_stdout(f"{out}\n")
        return
    from json import dumps

    result = {
        "schema": 1,
        "command": "train",
        "checkpoint": str(out),
        "step": progress.step,
        "best_step": progress.best_step,
        "dev_score": progress.best,
        "config": run.flat(),
    }
    write_stdout(dumps(result, indent=2) + "\n")


def configured(
    options: Mapping[str, Any], config: Path | None, recipe: str | None, sets: Sequence[str]
) -> tuple[Run, dict[str, str]]:
    """The run that options, environment, files and recipe ask for, and who set what."""
    values, sources = gather(options, sets=sets, config_file=config, recipe=recipe)
    if "model" not in values and recipe is None:
        demo = load_recipe(DEMO_RECIPE)["settings"]
        sources = dict.fromkeys(demo, "the demo's settings") | sources
        values = {**demo, **values}
    return resolve(values, sources), sources


def check_inputs(run: Run, *, once: bool) -> None:
    """Refuse files and names that are not there, before anything slow is imported.

    Standard input is refused unless the text is read `once`: by one process, for one run.
    """
    from cse_cli.training.select import check_select

    check_select(run.train.select)
    for name in run.train.train_file:
        if name == STDIN and not once:
            raise UsageError("--train-file -: standard input can be read once, by one process")
        find_source(name)


def resumed(options: Mapping[str, Any], out: Path, seeds: Sequence[int] | None = None) -> Run:
    """The run in `out` as its config.toml says; UsageError for an option that would change it.

    Several `seeds` share their settings: those of the first that has begun.
    """
    folders = [out] if seeds is None else [out / f"seed-{seed}" for seed in seeds]
    begun = [file for f in folders if (file := f / "train" / "config.toml").is_file()]
    if not begun:
        raise UsageError(f"{out} holds no run to --resume")
    stored = begun[0]
    values, _ = merge([(str(stored), read_toml(stored))])
    if "method" not in values:
        raise InputError(f"{stored} is damaged: it names no method")
    typed, _ = merge([("option", {k: v for k, v in options.items() if v not in (None, [])})])
    for name in sorted(typed.keys() - RESUMABLE):
        if typed[name] != values.get(name):
            raise UsageError(
                f"--resume goes on with the run's own settings; leave {flag(name)} out"
            )
    return resolve(values | {name: typed[name] for name in typed.keys() & RESUMABLE})


def on_this_machine(run: Run, *, resume: bool = False) -> Run:
    """The run with `auto` settled: device, precision, threads, and where the data is.

    A run to `resume` has settled on its data before; the environment may say otherwise by now.
    """
    import torch

    from cse_cli.training.precision import choose_device, choose_precision

    settings = run.train
    device = choose_device(settings.device)
    precision = choose_precision(settings.precision, device)
    data_dir = None
    if settings.data_dir is not None or not resume:
        data_dir = resolve_data_dir(settings.data_dir)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    changed = dataclasses.replace(
        settings,
        device=device,
        precision=precision,
        data_dir=str(data_dir) if data_dir else None,
    )
    return Run(changed, run.parts)


def train_into(run: Run, out: Path, *, overwrite: bool = False, resume: bool = False) -> Any:
    """Train `run` into the folder `out`; what the loop remembered at the end."""
    from cse_cli.cli.train_view import TrainView
    from cse_cli.memory import out_of_memory
    from cse_cli.training import distributed
    from cse_cli.training.folder import RunFolder
    from cse_cli.training.loop import Stopped
    from cse_cli.training.precision import make_deterministic
    from cse_cli.training.record import config_toml
    from cse_cli.training.setup import build

    if run.train.deterministic:
        make_deterministic()
    distributed.start(run.train.device)
    check_share(run.train.batch_size, distributed.world())
    folder = RunFolder(out)
    first = distributed.rank() == 0
    view = TrainView(shown=first)
    try:
        if first:
            folder.claim(overwrite=overwrite, resume=resume)
        training = build(run, folder, view)
        if first and not resume:
            folder.begin(config_toml(run.flat()))
        view.total = training.total
        log(
            f"{run.train.method} ({', '.join(run.ingredients) or 'no further ingredient'}): "
            f"{training.total} steps of {run.train.batch_size}, {run.train.precision} on "
            f"{run.train.device}, into {out}"
        )
        with view:
            progress = training.run(resume=resume)
        distributed.stop()  # after an error it is left to the exit, so that the error is told first
        return progress
    except Stopped as stop:
        log(f"stopped after step {training.progress.step}; go on with --resume --out {out}")
        raise Interrupted(130 if stop.signal == signal.SIGINT else 143) from None
    except RuntimeError as error:
        if out_of_memory(error):
            raise UsageError(
                "out of memory: lower --batch-size, or encode fewer rows at a time with "
                "--chunk-size; --dry-run estimates what a run needs"
            ) from None
        if not distributed.lost(error):
            raise
        raise CseError("another process of this run ended; its own message says why") from None
    finally:
        folder.release()


def _train_seeds(
    run: Run, seeds: Sequence[int], out: Path, jobs: int, overwrite: bool, resume: bool, json: bool
) -> None:
    """Train several seeds and print their folder, or the table of their scores as JSON."""
    from cse_cli.cli.seeds import COMMAND, train_seeds
    from cse_cli.render.document import to_json

    table = train_seeds(run, seeds, out, jobs=jobs, overwrite=overwrite, resume=resume)
    rows = [row.as_dict() for row in table]
    write_stdout(to_json(rows, COMMAND, run.flat()) if json else f"{out}\n")


def _seeds(text: str) -> list[int]:
    """The seeds that `--seeds` names; UsageError also where torchrun has started several of us."""
    from cse_cli.cli.seeds import parse_seeds

    if process()[1] > 1:
        raise UsageError("--seeds starts processes of its own; leave torchrun out")
    return parse_seeds(text)


def check_share(batch_size: int, processes: int) -> None:
    """Refuse a batch that the processes cannot share equally."""
    if batch_size % processes:
        raise UsageError(
            f"--batch-size {batch_size} cannot be shared equally by {processes} processes; "
            f"take a multiple of {processes}"
        )


def _new_folder(run: Run) -> Path:
    from cse_cli.training.folder import free_name

    return free_name(Path("runs"), run.train.method)


def _print_dry_run(run: Run, sources: Mapping[str, str], json: bool) -> None:
    """What the run would do; as JSON, or as lines with the source of each setting."""
    from cse_cli.training.dry_run import describe

    found = describe(run)
    if json:
        from json import dumps

        document = {"schema": 1, "command": "train --dry-run", **found, "config": run.flat()}
        write_stdout(dumps(document, indent=2, default=str) + "\n")
        return
    lines = [f"{key}: {_words(value)}" for key, value in found.items()]
    lines += ["", "settings:"]
    for name, value in run.flat().items():
        source = f"  # {sources[name]}" if name in sources else ""
        lines.append(f"  {name.rstrip('_')} = {_words(value)}{source}")
    write_stdout("\n".join(lines) + "\n")


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return " ".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
