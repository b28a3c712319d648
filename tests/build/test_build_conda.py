"""Images with conda packages, on a base of a few files and without any tool (tests/tiny_build.py)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from envbuild.app.query.root_script import script_text
from envbuild.build.base_parts import BaseParts, refuse_other_prefix
from envbuild.build.image.verify import image_tree, verify_image
from envbuild.build.make import building
from envbuild.build.stored_plan import plan_image
from envbuild.errors import UsageError
from envbuild.formats.file_tree import TreeEntry
from envbuild.lock.model import Lock, LockedFiles
from envbuild.plan.scripts.activate_conda import changed_variables
from tests.base.ociimages import tar_of
from tests.build.test_build_conda_link import MODULE, PYTHON, TOOL
from tests.conda.archives import Archive
from tests.tiny_build import TinyProject


@pytest.fixture(params=["bootstrap", "image"])
def tiny(request: pytest.FixtureRequest, tmp_path: Path) -> TinyProject:
    return TinyProject(tmp_path / "p", request.param)


def with_conda(tiny: TinyProject, *archives: Archive) -> Lock:
    """The lock of a tiny project with conda packages more, which its store has."""
    packages = []
    for archive in archives:
        data = archive.pack()
        tiny.keep(data)
        packages.append(archive.locked(data))
    return msgspec.structs.replace(tiny.lock, conda=tuple(packages), channels=("lab",))


def python_of(tiny: TinyProject) -> Archive:
    """A conda Python of the version that this machine's is, which plays it."""
    minor = tiny.lock.base.python.rpartition(".")[0]
    return replace(PYTHON, version=f"{minor}.9", files={f"bin/python{minor}": b"\x7fELF"}, links={})


def make(tiny: TinyProject, lock: Lock, mode: str = "flat") -> tuple[dict[str, str], list[str]]:
    """Make an image; return the hashes of its files, and which scripts ran."""
    tiny.runtime.scripts.clear()
    spec = tiny.spec(mode, lock)
    with building(spec, tiny.context):
        pass
    tree = image_tree(spec.target, tiny.context)
    return {path: entry.sha256 for path, entry in tree.items()}, list(tiny.runtime.scripts)


class TestAssembling:
    def test_packages_and_wheels_lie_in_the_prefix(self, tiny: TinyProject) -> None:
        python = python_of(tiny)
        lock = with_conda(tiny, python, TOOL, MODULE)
        found, scripts = make(tiny, lock)
        minor = lock.python_version.rpartition(".")[0]
        site = f"opt/env/lib/python{minor}/site-packages"
        tag = f"cpython-{minor.replace('.', '')}"
        assert {
            f"opt/env/conda-meta/{name}.json"
            for name in ("tool-1.0-h1_0", "module-1.0-py_0", f"python-{python.version}-h1_0")
        } <= set(found)
        assert f"{site}/module/__pycache__/where.{tag}.pyc" in found
        # wheels are installed for conda's Python, and compiled by it; the base's is asked nothing
        assert {f"{site}/beta.py", f"{site}/__pycache__/beta.{tag}.pyc"} <= set(found)
        assert not any(path.startswith("usr/local/lib") for path in found)
        assert scripts == ["compile.py", "compile.py"]

    def test_an_environment_without_python(self, tiny: TinyProject) -> None:
        found, scripts = make(tiny, with_conda(tiny, TOOL))
        assert "opt/env/bin/tool" in found
        # the wheels are the base's Python's
        assert any(path.endswith("-packages/beta.py") and "opt/env" not in path for path in found)
        assert len(scripts) <= 2

    def test_the_same_bytes_and_parts(self, tiny: TinyProject, tmp_path: Path) -> None:
        other = TinyProject(tmp_path / "another folder", tiny.kind)
        for mode in ("flat", "layered"):
            digests = set()
            for project in (tiny, other):
                lock = with_conda(project, python_of(project), TOOL, MODULE)
                make(project, lock, mode)
                target = project.spec(mode, lock).target
                digests.add(hashlib.sha256(target.read_bytes()).hexdigest())
            assert len(digests) == 1
        # one package more links that one alone
        lock = with_conda(tiny, python_of(tiny), TOOL, MODULE, replace(TOOL, name="more"))
        todo = [
            part
            for part in plan_image(tiny.spec("flat", lock), tiny.store).parts
            if part.state != "stored"
        ]
        assert [part.subject for part in todo if part.layer == "conda"] == ["more 1.0 h1_0"]

    def test_conda_is_a_layer_of_its_own(self, tiny: TinyProject) -> None:
        flat, _ = make(tiny, with_conda(tiny, TOOL))
        layered, _ = make(tiny, with_conda(tiny, TOOL), "layered")
        differ = {path for path in {*flat, *layered} if flat.get(path) != layered.get(path)}
        assert not {path for path in differ if path.startswith("opt/")}


