"""The probe on real interpreters, against trees as images have them, broken ones included."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from envbuild.base.facts import probe_text, read_probe
from envbuild.base.model import BaseFacts, Dist
from envbuild.run import Command, LocalRunner
from tests.base.interpreters import parameters

THIS = Path(sys.executable)


def probe(python: Path, *path: Path, cwd: Path | None = None, **environment: str) -> BaseFacts:
    env = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(map(str, path)),
        "LC_ALL": "C",
        **environment,
    }
    command = Command(
        argv=(str(python), "-s", "-B", "-"), env=env, stdin=probe_text(), cwd=cwd or Path("/")
    )
    return read_probe(LocalRunner()(command).stdout, image="test")


def dist(
    folder: Path, entry: str, metadata: bytes | str | None = None, **files: bytes | str
) -> Path:
    info = folder / entry
    info.mkdir(parents=True)
    if metadata is not None:
        files["METADATA"] = metadata
    for name, content in files.items():
        (info / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return info


def found(facts: BaseFacts, name: str) -> Dist:
    answer = facts.dist(name)
    assert answer is not None
    return answer


WHOLE = """Metadata-Version: 2.1
Name: Whole_Thing
Version: 1.2.3
Requires-Python: >=3.6
Requires-Dist: numpy (>=1.18)
Requires-Dist: six ;
 python_version < "3"

