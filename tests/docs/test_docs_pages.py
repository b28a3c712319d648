"""docs/: links resolve, and every key, field and file that a page names is there, and the other way round."""

from __future__ import annotations

import inspect
import itertools
import re
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import tomli
from packaging.requirements import Requirement

from envbuild import settings
from envbuild.base.model import DebianPackage
from envbuild.cli import VERBS, main_group
from envbuild.cli.store import KEPT
from envbuild.lock.model import (
    CondaPackage,
    Lock,
    LockedBase,
    LockedFiles,
    Packer,
    PythonPackage,
)
from envbuild.recipe.model import Recipe
from envbuild.recipe.read import read_recipe
from envbuild.resolve.outcome import HeldBack, Moved, Provided
from envbuild.settings_file import Registry, SettingsFile
from envbuild.toml import convert, json_schema
from tests.docs.pages import PAGES, ROOT, anchors, blocks, rows, section, without_code

RECIPE = (ROOT / "docs/recipe.md").read_text("utf-8")
LOCK = (ROOT / "docs/lock.md").read_text("utf-8")
LOCK_SECTIONS: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    ("### [base]", LockedBase),
    ("### [packer]", Packer),
    ("### debian", DebianPackage),
    ("### python", PythonPackage),
    ("### conda", CondaPackage),
    ("### files", LockedFiles),
    ("### provided", Provided),
    ("### moved", Moved),
    ("### held-back", HeldBack),
)
SECTIONS = [field.name for field in msgspec.structs.fields(Recipe) if field.name != "files"]
"""Sections with keys of their own; those of [files] are the user's."""


def _by_name(page: Path) -> str:
    return page.name


def _keys(text: str) -> list[str]:
    """Return the keys in the first column of the tables below a heading, up to the next heading."""
    own = re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0]
    return [key for row in rows(own) for key in re.findall(r"`([a-z0-9-]+)`", row[0])]


def _schema(section_name: str) -> dict[str, Any]:
    definitions = json_schema(Recipe, "envbuild recipe")["$defs"]
    top = definitions["Recipe"]["properties"][section_name]
    found: dict[str, Any] = definitions[top["$ref"].rsplit("/", 1)[1]]
    return found


def _type(key: dict[str, Any]) -> str:
    choices = [item for item in key.get("anyOf", [key]) if item.get("type") != "null"]
    return ", or ".join(_plain_type(choice) for choice in choices)


def _plain_type(plain: dict[str, Any]) -> str:
    if "enum" in plain:
        return "text"
    names = {
        "string": "text",
        "array": "texts",
        "object": "table",
        "integer": "number",
        "boolean": "true or false",
    }
    return names[plain["type"]]


def _default(key: dict[str, Any], *, required: bool) -> str:
    if required:
        return "required"
    value = key["default"]
    return "none" if value is None else f"`{msgspec.json.encode(value).decode()}`"


@pytest.mark.parametrize("page", PAGES, ids=_by_name)
def test_links_resolve(page: Path) -> None:
    text = without_code(page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file.read_text("utf-8")), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=_by_name)
