"""The command line: one module a verb, found by name and imported only when it runs."""

from __future__ import annotations

import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from itertools import chain
from typing import Any

import click

from envbuild import __version__
from envbuild.cli.output import print_text
from envbuild.errors import INTERRUPTED, OWN_FAILURE, EnvbuildError
from envbuild.interrupts import raise_interrupt

GROUPS: dict[str, dict[str, str]] = {
    "Every day": {
        "init": "Write a recipe from a project's own files and imports.",
        "lock": "Choose every package of a recipe and write the lock.",
        "make": "Build the image of a recipe from its lock, and check it.",
        "check": "Check an image: framework, libraries, imports, GPU.",
        "exec": "Run a command inside the image.",
        "shell": "Open a shell inside the image.",
        "submit": "Submit a job, wait for it, or open a shell on a node.",
        "status": "Show the state of the jobs submitted from this folder; --table: every task.",
        "logs": "Print what a job has written.",
        "list": "List recipes, locks and images with their last verdict.",
    },
    "Start": {
        "doctor": "Test what works on this machine, and show how to repair the rest.",
        "base": "Inspect, list or suggest base images.",
        "completion": "Print the completion script of a shell.",
    },
    "Change": {
        "add": "Add packages to recipe, lock and image, or to a layer over the image.",
        "remove": "Remove packages from recipe, lock and image.",
        "promote": "Write the packages of the development layer into recipe, lock and image.",
        "dev": "Show or remove the development layer of an image.",
    },
    "Build": {
        "why": "Show why a package is in a lock, and what would change it.",
        "diff": "Compare two locks, or a lock and an image.",
        "outdated": "List packages of a lock that have a newer release.",
        "def": "Print the container definition of a recipe's lock.",
        "rebuild": "Make an image again from its lock, and compare the two.",
        "flatten": "Write a layered image as one partition.",
    },
    "Check": {
        "verify": "Compare an image with its lock, file by file.",
        "explain": "Explain the log of a job: print the cause, and a command to run.",
        "watch": "Test whether a command or process uses the GPU now.",
    },
    "Run": {
        "run": "Run the recipe's own command, or another one, inside the image.",
        "notebook": "Start JupyterLab from the image, here or on a node.",
        "kernel": "Add the image to the kernels of your Jupyter.",
        "module": "Write modulefiles, so that module load NAME is enough.",
    },
    "Jobs": {
        "job": "Print the job script of a command; job lint: find mistakes in a script.",
        "attach": "Open a shell or run a command on the node of a running job.",
        "cancel": "End a job.",
        "site": "List the clusters (sites) for jobs, or describe a new one.",
    },
    "Share": {
        "shelf": "Share locked recipes, verdicts and images with the lab.",
        "bundle": "Write everything that an image is made of into one file.",
        "export": "Print a lock in the format of another tool: PEP 751, pip, SBOM, and more.",
    },
    "Look": {
        "show": "Show a recipe, or what its build runs as root.",
        "store": "Show the store's size, remove old files, or verify its hashes.",
        "schema": "Print the JSON Schema of recipes or reports.",
    },
}
"""The verbs in the order of the help, the daily ones first; each with what it does."""
VERBS = dict(chain.from_iterable(verbs.items() for verbs in GROUPS.values()))
OF_PYTHON = ("def", "exec", "list")
"""Verbs that are words of Python too: the names of their modules end in an underscore."""
ALIASES = {
    "build": "make",
    "images": "list",
    "kill": "cancel",
    "ls": "list",
    "ps": "status",
    "resolve": "lock",
    "rm": "remove",
    "test": "check",
}
"""What people type out of habit with other tools, and the verb that is meant."""
COMMAND_VERBS = ("exec", "shell", "run", "watch")
"""Verbs that return the exit code of the user's command; envbuild's failures have their own."""
WORD_VERBS = (*COMMAND_VERBS, "job", "submit")
"""Verbs that end with a command of the user's, whose options are not ours."""

FOREIGN = (OSError, MemoryError, RuntimeError, UnicodeEncodeError)
"""Errors of Python that may reach the command line, and are told in words there."""
SWITCHES = ("-v", "-vv", "--verbose", "-q", "--quiet")


def module_of(verb: str) -> str:
    """Return the module that has the command of a verb."""
    return f"envbuild.cli.{verb}_" if verb in OF_PYTHON else f"envbuild.cli.{verb}"


