"""Whatever an index, an archive or uv says: an answer or one of our errors, never anything else, and never out of bounds."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from envbuild.errors import EnvbuildError, IntegrityError
from envbuild.net.simple import ARCHIVE, HASH, PageError, links_of_html, links_of_json
from envbuild.resolve.conflict.explain import ConflictError, translate_failure
from envbuild.resolve.pylock import FILE, read_pylock
from envbuild.resolve.setup_py.read import read_setup
from envbuild.resolve.sources.metadata import headers, wheel_headers
from envbuild.resolve.sources.sdists import declared, read_sdist
from envbuild.resolve.uv.query import read_origins
from envbuild.toml import quote

PAGE = "https://mirror.invalid/simple/six/"
PIECES = st.sampled_from(
    [
        "<a ", "href=", '"', "'", ">", "</a>", "<base href=", "<!DOCTYPE", "<![CDATA[", "<!--", "-->", "<meta ", "&#x0;",
        'name="pypi:repository-version" ', 'content="1.0"', "six-1.0.tar.gz", "six-1.0-py3-none-any.whl", "#sha256=",
        "a" * 64, "file:///etc/passwd", "//[", "http://x:99999/", "javascript:", "../../", "%2e%2e%2f", "%00", "\0", "\n",
        "data-yanked", "data-requires-python", "data-upload-time=", "2024-01-01T00:00:00Z", "\ud800",
    ]
)  # fmt: skip
HTML = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=40).map("".join)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), PIECES
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["filename", "url", "hashes", "size", "upload-time", "yanked", "requires-python", "meta"]
)
FILES = st.lists(st.dictionaries(FIELDS, VALUES, max_size=8), max_size=4)
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(HTML)
def test_html_pages(text: str) -> None:
    with contextlib.suppress(PageError):
        for link in links_of_html(text, PAGE):
            assert ARCHIVE.fullmatch(link.file)
            assert "/" not in link.file
            assert urlsplit(link.url).scheme in ("http", "https")
            assert link.sha256 is None or HASH.fullmatch(link.sha256)


@quick
@given(FILES, VALUES)
def test_json_pages(files: list[dict[str, object]], meta: object) -> None:
    for content in ({"files": files}, {"files": files, "meta": meta}, files):
        with contextlib.suppress(PageError):
            for link in links_of_json(json.dumps(content).encode("utf-8", "surrogatepass"), PAGE):
                assert ARCHIVE.fullmatch(link.file)
                assert urlsplit(link.url).scheme in ("http", "https")
                assert link.size is None or link.size >= 0


@quick
@given(st.binary(max_size=200))
def test_json_pages_of_bytes(data: bytes) -> None:
    with contextlib.suppress(PageError):
        links_of_json(data, PAGE)


WORDS = st.sampled_from(
    [
        "No solution found", "cause:", "Because ", "six==1.0", " depends on ", "torch>=2,<3", "and ", "you require ",
        "there are no versions of ", " was not found in the package registry", "hint: ", "`six` was filtered by `exclude-newer`",
        " has no wheels with a matching Python ABI tag", "does not satisfy Python>=3.9 and x==1 depends on Python", "\n",
        "error: ", "https://user:pass@mirror.invalid/simple/six/", "Failed to build `a==1`", "{python_version < '3.8'}",
        "unexpected JSON", "certificate", "+base", "[extra]", "No space left on device", "warning: ", "Package metadata name `a` does not match",
    ]
)  # fmt: skip


@quick
@given(st.lists(st.one_of(WORDS, st.text(max_size=10)), max_size=30).map("".join))
@example("warning: unexpected JSON")
@example("warning: error sending request for url (https://mirror.invalid/)")
def test_what_uv_says(text: str) -> None:
    error = translate_failure(text)
    assert isinstance(error, EnvbuildError | ConflictError)
    if isinstance(error, EnvbuildError):
        assert "user:pass" not in f"{error} {error.where} {error.hint}"
    read_origins(
        text, {"extra": "https://mirror.invalid/simple", "default": "https://mirror.invalid/other"}
    )


ENTRIES = st.dictionaries(
    st.sampled_from(
        ["name", "version", "wheels", "sdist", "url", "path", "hashes", "size", "upload-time"]
    ),
    st.one_of(
        st.text(max_size=10),
        st.integers(),
        st.just({"sha256": "0" * 64}),
        st.just([{"url": "x", "hashes": {}}]),
    ),
    max_size=6,
)


@quick
@given(st.lists(ENTRIES, max_size=3))
def test_what_uv_answers(entries: list[dict[str, object]]) -> None:
    def written(value: object) -> str:
        if isinstance(value, dict):
            return (
                "{" + ", ".join(f"{quote(str(k))} = {written(v)}" for k, v in value.items()) + "}"
            )
        if isinstance(value, list):
            return f"[{', '.join(map(written, value))}]"
        return quote(value) if isinstance(value, str) else str(value)

    rows = [f"{key} = {written(value)}\n" for entry in entries for key, value in entry.items()]
    text = "[[packages]]\n" + "".join(rows)
    with contextlib.suppress(EnvbuildError):
        for name, chosen in read_pylock(text).items():
            files = (*chosen.wheels, *filter(None, (chosen.sdist,)))
            assert isinstance(name, str)
            assert all(FILE.fullmatch(file.file) for file in files)


CODE = st.sampled_from(
    [
        "import sys\n", "from setuptools import setup\n", "setup(", ")", "install_requires=", "['six']", "needs", " = ", "\n",
        "if sys.version_info < (3, 8):\n    ", "else:\n    ", "def f(*a, b=1):\n    return ", "f(", "open('setup.py')", ".read()",
        "[x for x in ", "]", "{'a': ", "}", "+ ", "raise ValueError\n", "**kw", "lambda: ", "f'{needs}'", "sys.platform == 'x'", "'%s' % ",
        "with open('x') as y:\n    ", "try:\n    ", "except E:\n    ", "pass\n", "global needs\n", "*", "not ", " and ", "os.path.join(",
    ]
)  # fmt: skip


@quick
@given(st.lists(st.one_of(CODE, st.text(max_size=6)), max_size=40).map("".join))
def test_setup_files(text: str) -> None:
    handed = read_setup(text, {"setup.py": text})
    if handed is not None:
        handed.lines("install_requires")
        handed.extras()


NAMES = st.sampled_from(
    [
        "PKG-INFO",
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "requirements.txt",
        "a.egg-info/requires.txt",
        "a.egg-info/PKG-INFO",
    ]
)
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "Metadata-Version: 2.2\n", "Requires-Dist: ", "six>=1 ; extra == 'a'\n", "Dynamic: Requires-Dist\n", "[project]\n", "\n\n",
                "dependencies = ['six']\n", "[build-system]\n", "requires = [1, 'x']\n", "build-backend = 'wheel_stub.x'\n", "[options]\n",
                "install_requires = file: requirements.txt\n", "[tool.poetry.dependencies]\n", "six = '^1.2'\n", "[gpu:python_version<'3']\n",
                "[options.extras_require]\n", "dynamic = ['dependencies']\n", "Name: a\n", "Version: 1\n", "name = 'x'\n",
            ]
        ),
        st.text(max_size=12),
    ),
    max_size=12,
).map("".join)  # fmt: skip


@quick
@given(st.dictionaries(NAMES, TEXTS, max_size=5))
def test_what_archives_declare(members: dict[str, str]) -> None:
    with contextlib.suppress(IntegrityError):
        said = declared(members, "a-1.tar.gz")
        assert all(isinstance(text, str) for text in (*said.requires, *said.build))


@quick
@given(TEXTS)
def test_metadata(text: str) -> None:
    headers(text)


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("a-1/PKG-INFO")
        info.size = 8
        archive.addfile(info, io.BytesIO(b"Name: a\n"))
    return buffer.getvalue()


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        text = "Name: a\nVersion: 1\n" * 9
        archive.writestr("a-1.dist-info/METADATA", text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["a-1.tar.gz", "a-1.zip", "a-1-py3-none-any.whl"])
@quick
@given(data=st.data())
def test_damaged_archives(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = bytearray(_tar() if name.endswith(".tar.gz") else _zip())
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=8)
    ):
        whole[place] = value
    del whole[data.draw(st.integers(0, len(whole))) :]
    path = Path(tmp_path_factory.getbasetemp()) / f"fuzzed-{name}"
    path.write_bytes(bytes(whole))
    with contextlib.suppress(IntegrityError):
        if name.endswith(".whl"):
            with path.open("rb") as file:
                wheel_headers(file, name)
        else:
            read_sdist(path, name)
