"""The JSON Schema of a recipe, for editors that complete TOML."""

from __future__ import annotations

from typing import Any

import msgspec

from envbuild.recipe.model import Recipe


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) that every valid recipe satisfies."""
    schema = msgspec.json.schema(Recipe)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "envbuild recipe",
        **schema,
    }
