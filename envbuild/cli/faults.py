"""What an error of the command line tells: the verb, the recipe, the sites that are meant."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Sequence

import click

from envbuild.app.site import no_site_error
from envbuild.cli.options import CommandAfterDashes
from envbuild.data.tables import TableFile, table_loader
from envbuild.errors import EnvbuildError, UsageError
from envbuild.names import Texts
from envbuild.recipe.find import RECIPES, draft_hint, recipe_files
from envbuild.settings import load_settings
from envbuild.shelf.config import read_shelves
from envbuild.toml import closest


class _HabitTable(TableFile, frozen=True):
    """The whole of habits.toml."""

    source: str
    tools: Texts
    words: dict[str, str]
    elsewhere: dict[str, str]
    options: dict[str, str]


load_habits = table_loader("habits.toml", _HabitTable)
TYPESET = re.compile(r"^[\u2010-\u2015\u2212]|[\u2018-\u201f]")
"""A dash before an option, or quotes, as text programs and web pages write them."""


def explain_words(words: Sequence[str], verbs: Iterable[str]) -> str:
    """Return what is told of a first word that is no command: ours that does it, or the nearest."""
    habits, known = load_habits(), set(verbs)
    first, then = words[0], "".join(words[1:2])
    what = f'there is no command "{first}"'
    if first in habits.tools:  # envbuild pip install six, docker compose up
        rest = [word for word in words if word not in habits.tools]
        first = rest[0] if rest else ""
    elif then in known and first not in habits.words:
        return f"the command comes first: envbuild {then} {first}"
    if first in habits.elsewhere:
        return f"{what}; {habits.elsewhere[first]}"
    meant = first if first in known else habits.words.get(first)
    if meant is not None:
        return f"{what}; try: envbuild {meant}"
    return what + closest(words[0], known, listed=False)


def explain_usage(error: Exception, arguments: Sequence[str]) -> EnvbuildError | None:
    """Return what is told of words copied from a page, and of other tools' options and commands.

    Click raises the error of an option without its value without its verb.
    """
    own = [*itertools.takewhile(lambda word: word != "--", arguments)]
    copied = [word for word in own if TYPESET.search(word)]
    if copied and isinstance(error, UsageError | click.UsageError):
        what = f"{copied[0]}: this has a long dash or curly quotes, as copied text often has"
        return UsageError(what, hint="type - and the quotes again on the keyboard")
    if own[:1] == ["build"] and own[-1].endswith(".def") and isinstance(error, click.UsageError):
        return UsageError(f"{own[-1]} is a definition, not a recipe", hint=draft_hint(own[-1]))
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        return _explain_option(error, error.ctx)
    if not isinstance(error, click.BadOptionUsage) or error.ctx is not None:
        return None
    if error.option_name == "--on":
        return no_site_error(load_settings())
    verb = next((word for word in arguments if not word.startswith("-")), "")
    return UsageError(f"{error.option_name} needs a value", hint=f"envbuild {verb} --help")


def add_dashes_hint(shown: EnvbuildError, arguments: Sequence[str]) -> None:
    """Name ``--`` where the first word of the user's command was taken for a recipe."""
    verb, *words = arguments or ("",)
    if verb not in ("exec", "run", "submit", "job") or not words or "--" in words:
        return
    if shown.what == f'"{words[0]}" is a file, not a recipe':
        shown.hint = (
            f"your script comes behind the recipe: envbuild {verb} NAME -- python {words[0]}"
        )
    if shown.what == f'there is no recipe called "{words[0]}"':
        command = shlex.join(words)
        shown.hint = f"if this is your command: envbuild {verb} -- {command}\n{shown.hint}"


def add_shelf_hint(shown: EnvbuildError) -> None:
    """Say how a recipe is taken from the shelf, where one is asked for that is not here."""
    asked = re.fullmatch(r'there is no recipe called "([\w.-]+)"', shown.what)
    if asked is None:
        return
    for shelf in list(read_shelves(load_settings()))[:1]:
        name = f"{shelf}/{asked[1]}"
        shown.hint = f"{shown.hint}\nfrom your shelf: envbuild make {name}; to change it: envbuild shelf get {name}"


def _explain_option(error: click.NoSuchOption, context: click.Context) -> UsageError:
    """Return what is told of an option that is none of ours."""
    path = context.command_path
    option = error.option_name
    what = f"no such option '{option}'"
    hint = load_habits().options.get(option)
    named = hint.removeprefix("it is called ").split()[0] if hint else ""
    if hint is None or (named.startswith("--") and not _has_option(context.command, named)):
        hint = f"{path} --help"
        what += closest(option, error.possibilities or (), listed=False)
    if isinstance(context.command, CommandAfterDashes):
        hint += f"\nif it belongs to your command, put -- before that: {path} NAME -- CMD …"
    return UsageError(what, hint=hint)


def _has_option(verb: click.Command, option: str) -> bool:
    return any(option in param.opts for param in verb.params)


def recipe_named(arguments: Sequence[str]) -> str:
    """Return the recipe of a command line, or the only one in ./recipes; "NAME" without any."""
    try:
        settings = load_settings()
        known = recipe_files(settings)
    except EnvbuildError:
        return "NAME"
    named = [argument for argument in arguments[1:] if argument in known]
    images = [path.stem for path in settings.cwd.glob("*.sif")]
    named += [argument for argument in arguments[1:] if argument in images]
    own = [path.stem for path in (settings.cwd / RECIPES).glob("*.toml")]
    if not named and len(own) == 1:
        named = own
    return shlex.quote(named[0]) if named else "NAME"
