"""``envbuild schema``: JSON Schemas for editors and for programs that read our output."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.option("--of", "what", type=click.Choice(["recipe", "report"]), default="recipe", help="Which document.")
def command(what: str) -> None:
    """Print the JSON Schema of recipes (default) or of check reports.

    \b
    Even Better TOML (VS Code) and taplo complete recipes with it:
      envbuild schema > recipe.schema.json
    """
    from envbuild.check.report import report_schema
    from envbuild.recipe.schema import recipe_schema

    schema = recipe_schema() if what == "recipe" else report_schema()
    click.echo(json.dumps(schema, indent=2))
