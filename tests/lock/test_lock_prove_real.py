"""The search for versions that import, on real packages whose metadata does not say what they need of each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from packaging.version import Version

from envbuild.check.answers import Imports
from envbuild.check.expected import Expected
from envbuild.check.plan import imports_request
from envbuild.check.probe_runner import ProbeRunner
from envbuild.errors import NoSolutionError
from envbuild.lock.decide.import_search import Failure, ImportSearch, SearchBounds
from envbuild.lock.model import Lock, PythonPackage
from envbuild.net.index import index_url, read_links
from envbuild.net.web import make_client
from envbuild.run import Command, LocalRunner, Result
from envbuild.settings import load_settings
from envbuild.tools import uv_program
from tests.check.tree import Tree
from tests.lock.test_lock_import_search import lock_of
from tests.support import context_for

SETTINGS = load_settings()
RUN = LocalRunner()


@dataclass
class Folders:
    """A lab that resolves with uv and unpacks into a folder for each trial; the probe is the one of every image."""

    wanted: tuple[str, ...]
    work: Path
    uses: dict[str, tuple[str, ...]]
    trials: int = 0

    def uv(self, *arguments: str, **more: str) -> Result:
        index = index_url(context_for(SETTINGS, RUN))
        argv = (uv_program(SETTINGS), *arguments, "-q", "--no-config", "--default-index", index)
        return RUN(Command(argv=argv, stdin=more.get("stdin", ""), cwd=self.work), check=False)

    def relock(self, bounds: SearchBounds, old: Lock) -> Lock:
        del old
        text = "\n".join([*self.wanted, *bounds.constraints])
        result = self.uv(
            "pip",
            "compile",
            "-",
            "--no-header",
            "--no-annotate",
            "--python-version",
            "3.11",
            stdin=text,
        )
        if result.code:
            raise NoSolutionError(f"no solution\n- {result.stderr}")
        versions = dict(line.split("==") for line in result.stdout.split() if "==" in line)
        lock = lock_of(**{name.replace("-", "_"): version for name, version in versions.items()})
        return msgspec.structs.replace(lock, direct=("app",))

    def imports(self, lock: Lock) -> tuple[Failure, ...]:
        self.trials += 1
        tree = Tree(self.work / f"image{self.trials}")
        pins = tuple(f"{package.name}=={package.version}" for package in lock.python)
        made = self.uv("pip", "install", "--no-deps", "--target", str(tree.site), *pins)
        assert made.code == 0, made.stderr
        direct = tuple(text.split("=")[0] for text in self.wanted)
        request = imports_request(Expected(direct=direct), uses=self.uses)
        request = replace(request, parameters={**request.parameters, "frameworks": []})
        answer = (
            ProbeRunner(tree.root, tree, RUN, gpu=False).ask((request,)).answer(request, Imports)
        )
        assert answer.data is not None, answer
        failed = {name: one for name, one in answer.data.modules.items() if not one.ok}
        return tuple(
            Failure(module=n, error=f.error, blame=f.blame, used=f.used) for n, f in failed.items()
        )

    def releases(self, package: PythonPackage) -> tuple[str, ...]:
        with make_client(SETTINGS) as client:
            links = read_links(index_url(context_for(SETTINGS, RUN)), package.name, client)
        return tuple({link.file.split("-")[1] for link in links if link.file.endswith(".whl")})


def proved(
    wanted: tuple[str, ...], work: Path, **uses: tuple[str, ...]
) -> tuple[dict[str, Version], Lock]:
    lab = Folders(wanted, work, uses)
    first = lab.relock(SearchBounds(), lock_of())
    lock = ImportSearch(lab=lab, seconds=300).run(first)
    return {package.name: Version(package.version) for package in lock.python}, lock


@pytest.mark.live
def test_flask_of_2019_finds_three_neighbours_of_its_time(tmp_path: Path) -> None:
    """flask 1.1.2 asks for Jinja2>=2.10.1, itsdangerous>=0.24 and Werkzeug>=0.15, and imports with none of the newest."""
    versions, lock = proved(("flask==1.1.2",), tmp_path)
    assert versions["flask"] == Version("1.1.2")
    assert Version("3.0") <= versions["jinja2"] < Version("3.1")
    assert Version("2.0") <= versions["itsdangerous"] < Version("2.1")
    assert versions["werkzeug"] < Version("2.1")
    assert lock.proof == "imported"
    assert {hold.name for hold in lock.held_back} >= {"jinja2", "itsdangerous", "werkzeug"}


@pytest.mark.live
def test_a_name_that_only_the_source_takes(tmp_path: Path) -> None:
    """markupsafe 2.1 imports, and has no soft_unicode any more, which a script takes."""
    versions, lock = proved(("markupsafe",), tmp_path, markupsafe=("escape", "soft_unicode"))
    assert versions["markupsafe"] == Version("2.0.1")
    assert lock.proof == "imported"