def test_named_verbs_exist(page: Path) -> None:
    code = re.findall(
        r"^```.*?^```$|`[^`\n]+`", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    named = re.findall(r"(?:^|[`$(] ?|&& )envbuild ([a-z]+)\b", "\n".join(code), flags=re.MULTILINE)
    assert not set(named) - set(VERBS), f"{page.name} names verbs that are not there"


def unknown_options(text: str) -> list[str]:
    """Return the options of envbuild's commands in a text that the commands do not take."""
    context, unknown = click.Context(main_group), []
    own = _options(main_group) | {"--help"}
    for verb, rest in re.findall(r"envbuild ([a-z]+)((?: [^`|#\n]*)?)", text):
        command = main_group.get_command(context, verb)
        words = rest.split(" -- ")[0].split()
        if isinstance(command, click.Group):
            command = command.commands.get(next(iter(words), ""))
        if command is None:
            continue
        taken = own | _options(command)
        named = [word.lstrip("[").partition("=")[0].rstrip("],.;:)") for word in words]
        wrong = [name for name in named if name.startswith("--") and name not in taken]
        unknown += [f"{verb} {name}" for name in wrong]
    return unknown


def _options(command: click.Command) -> set[str]:
    return {
        option for one in command.params for option in (*one.opts, *one.secondary_opts) if option
    }


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted((ROOT / "docs/ja").glob("*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_named_options_exist(page: Path) -> None:
    assert unknown_options(page.read_text("utf-8")) == []


def test_an_option_that_is_not_there_is_seen() -> None:
    text = (
        "`envbuild make NAME --fast`, `envbuild shelf show X --jsn`, envbuild lock --check -- --x"
    )
    assert unknown_options(text) == ["make --fast", "shelf --jsn"]


@pytest.mark.parametrize("page", PAGES, ids=_by_name)
def test_named_files_exist(page: Path) -> None:
    """Paths of the tree in inline code, such as `envbuild/data/`; NAME and * stand for others."""
    for name in re.findall(
        r"`((?:envbuild|tests|docs|recipes|scripts|lockfiles)/[\w./-]+)`", page.read_text("utf-8")
    ):
        if "NAME" not in name and name != "envbuild/shipped":  # which only the wheel has
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_page_is_linked_from_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    missing = [
        page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in readme
    ]
    assert not missing


@pytest.mark.parametrize("name", SECTIONS)
def test_every_recipe_key_is_documented(name: str) -> None:
    """Key, type and default of the page are those of the record."""
    schema = _schema(name)
    expected = {
        f"`{key}`": (_type(value), _default(value, required=key in schema["required"]))
        for key, value in schema["properties"].items()
    }
    documented = {row[0]: (row[1], row[2]) for row in rows(section(RECIPE, f"### [{name}]"))}
    assert documented == expected


@pytest.mark.parametrize("name", SECTIONS)
def test_the_example_of_every_recipe_key_is_valid(name: str, tmp_path: Path) -> None:
    minimal: dict[str, dict[str, Any]] = {
        "recipe": {"name": "reviews"},
        "base": {"bootstrap": "debian:bookworm"},
    }
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews/check.py").touch()
    for key, _, _, _, example in rows(section(RECIPE, f"### [{name}]")):
        line = f"{key.strip('`')} = {example.strip('`')}"
        tables = {part: dict(content) for part, content in minimal.items()}
        tables.setdefault(name, {}).pop(key.strip("`"), None)
        if key == "`image`":
            tables["base"] = {}
        text = "".join(
            f"[{part}]\n"
            + "".join(f'{k} = "{v}"\n' for k, v in content.items())
            + (line if part == name else "")
            + "\n"
            for part, content in tables.items()
        )
        (tmp_path / "reviews.toml").write_text(text, encoding="utf-8")
        read_recipe(tmp_path / "reviews.toml")


def test_the_example_recipe_is_valid(tmp_path: Path) -> None:
    [example] = blocks(RECIPE, "toml")
    path = tmp_path / "reviews.toml"
    path.write_text(example, encoding="utf-8")
    recipe, _ = read_recipe(path)
    assert recipe.run.command == ("python", "train.py")


def test_the_shipped_recipes_are_listed() -> None:
    listed = {row[0]: row[1] for row in rows(section(RECIPE, "## Shipped recipes"))}
    shipped = {
        f"`{path.stem}`": read_recipe(path)[0].recipe.summary
        for path in (ROOT / "recipes").glob("*.toml")
    }
    assert listed == shipped


def test_every_field_of_a_lock_is_documented() -> None:
    assert sorted(_keys(section(LOCK, "## Fields"))) == sorted(
        f.encode_name for f in msgspec.structs.fields(Lock)
    )


@pytest.mark.parametrize(
    ("heading", "record"), LOCK_SECTIONS, ids=lambda value: getattr(value, "__name__", value)
)
def test_every_field_of_a_lock_table_is_documented(
    heading: str, record: type[msgspec.Struct]
) -> None:
    assert sorted(_keys(section(LOCK, heading))) == sorted(
        f.encode_name for f in msgspec.structs.fields(record)
    )


def test_every_option_of_lock_is_documented() -> None:
    from envbuild.cli.lock import command

    given = [
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    ]
    options = {name for name in given if name.startswith("--")}
    assert set(
        re.findall(r"`(--[a-z-]+)", section(LOCK, "## Options").split("\n\n")[1])
    ) == options - {"--help"}


def test_settings_of_the_pages_are_known() -> None:
    """TOML blocks that are settings, not recipes, use sections and keys that there are."""
    for page in PAGES:
        for block in blocks(page.read_text("utf-8"), "toml"):
            for name, content in tomli.loads(block).items():
                if name in SettingsFile.__struct_fields__:
                    convert({name: content}, SettingsFile, text=block, where=page.name)
                else:
                    assert name in Recipe.__struct_fields__, f"{page.name}: [{name}]"


def test_every_setting_is_documented() -> None:
    """Keys and variables of the page are those that envbuild reads."""
    page = (ROOT / "docs/settings.md").read_text("utf-8")
    listed = rows(section(page, "## Keys"))
    assert sorted(row[0].strip("`") for row in listed) == sorted(_setting_keys())
    variables = set(re.findall(r"`(ENVBUILD_[A-Z_]+|TMPDIR)`", page))
    read = set(re.findall(r'"(ENVBUILD_[A-Z_]+|TMPDIR)"', inspect.getsource(settings)))
    assert variables == read | {"ENVBUILD_INDEX_NAME"}


def _setting_keys() -> list[str]:
    found = []
    for part in msgspec.structs.fields(SettingsFile):
        match part.name:
            case "indexes":
                found += ["[indexes] default", "[indexes] NAME"]
            case "channels":
                found.append("[channels] NAME")
            case "registries":
                keys = msgspec.structs.fields(Registry)
                found += [f"[registries.HOST] {key.encode_name}" for key in keys]
            case name:
                keys = msgspec.structs.fields(part.type)
                found += [f"[{name}] {key.encode_name}" for key in keys]
    return found


def test_decisions_are_in_the_order_of_their_days() -> None:
    text = (ROOT / "docs/decisions.md").read_text("utf-8")
    days = re.findall(r"^\*\*(\d{4}-\d\d-\d\d)\. ", text, re.MULTILINE)
    assert days == sorted(days) != []


def test_each_library_has_its_reason_and_is_used() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = itertools.chain.from_iterable(project["optional-dependencies"].values())
    required = {Requirement(line).name for line in (*project["dependencies"], *extras)}
    table = section((ROOT / "CONTRIBUTING.md").read_text("utf-8"), "## Libraries")
    listed = [row[0].strip("`") for row in rows(table) if row[0].startswith("`")]
    assert listed == sorted(required)

    modules = {"pip-tools": "piptools", "py-rattler": "rattler", "pyyaml": "yaml"}
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "envbuild").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:from|import) (\w+)", code, re.MULTILINE))
    # pip-tools is a program to envbuild
    assert {modules.get(name, name) for name in listed} - imported == {"piptools"}


def test_the_places_where_a_change_goes_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    lines = section(text, "## Where a change goes").splitlines()
    missing = []
    for row in (line.split(" | ")[1] for line in lines if line.count(" | ") == 2):
        places = [place for place in re.findall(r"`([\w./*-]+)`", row) if "NAME" not in place]
        folders = [place for place in places if place.endswith("/")]
        tops = [ROOT, ROOT / "envbuild", *(ROOT / "envbuild" / folder for folder in folders)]
        named = [place for place in places if place.endswith(("/", ".py", ".md", ".toml"))]
        missing += [
            place for place in named if not any(any(top.glob(place.rstrip("/"))) for top in tops)
        ]
    assert missing == []


def test_every_folder_of_the_store_is_explained() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "envbuild").rglob("*.py")]
    named = re.compile(r'(?:\.folder\(|_FOLDER = |LAYOUT / )"([a-z]+)"')
    folders = set(itertools.chain.from_iterable(map(named.findall, sources)))
    assert len(folders) > 12
    told = set(
        re.findall(
            r"`([a-z]+)/", section((ROOT / "docs/store.md").read_text("utf-8"), "## What is in it")
        )
    )
    assert folders <= told
    assert folders <= set(KEPT)
