"""Names that are traps: placeholders, other people's projects, names that were given up and taken by somebody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.errors import EnvbuildError, IntegrityError, NetworkError, NoSolutionError
from envbuild.resolve.model import Resolution
from envbuild.resolve.sources.sdists import declared
from envbuild.resolve.stubs import write_wheel
from tests.resolve.conftest import (
    SyntheticIndex,
    ask_server,
    base,
    index,
    resolve,
    resolver_at,
    resolver_with,
    server,
    settings,
    uv_cache,
    versions,
)
from tests.resolve.loopback import Server

__all__ = [
    "ask_server",
    "index",
    "resolve",
    "resolver_at",
    "resolver_with",
    "server",
    "settings",
    "uv_cache",
]

Resolve = Callable[..., Resolution]
RAPIDS = """\
from setuptools.command.install import install
from setuptools import setup

class InstallWrapper(install):
    def run(self):
        raise Exception("Please install cudf via conda")

setup(name="cudf", version="0.6.1", cmdclass={"install": InstallWrapper})
"""
STUB = '[build-system]\nrequires = ["wheel-stub"]\nbuild-backend = "wheel_stub.buildapi"\n'


def refusal(resolve: Resolve, *requirements: str, **other: object) -> NoSolutionError:
    with pytest.raises(NoSolutionError) as caught:
        resolve(base(), *requirements, **other)
    return caught.value


# ------------------------------------------------------------------ placeholders


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"setup.py": RAPIDS},
            "a placeholder: it holds no module, and its setup.py raises an error",
        ),
        (
            {"setup.py": "raise RuntimeError('not here')\n"},
            "a placeholder whose setup.py only raises an error",
        ),
        (
            {"setup.py": "import sys\nprint('no')\nsys.exit(1)\n"},
            "a placeholder whose setup.py only raises an error",
        ),
        ({"pyproject.toml": STUB}, "a placeholder without files of its own (built by wheel-stub)"),
        (
            {"pyproject.toml": STUB.replace("wheel_stub", "nvidia_stub")},
            "a placeholder without files of its own (built by nvidia-stub)",
        ),
    ],
    ids=["raises when installed", "raises", "exits", "wheel-stub", "nvidia-stub"],
)
def test_placeholders_are_seen(files: dict[str, str], reason: str) -> None:
    assert declared(files, "a-1.tar.gz").stub == reason


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": RAPIDS, "cudf/__init__.py": ""},
        {
            "setup.py": "import sys\nif sys.version_info < (3, 6):\n    sys.exit(1)\nfrom setuptools import setup\nsetup()\n"
        },
        {"setup.py": "from setuptools import setup\nsetup(install_requires=['scikit-learn'])\n"},
        {"setup.py": RAPIDS, "PKG-INFO": "Name: a\nRequires-Dist: six\n"},
        {
            "setup.py": "import os\nif os.name == 'nt':\n    raise OSError\nfrom setuptools import setup\nsetup()\n",
            "a.py": "",
        },
    ],
    ids=["module", "old Python", "meta package", "meta package that raises", "another system"],
)
def test_what_is_no_placeholder(files: dict[str, str]) -> None:
    assert declared(files, "a-1.tar.gz").stub is None


def test_a_placeholder_is_no_release(index: SyntheticIndex, resolve: Resolve) -> None:
    """An older one that is a release is taken; where none is, the error says what they are."""
    real = {"setup.py": "from setuptools import setup\nsetup(name='gpulib')\n", "gpulib.py": ""}
    index.sdist("gpulib", "1.0", files=real)
    index.sdist("gpulib", "2.0", files={"pyproject.toml": STUB})
    for name in ("setuptools", "wheel"):
        index.wheel(name, "70.0")
    assert versions(resolve(base(), "gpulib")) == {"gpulib": "1.0"}
    error = refusal(resolve, "gpulib==2.0")
    assert (
        "- gpulib 2.0 is a placeholder without files of its own (built by wheel-stub)" in error.what
    )


def test_a_static_placeholder_is_none_either(index: SyntheticIndex, resolve: Resolve) -> None:
    files = {
        "pyproject.toml": STUB,
        "PKG-INFO": "Metadata-Version: 2.2\nName: libs\nVersion: 1.0\n",
    }
    for number in range(6):
        said = {**files, "PKG-INFO": files["PKG-INFO"].replace("1.0", f"{number}.0")}
        index.sdist("libs", f"{number}.0", files=said)
    index.wheel("app", "1.0", requires=("libs",))
    error = refusal(resolve, "app")
    assert "is a placeholder without files of its own" in error.what
    assert "libs" in (error.hint or "")


@pytest.mark.parametrize("wanted", ["apex", "cudf", "rmm", "app"])
def test_another_project_of_that_name_is_not_taken(
    wanted: str, index: SyntheticIndex, resolve: Resolve
) -> None:
    for name in ("apex", "cudf", "rmm"):
        index.sdist(
            name,
            "0.9.9",
            files={"setup.py": "from setuptools import setup\nsetup()\n", f"{name}.py": ""},
        )
    index.wheel("app", "1.0", requires=("apex",))
    name = "apex" if wanted == "app" else wanted
    error = refusal(resolve, wanted)
    assert f"- {name} is not what an index has by that name: in " in error.what
    assert f"leave out {name}, or bring it otherwise: in " in (error.hint or "")


def test_the_real_one_is(index: SyntheticIndex, resolve: Resolve) -> None:
    """A lab's own index has wheels; an image of NVIDIA's holds it; and the user may ask for the source."""
    index.sdist(
        "apex",
        "0.9.9",
        files={"setup.py": "from setuptools import setup\nsetup()\n", "apex.py": ""},
    )
    for name in ("setuptools", "wheel"):
        index.wheel(name, "70.0")
    assert versions(resolve(base(), "apex", from_source=("apex",))) == {"apex": "0.9.9"}
    assert resolve(base("torch==2.4.0", "apex==0.1"), "apex").packages == ()
    index.wheel("apex", "0.1")
    assert versions(resolve(base(), "apex")) == {"apex": "0.1"}


# ------------------------------------------------------------------ names that were given up


def squat(index: SyntheticIndex, name: str = "airports") -> None:
    """What took the name of a project that was deleted: one small archive without a module of that name."""
    setup = "from setuptools import setup, find_packages\nsetup(name='airports', packages=find_packages())\n"
    index.sdist(
        name, "0.0.1", files={"setup.py": setup, "sample/__init__.py": ""}, day="2025-09-25"
    )


def test_a_name_that_was_registered_anew_is_refused(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("outline", "0.0.46", requires=("airports",), day="2024-06-22")
    squat(index)
    for name in ("setuptools", "wheel"):
        index.wheel(name, "70.0")
    error = refusal(resolve, "outline")
    assert "airports was registered on 2025-09-25 (one release, " in error.what
    assert "without a module airports), long after outline, which requires it" in error.what
    assert "write it under [python] dependencies" in (error.hint or "")
    assert versions(resolve(base(), "outline", "airports")) == {
        "airports": "0.0.1",
        "outline": "0.0.46",
    }


def test_it_is_not_taken_across_the_date(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("outline", "0.0.46", requires=("airports",), day="2024-06-22")
    squat(index)
    index.wheel("outline", "0.0.47", requires=("airports",), day="2025-10-22")
    error = refusal(resolve, "outline", as_of="2024-09-12", latest="2026-06-01")
    assert "airports was registered on 2025-09-25 (one release" in error.what
    assert "after 2024-09-12: it may be somebody else's by now" in error.what


def test_a_project_that_deletes_its_old_releases_is_taken_across_the_date(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """As tb-nightly does: of nightly builds only the last ones stay."""
    index.wheel("sr", "1.4.2", requires=("tb-nightly",), day="2024-06-22")
    index.wheel("tb-nightly", "2.21.0", "2.21.1", "2.21.2", "2.21.3", day="2026-08-01")
    answer = resolve(base(), "sr", as_of="2024-09-12")
    assert versions(answer) == {"sr": "1.4.2", "tb-nightly": "2.21.3"}
    assert "tb-nightly 2.21.3: there is none from before the date" in answer.notes


# ------------------------------------------------------------------ an index that lies or refuses


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_page_is_no_spelling_mistake(
    status: int, server: Server, ask_server: Callable[..., Resolution]
) -> None:
    server.status["simple/six/"] = status
    server.files["simple/six/"] = b""
    with pytest.raises(NetworkError) as caught:
        ask_server("six")
    assert f"refuses access (HTTP {status})" in str(caught.value)


def test_a_file_of_this_machine_is_no_answer(
    server: Server, tmp_path: Path, ask_server: Callable[..., Resolution]
) -> None:
    path = write_wheel(tmp_path, "six", "1.16.0", ())
    server.page(
        "six",
        text=f'<!DOCTYPE html><html><body><a href="file://{path}">{path.name}</a></body></html>',
    )
    with pytest.raises((IntegrityError, NoSolutionError)) as caught:
        ask_server("six")
    assert isinstance(caught.value, EnvbuildError)
    assert caught.value.code == 6
