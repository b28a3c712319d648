"""uv's own words, recorded from uv 0.13.8, turned into the user's."""

from __future__ import annotations

import pytest

from envbuild.errors import EnvbuildError, HostError, NetworkError, SpaceError, ToolFailedError
from envbuild.resolve.conflict.explain import (
    ConflictError,
    Problem,
    clashes_of,
    held_reason,
    name_of,
    no_solution,
    plain_text,
    plain_warning,
    translate_failure,
)
from envbuild.resolve.stubs import plan_stubs
from tests.resolve.conftest import base

FACTS = base("torch==2.4.0a0+nv24.6", "tensorflow-gpu==2.1.0", "numpy==1.24.4", python="3.10.12")
STUBS = plan_stubs(FACTS, protected=("torch",), aliases={"tensorflow": ("tensorflow-gpu",)})
PROBLEM = Problem(directs=(), stubs=STUBS, couplings=(), as_of=None, facts=FACTS)


@pytest.mark.parametrize(
    ("output", "kind", "text"),
    [
        (
            (
                "error: Request failed after 3 retries in 9.5s\n  cause: Failed to fetch: http://u:p@127.0.0.1:9/simple/a/\n"
                "  cause: client error (Connect)\n  cause: tcp connect error\n  cause: Connection refused (os error 111)\n"
            ),
            NetworkError,
            "http://***@127.0.0.1:9/simple/a/: the package index did not answer: Connection refused (os error 111)",
        ),
        (
            (
                "error: Failed to fetch: `https://mirror.invalid/simple/a/`\n"
                "  cause: HTTP status client error (403 Forbidden) for url (https://mirror.invalid/simple/a/)\n"
            ),
            NetworkError,
            (
                "https://mirror.invalid/simple/a/: the package index did not answer: HTTP status client error "
                "(403 Forbidden) for url (https://mirror.invalid/simple/a/)"
            ),
        ),
        (
            "error: Failed to write to the distribution cache\n  cause: No space left on device (os error 28)\n",
            SpaceError,
            (
                "uv could not write: error: Failed to write to the distribution cache\n"
                "cause: No space left on device (os error 28)"
            ),
        ),
        (
            "error: Missing `Content-Type` header for `https://mirror.invalid/simple/a/`\n",
            NetworkError,
            (
                "https://mirror.invalid/simple/a/: the index answers with what is no index page: Missing "
                "`Content-Type` header for `https://mirror.invalid/simple/a/`"
            ),
        ),
        (
            "error: Failed to initialize cache at `/a`\ncause: failed to create directory `/a`: Read-only file system (os error 30)\n",
            HostError,
            (
                "uv could not write: error: Failed to initialize cache at `/a`\n"
                "cause: failed to create directory `/a`: Read-only file system (os error 30)"
            ),
        ),
        (
            "error: Failed to build `a==1.0`\n  cause: The build backend returned an error\n",
            HostError,
            (
                "uv could not read a source package: error: Failed to build `a==1.0`\n"
                "cause: The build backend returned an error"
            ),
        ),
        ("error: something new\n", ToolFailedError, "uv failed\nerror: something new"),
        ("", ToolFailedError, "uv failed\n"),
    ],
    ids=["refused", "forbidden", "full", "no type", "read-only", "build", "unknown", "silent"],
)
def test_failures_that_are_no_conflict(output: str, kind: type[EnvbuildError], text: str) -> None:
    error = translate_failure(output)
    assert type(error) is kind
    assert str(error) == text


def conflict(cause: str, hints: str = "") -> ConflictError:
    error = translate_failure(
        f"error: No solution found when resolving dependencies\n  cause: {cause}\n\n{hints}"
    )
    assert isinstance(error, ConflictError)
    return error


