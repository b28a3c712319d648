"""``envbuild schema``: JSON Schemas for editors and for programs that read our output."""

from __future__ import annotations

import json

import click
import msgspec

from envbuild.check.model import Report
from envbuild.cli.options import choice_option
from envbuild.cli.output import print_text
from envbuild.recipe.model import Recipe
from envbuild.shelf.model import Entry
from envbuild.toml import json_schema

DOCUMENTS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "recipe": (Recipe, "envbuild recipe"),
    "report": (Report, "envbuild check report"),
    "entry": (Entry, "envbuild shelf entry"),
}


@click.command("schema")
@choice_option("--of what", DOCUMENTS, "The document (default: recipe).", "recipe")
def command(what: str) -> None:
    """Print the JSON Schema of recipes (default), of check reports or of entries on a shelf.

    \b
    Even Better TOML (VS Code) and taplo complete recipes with it:
      envbuild schema > recipe.schema.json
    """
    # patterns end in \Z here, because Python's $ lets one newline through; in JSON Schema $ is the very end
    print_text(json.dumps(json_schema(*DOCUMENTS[what]), indent=2).replace("\\\\Z", "$"))