class TestActivation:
    """What activate.d does is written down as exports; HostRuntime plays the container, the shell is this machine's."""

    def test_changes_become_exports(self) -> None:
        before = {"PATH": "/bin", "LD_PATH": "/a", "GONE": "1", "SAME": "x", "PWD": "/"}
        after = {
            "PATH": "/opt/env/x:/bin",
            "LD_PATH": "/a:/b c",
            "SAME": "x",
            "NEW": "it's",
            "PWD": "/tmp",
            "LAB": "no",
            "CONDA_BACKUP_CC": "gcc",
            "BASH_FUNC_f%%": "() { :; }",
            "DECLARED": "1",
        }
        assert [*changed_variables(before, after, ("LAB",))] == [
            "export DECLARED=1",
            "unset GONE",
            """export LD_PATH="$LD_PATH"':/b c'""",
            """export NEW='it'"'"'s'""",
            """export PATH=/opt/env/x:"$PATH\"""",
        ]

    def test_an_environment_without_scripts_runs_nothing(self, tiny: TinyProject) -> None:
        found, scripts = make(tiny, with_conda(tiny, TOOL))
        assert {".singularity.d/env/91-conda.sh", "opt/env/conda-meta/history"} <= set(found)
        assert "activate.sh" not in scripts


def test_a_base_with_files_in_the_prefix_is_refused(tmp_path: Path) -> None:
    base = BaseParts(own=(), tree={"opt/env/bin/x": (TreeEntry("opt/env/bin/x", "f", 0o755), 0)})
    with pytest.raises(UsageError, match="the base has /opt/env/bin/x, and /opt/env is where"):
        refuse_other_prefix(TinyProject(tmp_path / "p").lock, base)


def test_two_owners_of_one_path_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = TinyProject(tmp_path / "p")
    said: list[str] = []
    monkeypatch.setattr(type(tiny.context.report), "say", lambda _, line: said.append(line))
    other = Archive(name="zother", files={"bin/plain": b"another"}, depends=("tool",))
    lock = with_conda(tiny, TOOL, other)
    own = tar_of({"opt/env/etc/tool.conf": "of the project\n"}, time=0)
    sha256, size = tiny.keep(own)
    files = LockedFiles(source="etc", target="/opt/env/etc", sha256=sha256, size=size)
    make(tiny, msgspec.structs.replace(lock, files=(files,)))
    of_package, of_project = said
    assert of_package == (
        "tool 1.0 h1_0 and zother 1.0 h1_0 both hold /opt/env/bin/plain, with other content:"
        " that of zother 1.0 h1_0 is in the image"
    )
    assert of_project == (
        "tool 1.0 h1_0 and /opt/env/etc both hold /opt/env/etc/tool.conf, with other content:"
        " that of /opt/env/etc is in the image"
    )


def test_an_image_with_conda_is_verified(tiny: TinyProject) -> None:
    lock = with_conda(tiny, python_of(tiny), TOOL, MODULE)
    make(tiny, lock)
    spec = tiny.spec("flat", lock)
    found = verify_image(spec.target, lock, spec, tiny.context)
    assert (found.holds, found.compared) == ("bytes", "all files")
    other = with_conda(tiny, python_of(tiny), replace(TOOL, files={**TOOL.files, "a": b""}), MODULE)
    found = verify_image(spec.target, other, tiny.spec("flat", other), tiny.context)
    assert "opt/env/a" in found.missing


def test_scripts_of_packages_are_shown(tmp_path: Path) -> None:
    tiny = TinyProject(tmp_path / "p")
    hook = Archive(name="hook", files={"bin/.hook-post-link.sh": b"echo hello\n"})
    lock = with_conda(tiny, hook, TOOL)
    unknown = Archive(name="unknown").locked(b"not in the store")
    lock = msgspec.structs.replace(lock, conda=(*lock.conda, unknown))
    text = script_text(tiny.source, lock, tiny.store)
    assert "conda's hook 1.0: bin/.hook-post-link.sh ----\necho hello\n" in text
    assert "the scripts that 3 conda packages may bring" in text
    assert text.rstrip().endswith("so the scripts they may bring are not shown: unknown")
