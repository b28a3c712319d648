from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from envbuild.errors import UsageError
from envbuild.resolve.platform import marker_environment
from envbuild.resolve.requirements import Direct, read_directs
from envbuild.resolve.stubs import Stubs
from tests.resolve.conftest import base

ENVIRONMENT = marker_environment(base())
OPTION = "is an option of pip, not a requirement"
ADDRESS = "is an address or a path, and a lock names no host"
FORM = "is not a requirement as PEP 508 has it"
BREAK = "holds a line break or a control character"
HINT = "write one package a line, such as numpy>=1.24,<2 or transformers[torch]"
HINTS = {
    OPTION: "extra indexes are named under [python] indexes; other options have no place in a recipe",
    ADDRESS: "take the package from an index by name and version; other indexes are named under [python] indexes",
}


def read(*requirements: str) -> tuple[Direct, ...]:
    return read_directs(requirements, environment=ENVIRONMENT, stubs=Stubs({}))[0]


@pytest.mark.parametrize(
    ("hostile", "what"),
    [
        ("-e .", OPTION),
        ("-e git+https://mirror.invalid/x", OPTION),
        ("--index-url https://mirror.invalid/simple", OPTION),
        ("-r /etc/passwd", OPTION),
        ("numpy --index-url=https://mirror.invalid", OPTION),
        ("numpy --hash=sha256:00", OPTION),
        ("numpy -f /tmp", OPTION),
        ("file:///etc/passwd", ADDRESS),
        ("numpy @ file:///etc/passwd", ADDRESS),
        ("numpy @ https://mirror.invalid/numpy.whl", ADDRESS),
        ("git+https://mirror.invalid/x.git", ADDRESS),
        ("../numpy", ADDRESS),
        ("/etc/passwd", ADDRESS),
        (".", ADDRESS),
        ("numpy\n--index-url https://mirror.invalid", BREAK),
        ("numpy\r", BREAK),
        ("numpy\x00", BREAK),
        ("numpy\u2028pandas", BREAK),
        ("numpy; rm -rf /", FORM),
        ("$(touch x)", FORM),
        ("`id`", FORM),
        ("numpy | cat", FORM),
        ("numpy && id", FORM),
        ("'numpy'", FORM),
        ("numpy==", FORM),
        ("numpy_", FORM),
        ("numpy[a_]", FORM),
        ("numpy>=1.0,<<2", FORM),
        ("numpy 1.0", FORM),
        ("", FORM),
        ("numpy; nonsense == '1'", FORM),
        ("\uff4eumpy", FORM),
        ("a" * 301, "is longer than 300 characters"),
    ],
)
def test_hostile_requirement(hostile: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(hostile)
    assert caught.value.what == what
    assert caught.value.hint == HINTS.get(what, HINT)
    assert caught.value.where is not None
    assert caught.value.where.startswith("requirement ")
    assert caught.value.where.isprintable()
    assert len(caught.value.where) < 500


def test_whole_error_text() -> None:
    with pytest.raises(UsageError) as caught:
        read("numpy\n-e .")
    assert (
        str(caught.value) == "requirement 'numpy\\n-e .': holds a line break or a control character"
    )
    assert (
        caught.value.hint
        == "write one package a line, such as numpy>=1.24,<2 or transformers[torch]"
    )


@given(st.text(max_size=60))
def test_whatever_is_accepted_is_one_plain_requirement(text: str) -> None:
    try:
        found = read(text)
    except UsageError:
        return
    for direct in found:
        parsed = Requirement(direct.text)
        assert direct.text.isprintable()
        assert direct.text.isascii()
        assert parsed.url is None
        assert parsed.marker is None
        assert " " not in direct.text


def test_requirement_is_written_anew() -> None:
    (direct,) = read("  Scikit_Learn [b, a] >= 1.0, <2 ; python_version >= '3.8'")
    assert (direct.name, direct.text) == ("scikit-learn", "scikit-learn[a,b]<2,>=1.0")
    assert direct.written == "  Scikit_Learn [b, a] >= 1.0, <2 ; python_version >= '3.8'"
