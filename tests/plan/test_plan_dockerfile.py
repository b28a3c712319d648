"""The Dockerfile: whole, and given back by real shells line by line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.plan.dockerfile import render
from envbuild.plan.model import Definition
from envbuild.run import Command, LocalRunner

SMALL = Definition(
    comment=("app: an example", "%post is a comment here"),
    header=(("Bootstrap", "docker"), ("From", "lab/app@sha256:" + "1" * 64)),
    post=("set -eu", "cat >/x <<'END'", "it's $HOME \\", "# no comment", "END", 'echo "done"'),
    environment=(("LC_ALL", "C.UTF-8"), ("ODD", 'a "b" $c \\d')),
    labels=(("envbuild.recipe", "app"),),
    runscript=('if [ "$#" -gt 0 ]; then', '    exec "$@"', "fi", "exec python"),
)


def test_the_whole_text(golden: Callable[[str, str], None]) -> None:
    golden("plan/small.Dockerfile", render(SMALL, files="files"))


def test_a_bootstrap_starts_from_its_tar() -> None:
    text = render(replace(SMALL, header=(("Bootstrap", "scratch"),)), root="app.root.tar")
    assert "FROM scratch\nADD app.root.tar /\n" in text
    assert "--mount" not in text


def script_of(text: str) -> str:
    """The script that a shell gets from a Dockerfile's only RUN, as /bin/sh -c hands it on."""
    run = re.search(
        r"^RUN mkdir -p /.envbuild && (printf .*(?:\\\n    .*)*) \\\n    >/.envbuild/script && /bin/sh",
        text,
        re.MULTILINE,
    )
    assert run is not None
    command = run[1]
    return LocalRunner()(Command(argv=("/bin/sh", "-c", command))).stdout


def test_a_shell_gets_the_lines_as_they_were() -> None:
    assert script_of(render(SMALL)) == "\n".join(SMALL.post) + "\n"


LINES = st.lists(st.text("ab'\"\\$#`%!{} \té", max_size=8), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(LINES)
def test_any_lines_come_back(lines: list[str]) -> None:
    text = render(replace(SMALL, post=tuple(lines)))
    assert script_of(text) == "".join(f"{line}\n" for line in lines)
    # no line of it may look like a comment, which the engine would take away
    assert not any(line.lstrip().startswith("#") for line in text.split("RUN ", 1)[1].splitlines())


@pytest.mark.parametrize("kind", ["localimage", "oci", "oci-archive", "oras"])
def test_a_base_that_no_engine_knows_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=f"a Dockerfile cannot start from {kind}: x"):
        render(replace(SMALL, header=(("Bootstrap", kind), ("From", "x"))))


def test_what_a_dockerfile_cannot_carry_is_refused() -> None:
    with pytest.raises(UsageError, match="has a line break"):
        render(replace(SMALL, environment=(("A", "b\nc"),)))
    with pytest.raises(UsageError, match="a Dockerfile carries 120000"):
        render(replace(SMALL, post=("x" * 130_000,)))
    with pytest.raises(UsageError, match="cannot stand in a Dockerfile"):
        render(replace(SMALL, header=(("Bootstrap", "docker"), ("From", "x\nRUN y"))))
