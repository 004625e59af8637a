"""Groups of options: a parameter that is a dataclass stands for an option a field.

So an option that many commands have is written once, its default with it, and commands pass the
group on as the one thing that it is.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer shall see it: in place of each group, the fields of its dataclass."""
    parameters = inspect.signature(command).parameters
    groups: dict[str, Any] = {
        name: p.annotation for name, p in parameters.items() if is_dataclass(p.annotation)
    }

    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    def flat() -> Iterator[inspect.Parameter]:
        """The command's own parameters, and a group's fields where the group stood."""
        for name, parameter in parameters.items():
            if name not in groups:
                yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                continue
            for field in fields(groups[name]):
                yield inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=field.type,
                )

    run.__name__, run.__doc__, run.__module__ = (
        command.__name__,
        command.__doc__,
        command.__module__,
    )
    run.__signature__ = inspect.Signature(list(flat()))  # type: ignore[attr-defined]
    return run
