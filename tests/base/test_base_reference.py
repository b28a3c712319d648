"""How a base is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.base.model import BaseReference
from envbuild.base.reference import SUITES, parse_reference
from envbuild.base.sources import SOURCES
from envbuild.errors import UsageError
from envbuild.names import BASE_KINDS


@pytest.mark.parametrize("suite", SUITES)
def test_a_bootstrap_is_taken_apart(suite: str) -> None:
    assert parse_reference(f" debian:{suite} ") == BaseReference(
        kind=BASE_KINDS["debian"], name=suite, text=f"debian:{suite}"
    )


@pytest.mark.parametrize(
    "path", ["base.sif", "../images/my base.sif", "/a/b:c.sif", "~/x.sif", "docker.sif"]
)
def test_a_path_of_an_image_is_kept_as_written(path: str) -> None:
    assert parse_reference(path) == BaseReference(kind=BASE_KINDS["sif"], name=path, text=path)


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (
            "debian:12",
            "a Debian release is named by its code name",
            "write one of: debian:bullseye, debian:bookworm, debian:trixie",
        ),
        ("debian:stable", '"stable" means another release every two years', None),
        ("debian:", "a Debian release is named by its code name", None),
        (
            "debian:bookwrm",
            '"bookwrm" is not a Debian release that envbuild bootstraps; did you mean "bookworm"?',
            None,
        ),
        ("library://org/app:1", "bases from library:// are not supported by this version", None),
        ("oci-archive:", "is not a base that envbuild knows", None),
        ("docker-daemon://x", "is not a base that envbuild knows", None),
        ("oras:org/app", "is not a base that envbuild knows", "write oras://org/app"),
        ("org/app:1.0-gpu", "is not a base that envbuild knows", "write docker://org/app:1.0-gpu"),
        ("ubuntu:22.04", "is not a base that envbuild knows", "write docker://ubuntu:22.04"),
        ("docker:ubuntu:22.04", "is not a base that envbuild knows", "write docker://ubuntu:22.04"),
        (
            "docker://Org/App",
            "'Org/App' is not the name of an image; did you mean 'org/app'?",
            None,
        ),
        ("docker://a b", "'a b' is not the name of an image", None),
        ("docker://app:1.0;x", "'1.0;x' is not a tag", None),
        (
            "docker://app@sha256:12",
            "'sha256:12' is not a digest",
            "write @sha256: and 64 hex digits",
        ),
        ("docker://$(id)/app:1", "'$(id)/app' is not the name of an image", None),
        ("docker://", "'' is not the name of an image", None),
        ("bookworm", "is not a base that envbuild knows", None),
        ("base.img", "is not a base that envbuild knows", None),
        ("", "names no base", None),
        ("debian:bookworm\nInclude: x", "names no base", None),
    ],
)
def test_everything_else_says_what_is_known(text: str, what: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert caught.value.what == what
    assert caught.value.hint is not None
    if hint is not None:
        assert caught.value.hint == hint


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_a_usage_error(text: str) -> None:
    try:
        found = parse_reference(text)
    except UsageError:
        return
    assert parse_reference(found.text) == found


def test_every_kind_of_base_has_functions_that_read_it() -> None:
    assert set(SOURCES) == set(BASE_KINDS)
    made = {name for name, source in SOURCES.items() if source.fetch is None}
    assert made == {kind.name for kind in BASE_KINDS.values() if kind.is_bootstrap}