def test_clash_over_several_lines() -> None:
    found = conflict(
        "Because lightning>=2.0 depends on one of:\n             torch>=2.5,<3.0\n             torch>=4.0\n"
        "         and only torch==2.4.0+nv24.6.base is available, we can conclude that lightning>=2.0 cannot be used."
    )
    error = no_solution(found, PROBLEM, clashes_of(found, PROBLEM), ("loosen it", "leave it out"))
    assert error.what == (
        "the requirements have no solution on this base\n"
        "- lightning>=2.0 needs torch>=2.5,<3.0; the base holds torch 2.4.0a0+nv24.6, taken as 2.4.0\n"
        "the resolver's reasoning: Because lightning>=2.0 depends on one of: torch>=2.5,<3.0 torch>=4.0 and only "
        "torch 2.4.0a0+nv24.6, taken as 2.4.0 (in the base) is available, we can conclude that lightning>=2.0 cannot "
        "be used."
    )
    assert error.hint == "loosen it\nor leave it out"


def test_two_that_want_a_third_one_are_told() -> None:
    found = conflict(
        "Because a==1.0 depends on b==2.0 and c==1.0 depends on b==3.0, we can conclude that it fails."
    )
    assert held_reason(found, PROBLEM) == "a==1.0 needs b==2.0, and c==1.0 needs b==3.0"


def test_chain_without_the_base_is_told_as_it_is_and_not_at_length() -> None:
    found = conflict("Because a==1.0 depends on b==2.0, we can conclude that it fails.")
    assert (
        held_reason(found, PROBLEM)
        == "Because a==1.0 depends on b==2.0, we can conclude that it fails."
    )
    assert len(held_reason(conflict("Because " + "it fails. " * 200), PROBLEM)) == 400


def test_alias_is_named_by_what_the_base_holds() -> None:
    assert plain_text("only tensorflow==2.1.0+base is available", STUBS) == (
        "only tensorflow-gpu 2.1.0 as tensorflow (in the base) is available"
    )
    assert plain_text("torch<2.4.0+nv24.6.base", STUBS) == "torch<2.4.0"
    assert plain_text("database==1.0+database", STUBS) == "database==1.0+database"


@pytest.mark.parametrize(
    ("term", "name"),
    [
        ("torch==2.4.0", "torch"),
        ("Zope.Interface>=1", "zope-interface"),
        ("a[b]==1,", "a"),
        ("ruamel.yaml", "ruamel-yaml"),
    ],
)
def test_name_of_a_term(term: str, name: str) -> None:
    assert name_of(term) == name


def test_warnings() -> None:
    assert plain_warning('`rich==13.0` is yanked (reason: "broken \x1b[31mbuild")', STUBS) == (
        "rich 13.0 was withdrawn by its authors: broken [31mbuild"
    )
    assert (
        plain_warning("`rich==13.0` is yanked", STUBS) == "rich 13.0 was withdrawn by its authors"
    )
    assert (
        plain_warning(
            "The requested Python version 3.6 is not available; 3.11.7 will be used instead.", STUBS
        )
        is None
    )


def test_uv_says_in_two_ways_that_a_date_cuts_a_release() -> None:
    """The second is what it says beside an older lock's versions (uv 0.13, numpy==1.22.0 as of 2021-12-19)."""
    hinted = ConflictError(
        "error: x\n  cause: no\nhint: `numpy` was filtered by `exclude-newer` to only include\n"
    )
    said = ConflictError(
        "error: x\n  cause: Because numpy>1.21.5 was published after the exclude newer time and you require numpy==1.22.0, no."
    )
    assert hinted.filtered == said.filtered == ("numpy",)


def test_a_release_without_a_day_is_hidden_by_the_date_too() -> None:
    """As uv 0.13.9 says it of a page without PEP 700's upload-time."""
    said = ConflictError(
        "error: x\n  cause: Because install==1.3.5 has no publish time and you require install==1.3.5, we can "
        "conclude that your requirements are unsatisfiable."
    )
    assert said.filtered == ("install",)


def test_a_date_that_cuts_a_release_which_is_asked_for_with_an_extra() -> None:
    """As uv 0.13 says it of transformers[torch]==4.57.3 as of 2025-01-27."""
    said = ConflictError(
        "error: x\n  cause: Because transformers[torch]>4.48.1 was published after the exclude newer time and you "
        "require transformers[torch]==4.57.3, we can conclude that your requirements are unsatisfiable."
    )
    assert said.filtered == ("transformers",)
