"""``envbuild schema``: JSON Schemas for editors and for programs that read our output."""

from __future__ import annotations

import json

import click

from envbuild.check.report import report_schema
from envbuild.recipe.schema import recipe_schema
from envbuild.shelf.model import entry_schema


@click.command("schema")
@click.option(
    "--of",
    "what",
    type=click.Choice(["recipe", "report", "entry"]),
    default="recipe",
    help="Which document.",
)
def command(what: str) -> None:
    """Print the JSON Schema of recipes (default), of check reports or of entries on a shelf.

    \b
    Even Better TOML (VS Code) and taplo complete recipes with it:
      envbuild schema > recipe.schema.json
    """
    schemas = {"recipe": recipe_schema, "report": report_schema, "entry": entry_schema}
    # patterns end in \Z here, because Python's $ lets one newline through; in JSON Schema $ is the very end
    click.echo(json.dumps(schemas[what](), indent=2).replace("\\\\Z", "$"))
