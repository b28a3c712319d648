"""``envbuild completion``: the completion script of bash, zsh or fish."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script with which the Tab key completes commands, options and names.

    Names are those of recipes, images, sites, shelves, packages and jobs.

    \b
    bash: eval "$(envbuild completion bash)"     in this shell only
    bash: envbuild completion bash >
              ~/.local/share/bash-completion/completions/envbuild
    zsh:  envbuild completion zsh > a folder of $fpath, as _envbuild
    fish: envbuild completion fish > ~/.config/fish/completions/envbuild.fish
    """
    complete = get_completion_class(shell)
    if complete is None:  # pragma: no cover  (click knows all three)
        raise click.UsageError(f"no completion for {shell}")
    click.echo(complete(ctx.find_root().command, {}, "envbuild", "_ENVBUILD_COMPLETE").source())