A description
Requires-Dist: not-a-header
"""
RECORD = "whole/__init__.py,,\nwhole/_c.cpython-311-x86_64-linux-gnu.so,,\nother.py,,\n../../../bin/whole,,\nwhole-1.dist-info/RECORD,,\n"


@pytest.mark.parametrize("python", parameters())
def test_every_python_tells_the_same_facts(python: Path, tmp_path: Path) -> None:
    dist(tmp_path, "Whole_Thing-1.2.3.dist-info", WHOLE, RECORD=RECORD, INSTALLER="pip\n")
    facts = probe(python, tmp_path)
    whole = found(facts, "whole-thing")
    assert whole == Dist(
        name="Whole_Thing",
        version="1.2.3",
        requires=("numpy (>=1.18)", 'six ; python_version < "3"'),
        requires_python=">=3.6",
        location=str(tmp_path),
        record=hashlib.sha256(RECORD.encode()).hexdigest(),
        installer="pip",
        modules=("other", "whole"),
    )
    version = python.name.removeprefix("python")
    assert facts.python.startswith(f"{version}.")
    assert facts.abi in (f"cp{version.replace('.', '')}", f"cp{version.replace('.', '')}m")
    assert (facts.abi or "").endswith("m") == (version in ("3.6", "3.7"))
    assert facts.python_path == str(python)
    assert facts.glibc.startswith("2.")
    assert all(Path(folder).name in ("site-packages", "dist-packages") for folder in facts.site)


@pytest.mark.parametrize("python", parameters())
def test_broken_metadata_is_told_and_survived(python: Path, tmp_path: Path) -> None:
    dist(tmp_path, "nothing-1.0.dist-info", RECORD="nothing/__init__.py,,\n")
    dist(tmp_path, "norecord-2.0.dist-info", "Name: norecord\nVersion: 2.0\n")
    dist(
        tmp_path, "latin-1.0.dist-info", b"Name: latin\nVersion: 1.0\nAuthor: Andr\xe9\n", RECORD=""
    )
    dist(tmp_path, "legacy-2004d.dist-info", "Name: legacy\nVersion: 2004d-final!\n", RECORD="")
    dist(tmp_path, "unversioned.dist-info", "Name: unversioned\n", RECORD="")
    dist(tmp_path, "-1.0.dist-info", RECORD="")
    dist(tmp_path, "evil.dist-info", "Name: ../../etc; rm -rf\nVersion: 1\n", RECORD="")
    (tmp_path / "afile-3.0.dist-info").write_text("not a folder")
    (tmp_path / "loop-1.0.dist-info").symlink_to("loop-1.0.dist-info")
    dists = {d.name: d for d in probe(python, tmp_path).dists if d.location == str(tmp_path)}
    assert {name: (d.version, d.note) for name, d in dists.items()} == {
        "nothing": ("1.0", "no METADATA"),
        "norecord": ("2.0", "no RECORD"),
        "latin": ("1.0", "METADATA is not UTF-8"),
        "legacy": ("2004d-final!", "its version is not PEP 440"),
        "unversioned": ("0+unknown", "no version"),
        "afile": ("3.0", "no RECORD"),
        "loop": ("1.0", "no METADATA; no RECORD"),
    }
    assert dists["nothing"].modules == ("nothing",)


def test_the_first_folder_of_the_path_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    dist(first, "same_name-1.0.dist-info", "Name: same.name\nVersion: 1.0\n", RECORD="")
    dist(second, "same_name-2.0.dist-info", "Name: Same-Name\nVersion: 2.0\n", RECORD="")
    answer = found(probe(THIS, first, second), "same-name")
    assert (answer.version, answer.note) == ("1.0", f"hides 2.0 in {second}")
    assert found(probe(THIS, second, first), "same-name").version == "2.0"


def test_leftovers_of_an_interrupted_upgrade_lose(tmp_path: Path) -> None:
    dist(tmp_path, "package-1.0.dist-info", RECORD="x.py,,\n")
    dist(tmp_path, "package-2.0.dist-info", "Name: package\nVersion: 2.0\n", RECORD="x.py,,\n")
    answer = found(probe(THIS, tmp_path), "package")
    assert (answer.version, answer.note) == ("2.0", "also 1.0 in the same folder")


def test_eggs_are_distributions_too(tmp_path: Path) -> None:
    requires = "six\n\n[:python_version < '3']\nenum34\n\n[test]\npytest>=3\n\n[fast:os_name == 'posix']\nuvloop\n"
    old = dist(
        tmp_path,
        "old-1.0-py3.6.egg-info",
        **{"PKG-INFO": "Name: old\nVersion: 1.0\n", "requires.txt": requires},
    )
    (old / "top_level.txt").write_text("old\n_old\n")
    (tmp_path / "single-2.0.egg-info").write_text("Name: single\nVersion: 2.0\n")
    egg = tmp_path / "zipped-3.0-py3.11.egg"
    dist(egg, "EGG-INFO", **{"PKG-INFO": "Name: zipped\nVersion: 3.0\n"})
    facts = probe(THIS, tmp_path, egg)
    assert found(facts, "old").requires == (
        "six",
        "enum34; (python_version < '3')",
        'pytest>=3; extra == "test"',
        "uvloop; (os_name == 'posix') and extra == \"fast\"",
    )
    assert found(facts, "old").modules == ("_old", "old")
    assert found(facts, "single").version == "2.0"
    assert found(facts, "zipped").version == "3.0"


def test_nothing_installed_is_imported_and_nothing_written(tmp_path: Path) -> None:
    dist(tmp_path, "trap-1.0.dist-info", "Name: trap\nVersion: 1.0\n", RECORD="")
    for module in ("trap", "tensorflow", "torch", "nvidia"):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "torch" / "version.py").write_text(
        "__version__ = '2.4.1+cu121'\ncuda: Optional[str] = '12.1'\n"
    )
    before = sorted(tmp_path.rglob("*"))
    assert probe(THIS, tmp_path).built_for == {"cuda": "12.1"}
    assert sorted(tmp_path.rglob("*")) == before


def test_the_folder_that_it_is_started_in_does_not_count(tmp_path: Path) -> None:
    dist(tmp_path, "stray-1.0.dist-info", "Name: stray\nVersion: 1.0\n", RECORD="")
    assert probe(THIS, cwd=tmp_path).dist("stray") is None


def test_libraries_are_found_where_the_loader_looks(tmp_path: Path) -> None:
    libraries, stubs = tmp_path / "cuda", tmp_path / "cuda" / "stubs"
    stubs.mkdir(parents=True)
    for name in ("libcudart.so.12.3.101", "libcudnn.so.8.9.6", "libnccl.so.2.19.3"):
        (libraries / name).touch()
    (libraries / "libcudart.so.12").symlink_to("libcudart.so.12.3.101")
    (stubs / "libcuda.so").touch()
    (stubs / "libcuda.so.1").symlink_to("libcuda.so")
    facts = probe(THIS, tmp_path, LD_LIBRARY_PATH=f"/.singularity.d/libs:{libraries}")
    assert (facts.cuda, facts.cudnn, facts.nccl) == ("12.3", "8.9.6", "2.19.3")
    assert facts.stubs == (f"{stubs}/libcuda.so", f"{stubs}/libcuda.so.1")
    assert facts.environment["LD_LIBRARY_PATH"] == str(libraries)


def test_the_steering_of_pip_is_told_without_its_addresses(tmp_path: Path) -> None:
    constraints = tmp_path / "constraint.txt"
    constraints.write_text("numpy==1.24.4")
    config = tmp_path / "pip.conf"
    config.write_text(f"[install]\nconstraint = {constraints}\n")
    facts = probe(
        THIS,
        PIP_CONSTRAINT=str(constraints),
        PIP_CONFIG_FILE=str(config),
        PIP_INDEX_URL="https://user:secret@mirror.invalid/simple",
        PIP_BREAK_SYSTEM_PACKAGES="1",
        HF_TOKEN="x",
    )
    assert facts.constraints == "numpy==1.24.4\nnumpy==1.24.4\n"
    assert facts.environment == {
        "PIP_CONSTRAINT": str(constraints),
        "PIP_CONFIG_FILE": str(config),
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
    }


def test_a_virtual_environment_tells_its_own_packages(tmp_path: Path) -> None:
    LocalRunner()(
        Command(argv=(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")))
    )
    site = next((tmp_path / "v/lib").glob("python*/site-packages"))
    dist(site, "inside-1.0.dist-info", "Name: inside\nVersion: 1.0\n", RECORD="")
    facts = probe(tmp_path / "v/bin/python")
    assert [d.name for d in facts.dists] == ["inside"]
    assert facts.prefix == str(tmp_path / "v")
    assert facts.site == (str(site),)
    assert facts.created is not None


def test_debian_packages_of_this_machine_are_read() -> None:
    status = Path("/var/lib/dpkg/status")
    if not status.exists():
        pytest.skip("this machine is no Debian")
    query = Command(
        argv=(
            "dpkg-query",
            "-W",
            "-f",
            "${db:Status-Status} ${Package} ${Version} ${Architecture}\n",
        )
    )
    lines = (line.split(" ") for line in LocalRunner()(query).stdout.splitlines())
    installed = {tuple(words[1:]) for words in lines if words[0] == "installed"}
    assert {(p.name, p.version, p.architecture) for p in probe(THIS).apt} == installed
