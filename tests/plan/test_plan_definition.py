from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import pytest

from envbuild.errors import UsageError
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition
from envbuild.plan.model import Definition
from envbuild.recipe.model import Recipe
from envbuild.recipe.read import read_recipe
from envbuild.run import Command, LocalRunner
from tests.support import Golden

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    path.stem
    for path in (ROOT / "recipes").glob("*.toml")
    if (ROOT / f"lockfiles/{path.stem}.lock").exists()
)


def shipped(name: str) -> tuple[Recipe, Lock]:
    recipe, _ = read_recipe(ROOT / "recipes" / f"{name}.toml")
    return recipe, read_lock(ROOT / "lockfiles" / f"{name}.lock")


def sections(text: str) -> dict[str, str]:
    """Split a definition the way Apptainer does: a line whose first word starts with % begins a section."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        first = line.split()[0] if line.split() else ""
        if first.startswith("%"):
            name = first[1:]
            found[name] = ""
        else:
            found[name] = found.get(name, "") + line
    return found


LIKE = dict.fromkeys(("torch-multigpu", "lightning-sweep", "chainer-mnist"), "torch-mnist")
"""Recipes on the same base as another one: of their definitions, what differs from that one's."""


def definition(recipe: Recipe, lock: Lock) -> str:
    return render_definition(plan_definition(recipe, lock))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_whole_definition(name: str, golden: Golden) -> None:
    if name in LIKE:
        golden(
            f"plan/{name}.def.diff",
            definition(*shipped(name)),
            beside=definition(*shipped(LIKE[name])),
        )
    else:
        golden(f"plan/{name}.def", definition(*shipped(name)))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_definition(name: str) -> None:
    recipe, lock = shipped(name)
    text = definition(recipe, lock)
    parts = sections(text)
    assert {"post", "environment", "labels", "test", "runscript", "help"} <= set(parts)
    assert "PYTHONNOUSERSITE=1" in parts["environment"]
    assert "://" not in text.replace('://"', "")
    for package in lock.python:
        assert f"--hash=sha256:{package.sha256}  # {package.file}" in parts["post"]
    for deb in lock.debian:
        assert deb.sha256 in text
    assert definition(recipe, lock) == text


@pytest.mark.parametrize("name", SHIPPED)
def test_the_definition_never_empties_a_folder_of_the_building_machine(name: str) -> None:
    """Apptainer mounts the host's /tmp and /var/tmp while %post runs."""
    post = sections(definition(*shipped(name)))["post"]
    for line in post.splitlines():
        if re.search(r"\b(rm|find|rmdir|unlink|shred)\b", line):
            assert not re.search(
                r"(?<![\w.])/(var/)?tmp\b|/mnt\b|/root\b|/home\b|\$HOME|~", line
            ), line


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="not installed here: shellcheck")
@pytest.mark.parametrize("section", ["setup", "post", "test", "runscript"])
def test_shellcheck_accepts_the_scripts(section: str, tmp_path: Path) -> None:
    script = tmp_path / f"{section}.sh"
    body = sections(definition(*shipped("keras-bert")))[section]
    script.write_text("#!/bin/sh\n" + re.sub(r"(?m)^    ", "", body))
    # SC1091: a file that exists only in the build; SC2016: $1 is for mmdebstrap's hooks; SC2086: $offline is a prefix of words on purpose
    result = LocalRunner()(
        Command(argv=("shellcheck", "-e", "SC1091,SC2016,SC2086", str(script))), check=False
    )
    assert result.stdout == ""


def with_post(*lines: str) -> tuple[Recipe, Lock]:
    recipe, lock = shipped("torch-mnist")
    return msgspec.structs.replace(
        recipe, system=msgspec.structs.replace(recipe.system, post=lines)
    ), lock


def test_lines_of_the_recipe_come_last_without_a_network() -> None:
    post = sections(definition(*with_post("echo 'a  b'", "test -d /opt")))["post"]
    assert "    $offline /bin/sh -eu <<'RECIPE'\necho 'a  b'\ntest -d /opt\nRECIPE\n" in post


def test_a_line_that_ends_the_heredoc_is_refused() -> None:
    with pytest.raises(UsageError, match="RECIPE"):
        definition(*with_post("RECIPE", "rm -rf /opt"))


def test_a_line_that_begins_a_section_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^\[system\] post: '%runscript' starts with %"):
        definition(*with_post("%runscript"))


def test_environment_values_are_quoted_once() -> None:
    recipe, lock = shipped("torch-mnist")
    environment = {"GREETING": 'it\'s "{{ name }}" $HOME `id`', "EMPTY": ""}
    recipe = msgspec.structs.replace(
        recipe, run=msgspec.structs.replace(recipe.run, environment=environment)
    )
    part = sections(definition(recipe, lock))["environment"]
    script = f'{part}\nprintf \'%s|%s\' "$GREETING" "$EMPTY"'
    result = LocalRunner()(Command(argv=("/bin/sh", "-c", script)))
    assert result.stdout == 'it\'s "{{ name }}" $HOME `id`|'
    assert "{{" not in part


def test_a_summary_cannot_break_out_of_its_place() -> None:
    recipe, lock = shipped("torch-mnist")
    about = msgspec.structs.replace(recipe.recipe, summary="%post rm -rf / # ☃ \"'")
    parts = sections(definition(msgspec.structs.replace(recipe, recipe=about), lock))
    assert set(parts) == {"", "setup", "post", "environment", "labels", "test", "runscript", "help"}
    assert "rm -rf / #" not in parts["post"]


@pytest.mark.parametrize(
    "value", ["/images/a\nb.sif", "/images/#1.sif", "/images/{{x}}.sif", "back\\slash.sif"]
)
def test_a_header_value_that_cannot_stand_there_is_refused(value: str) -> None:
    definition = Definition(comment=("c",), header=(("Bootstrap", "localimage"), ("From", value)))
    with pytest.raises(UsageError, match="cannot be in the header of a definition"):
        render_definition(definition)


def test_runscript_hands_on_words_unchanged() -> None:
    recipe, lock = shipped("torch-mnist")
    recipe = msgspec.structs.replace(
        recipe, run=msgspec.structs.replace(recipe.run, command=("echo", "a  b", "$x"))
    )
    script = sections(definition(recipe, lock))["runscript"]
    run = LocalRunner()
    assert run(Command(argv=("/bin/sh", "-c", script, "runscript"))).stdout == "a  b $x\n"
    assert (
        run(
            Command(argv=("/bin/sh", "-c", script, "runscript", "printf", "%s|", "c  d", "*"))
        ).stdout
        == "c  d|*|"
    )
