"""Options and parts of commands that several verbs share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import click

from envbuild.cli.complete import complete_image, complete_recipe, complete_site
from envbuild.lock.model import PROOF_SECONDS
from envbuild.names import Texts
from envbuild.recipe.find import find_recipe
from envbuild.records import frozen_record

F = TypeVar("F", bound=Callable[..., Any])
MANY_VALUES = 9
"""Values of an option that still fit on a line of its help."""


class Option(Protocol):
    """What gives a verb an option, made from one text with all its names: the parameter's is last."""

    def __call__(self, command: F, /) -> F:
        """Return the verb with the option."""


def flag(names: str, text: str) -> Option:
    """Return an option without a value."""
    return click.option(*names.split(), is_flag=True, help=text)


def value_option(names: str, metavar: str, text: str, complete: Any = None) -> Option:
    """Return an option with one value, which the shell may complete."""
    return click.option(*names.split(), metavar=metavar, help=text, shell_complete=complete)


def choice_option(names: str, known: Iterable[str], text: str, usual: str | None = None) -> Option:
    """Return an option with one of the known values; without a usual one it has to be given.

    Many values would be one long line of its help: the verb's own text lists them.
    """
    values, first = list(known), names.split(maxsplit=1)[0]
    metavar = first.strip("-").upper() if len(values) > MANY_VALUES else None
    option = functools.partial(
        click.option, *names.split(), type=click.Choice(values), metavar=metavar, help=text
    )
    return option(required=True) if usual is None else option(default=usual)


def values_option(names: str, metavar: str, text: str) -> Option:
    """Return an option that may be given several times."""
    return click.option(*names.split(), multiple=True, metavar=metavar, help=text)


def path_option(names: str, text: str, *, metavar: str | None = None) -> Option:
    """Return an option whose value is a path."""
    kind = click.Path(path_type=Path)
    return click.option(*names.split(), type=kind, metavar=metavar, help=text)


def site_option(names: str, text: str) -> Option:
    """Return an option whose value is a cluster, or one of its partitions."""
    return value_option(names, "SITE[:PARTITION]", text, complete_site)


budget_option = click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help=f"The longest time of --prove ({PROOF_SECONDS:.0f}).",
)
recipe_argument = click.argument("name", required=False, shell_complete=complete_recipe)
"""The recipe of a verb; without it the only one of the folder."""
image_argument = click.argument(
    "name", metavar="[NAME|IMAGE]", required=False, shell_complete=complete_image
)
"""The recipe, or the path of an image, that a verb works on."""


class CommandAfterDashes(click.Command):
    """A verb that ends with a command of the user's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, with a name before ``--``."""
        return super().parse_args(ctx, self._with_name(ctx, args))

    def _with_name(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the only recipe's name before ``--`` where there is none: what follows is a command, never a name."""
        first = self.params[0].name
        if first not in ("image", "name") or "--" not in args:
            return args
        end = args.index("--")
        try:
            values, _, _ = self.make_parser(ctx).parse_args(args[:end])
        except click.UsageError:
            return args  # told when all of them are read
        if isinstance(values.get(first), str):
            return args
        return [*args[:end], find_recipe(None, ctx.obj.settings).recipe.name, *args[end:]]


@frozen_record
class EntryOptions:
    """How to enter an image: what is bound and set, and packages for this one run."""

    binds: Texts = ()
    variables: Texts = ()
    packages: Texts = ()
    dry_run: bool = False


def gather_options(kind: Any, name: str, options: Sequence[Option]) -> Callable[[F], F]:
    """Return what gives a verb these options; they arrive as one record, under this name."""

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def gathered(*arguments: Any, **values: Any) -> Any:
            fields = kind.__dataclass_fields__
            record = kind(**{field: values.pop(field) for field in fields})
            return command(*arguments, **{name: record}, **values)

        verb: Any = gathered
        for option in reversed(options):
            verb = option(verb)
        return cast("F", verb)

    return decorate


BIND_OPTION = values_option(
    "--bind -B binds", "SRC[:DEST][:ro]", "Show another file or folder inside, at DEST."
)
_ENTRY = (
    BIND_OPTION,
    values_option(
        "--env variables",
        "KEY[=VALUE]",
        "Set a variable inside; without =VALUE, to your own value.",
    ),
    values_option(
        "--with packages", "PKG", "Add a package for this run; the image stays the same."
    ),
    flag("--dry-run", "Print the command line that would be run."),
)
entry_options = gather_options(EntryOptions, "entry", _ENTRY)
"""Gives a verb that enters an image its options, as one ``entry``."""
