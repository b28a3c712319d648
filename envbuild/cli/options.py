"""Options and parts of commands that several verbs share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click

from envbuild.recipe.find import find_recipe

F = TypeVar("F", bound=Callable[..., Any])


class CommandAfterDashes(click.Command):
    """A verb that ends with a command of the user's; says so when an option of that command is taken for ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; an option that is none of ours gets the hint about ``--``."""
        try:
            return super().parse_args(ctx, self._with_name(ctx, args))
        except click.NoSuchOption as error:
            hint = f"if it belongs to your command, put -- before that: envbuild {ctx.info_name} NAME -- CMD …"
            raise click.UsageError(f"{error.format_message()}\n{hint}", ctx) from error

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


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryOptions:
    """How to enter an image: what is bound and set, and packages for this one run."""

    binds: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    dry_run: bool = False


def gather_options(kind: Any, name: str, options: tuple[Callable[[F], F], ...]) -> Callable[[F], F]:
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


BIND_OPTION = click.option(
    "--bind",
    "-B",
    "binds",
    multiple=True,
    metavar="SRC[:DEST][:ro]",
    help="Bind another file or folder.",
)
_ENTRY = (
    BIND_OPTION,
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="KEY[=VALUE]",
        help="Set a variable inside, or hand on yours.",
    ),
    click.option(
        "--with",
        "packages",
        multiple=True,
        metavar="PKG",
        help="Lay a package over the image, for this run alone.",
    ),
    click.option("--dry-run", is_flag=True, help="Print the command line that would be run."),
)
entry_options = gather_options(EntryOptions, "entry", _ENTRY)
"""Gives a verb that enters an image its options, as one ``entry``."""