class _LazyGroup(click.Group):
    """A group that knows its verbs by name and imports the module of the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the verbs in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a verb, or the one that an alias means, and return its command."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(module_of(name)).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs in groups without importing any of them."""
        widest = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in verbs.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; an unknown one gets the nearest names."""
        known = (*VERBS, *ALIASES)
        if args and args[0] not in known and not args[0].startswith("-"):
            from envbuild.cli.faults import explain_words  # late: --help stays quick

            raise click.UsageError(explain_words(args, known), ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, "-V", "--version", prog_name="envbuild", message="%(prog)s %(version)s"
)
@click.option("-v", "--verbose", count=True, help="Show more of what is done.")
@click.option("-q", "--quiet", is_flag=True, help="Show errors and results only.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colour the output.",
)
@click.pass_context
def main_group(ctx: click.Context, verbose: int, quiet: bool, color: str) -> None:
    """Build GPU containers that can be made again, and prove that they use the GPU.

    \b
    envbuild make keras-bert                      build and check a shipped image
    envbuild exec keras-bert -- python train.py   run your program inside it
    envbuild init                                 start with your own project
    """
    from envbuild.cli.context import make_context  # late: --help needs no context

    ctx.obj = make_context(verbose=verbose, quiet=quiet, color=color)


def run_cli(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; only here errors become messages."""
    _end_as_by_keyboard()
    _print_in_any_locale()
    try:
        result: Any = main_group.main(
            args=_move_global_options(_as_option(arguments)),
            prog_name="envbuild",
            standalone_mode=False,
        )
    except click.exceptions.Exit as error:
        return error.exit_code
    except BrokenPipeError:
        return _closed_pipe()
    except (click.Abort, KeyboardInterrupt):
        return _say_interrupted()
    except (click.ClickException, EnvbuildError, *FOREIGN) as error:
        code = _print_error(error, arguments)
        return OWN_FAILURE if _runs_command(arguments) else code
    return result if isinstance(result, int) else 0


def _print_in_any_locale() -> None:
    """Print what the locale's encoding lacks as an escape; by itself Python ends with an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _runs_command(arguments: Sequence[str]) -> bool:
    """Tell whether the exit code is that of the user's command, also when it ran as a job."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    waits = "submit" in own[:4] and "--wait" in own
    return waits or any(verb in arguments[:4] for verb in COMMAND_VERBS)


def _end_as_by_keyboard() -> None:
    """Let TERM and HUP (closed terminal, time limit) end us as Ctrl-C does: children first."""
    ours = (signal.SIG_DFL, signal.default_int_handler)  # nohup ignores some, which stays so
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in ours:
            signal.signal(number, raise_interrupt)


def _move_global_options(arguments: Sequence[str]) -> list[str]:
    """Move -v, -q and --color before the verb: they may stand on either side; stops at ``--``."""
    own, rest = [], list(arguments)
    end = rest.index("--") if "--" in rest else len(rest)
    if any(argument in WORD_VERBS for argument in rest[:end]) and end == len(rest):
        return rest  # the words behind the image's name are the user's own command
    index = 0
    while index < end:
        if rest[index] in SWITCHES or rest[index].startswith("--color="):
            own.append(rest.pop(index))
            end -= 1
        elif rest[index] == "--color" and index + 1 < end:
            own += [rest.pop(index), rest.pop(index)]
            end -= 2
        else:
            index += 1
    return own + rest


def _as_option(arguments: Sequence[str]) -> Sequence[str]:
    """Turn nothing, ``help`` and ``help VERB…``, which people type, into ``VERB… --help``."""
    return [*arguments[1:], "--help"] if arguments[:1] in ([], ["help"]) else arguments


def _print_error(error: Exception, arguments: Sequence[str]) -> int:
    """Print an error for people and return its exit code."""
    from envbuild.cli import faults  # late: only for an error
    from envbuild.cli.terminal import (  # late: only for an error
        explain_error,
        name_recipe,
        show_error,
    )

    shown = faults.explain_usage(error, arguments) or explain_error(error)
    faults.add_dashes_hint(shown, arguments)
    faults.add_shelf_hint(shown)
    if shown.hint and re.search(r"\bNAME\b", shown.hint):
        shown.hint = name_recipe(shown.hint, faults.recipe_named(arguments))
    show_error(shown)
    return shown.code


def _say_interrupted() -> int:
    print_text(
        "envbuild: interrupted; nothing half-made was left under a final name, the next run goes on",
        err=True,
    )
    return INTERRUPTED


def _closed_pipe() -> int:
    """Leave quietly when the reader of our output has gone, as in ``envbuild def NAME | head``."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
