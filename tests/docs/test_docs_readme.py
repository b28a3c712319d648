"""README.md: its commands run, its output is what envbuild prints, its tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import envbuild.errors
from envbuild.cli import VERBS
from tests.docs.pages import README, ROOT, Step, blocks, rows, section, steps
from tests.docs.shown import compare, shell
from tests.support import needs

BEGIN = "<!-- commands: written by tests/docs/test_docs_readme.py --update-golden -->\n"
END = "<!-- end of commands -->\n"
IMAGE_VERBS = ("make", "check", "exec", "run", "shell")


def _commands_table() -> str:
    lines = [f"| `{name}` | {text} |\n" for name, text in VERBS.items()]
    return "".join(["| verb | does |\n", "|---|---|\n", *lines])


def _wants_image(step: Step) -> bool:
    """Whether a step needs gigabytes: it builds or enters an image, and what is shown is not an error."""
    words = step.command.split()
    return (
        words[0] == "envbuild"
        and words[1] in IMAGE_VERBS
        and not any("error:" in line for line in step.shown)
    )


def _tour() -> list[Step]:
    return [step for block in blocks(README.read_text("utf-8"), "console") for step in steps(block)]


def test_the_first_commands_are_the_main_job_and_the_suite() -> None:
    text = README.read_text("utf-8")
    main_job, suite = blocks(text, "sh")[:2]
    assert main_job == "bash scripts/setup-debian.sh make keras-bert\n"
    assert suite == "bash scripts/test.sh\n"
    assert text.index(suite) < 600, "they stand in the first lines"
    assert suite.strip() in (ROOT / ".ci/run").read_text("utf-8"), "CI runs the same command"
    for command in (main_job, suite):
        assert (ROOT / command.split()[1]).is_file()


def test_the_main_job_builds_a_shipped_recipe() -> None:
    verb, name = blocks(README.read_text("utf-8"), "sh")[0].split()[2:]
    assert verb in VERBS
    assert (ROOT / "recipes" / f"{name}.toml").is_file()
    assert (ROOT / "lockfiles" / f"{name}.lock").is_file()


def test_the_commands_table_is_generated(request: pytest.FixtureRequest) -> None:
    text = README.read_text("utf-8")
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    if request.config.getoption("--update-golden"):
        README.write_text(before + BEGIN + _commands_table() + END + after, encoding="utf-8")
        return
    assert table == _commands_table(), "run pytest tests/docs --update-golden and read the diff"


def test_the_exit_codes_are_those_of_the_errors() -> None:
    documented = {
        int(code)
        for code, _ in rows(section(README.read_text("utf-8"), "## Commands"))
        if code.isdigit()
    }
    classes = [item for item in vars(envbuild.errors).values() if isinstance(item, type)]
    codes = {item.code for item in classes if issubclass(item, envbuild.errors.EnvbuildError)}
    assert documented == {envbuild.errors.OK, envbuild.errors.INTERRUPTED, *codes}
    assert f"and {envbuild.errors.OWN_FAILURE} when envbuild itself failed" in README.read_text(
        "utf-8"
    )


def test_every_command_of_the_tour_exists() -> None:
    text = README.read_text("utf-8")
    named = re.findall(r"\benvbuild ([a-z]+)\b", " ".join(re.findall(r"`(envbuild [^`]*)`", text)))
    named += [step.command.split()[1] for step in _tour() if step.command.startswith("envbuild ")]
    assert named
    assert not set(named) - set(VERBS)


def test_the_tour_takes_three_minutes_to_read() -> None:
    # code and the table of commands are looked at, not read
    words = re.sub(
        r"^```.*?^```$|^\|.*?$", "", README.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    ).split()
    assert len(words) < 900, "at 300 words a minute"


def test_the_image_steps_show_what_the_code_prints() -> None:
    """The long output cannot be made again here; its fixed words must be those of the code."""
    code = "".join(path.read_text("utf-8") for path in sorted((ROOT / "envbuild").rglob("*.py")))
    shown = "\n".join(line for step in _tour() if _wants_image(step) for line in step.shown)
    for words in (
        "  proved   ",
        " passed: ",
        "  skipped  ",
        "  run      ",
        "  where    ",
        "  built    ",
    ):
        assert words in shown
        assert words.strip() in code


@pytest.mark.live
def test_an_install_without_root_brings_the_recipes(tmp_path: Path) -> None:
    """The first of README's two ways, from an empty HOME; then from an empty folder, far from the source tree."""
    command = blocks(
        section(README.read_text("utf-8"), "## Install without root, on a login node"), "sh"
    )[0]
    install = command.splitlines()[0]
    assert install == "uv tool install ."
    folder = tmp_path / "empty"
    folder.mkdir()
    printed = shell(install, ROOT, tmp_path)
    program = tmp_path / ".local/bin/envbuild"
    assert program.exists(), printed
    listed = shell(f"{program} list", folder, tmp_path)
    recipes = {path.stem for path in (ROOT / "recipes").glob("*.toml")}
    locked = {path.stem for path in (ROOT / "lockfiles").glob("*.lock")}
    expected = {name: "fits" if name in locked else "none" for name in recipes}
    assert {line.split()[0]: line.split()[1] for line in listed.splitlines()[1:]} == expected
    assert shell(f"{program} lock keras-bert --check", folder, tmp_path).endswith(
        "keras-bert.toml\n"
    )


@pytest.mark.live
@needs("apt-get", "mmdebstrap")
def test_the_tour_prints_what_readme_shows(tmp_path: Path) -> None:
    """All of the tour in one folder, from an empty HOME, but for the steps that need an image.

    The store is the one that live tests share, so what comes from an empty one ("make Debian …") is not shown.
    """
    folder, home = tmp_path / "reviews", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    for block in blocks(README.read_text("utf-8"), "python"):
        path = folder / block.splitlines()[0].removeprefix("# ")
        path.write_text(block, encoding="utf-8")
    ran = 0
    for step in _tour():
        if not _wants_image(step):
            compare(step, shell(step.command, folder, home))
            ran += 1
    assert ran >= 5, "the tour has steps without an image"
