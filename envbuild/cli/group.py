"""Groups of commands below a verb: help without cut sentences, the nearest name for a wrong one."""

from __future__ import annotations

import click

from envbuild.toml import closest

WHOLE = 1000
"""Characters of a first sentence: as many as it has."""


class CommandGroup(click.Group):
    """A group whose help cuts no sentence, and that knows what a wrong word may have meant."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the whole first sentence of each."""
        rows = [
            (name, self.commands[name].get_short_help_str(WHOLE))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one gets the nearest name, or all names."""
        word = next(iter(args), "-")
        if not word.startswith("-") and word not in self.commands:
            what = f'there is no command "{self.name} {word}"{closest(word, self.commands)}'
            raise click.UsageError(what, ctx)
        return super().resolve_command(ctx, args)
