"""A lock with conda packages in others' forms, each read back by the tool it is for."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from envbuild.app.query.export import export_lock
from envbuild.errors import UsageError
from envbuild.lock.model import Lock
from envbuild.run import Command, LocalRunner
from tests.conda.channels import Served
from tests.conda.test_conda_lock import Project
from tests.job.test_job_faults import Said


@pytest.fixture
def project(tmp_path: Path, channels: Served) -> Project:
    return Project(tmp_path, channels)


def text_of(form: str, lock: Lock, project: Project) -> str:
    from envbuild.recipe.find import find_recipe

    return export_lock(form, find_recipe("cell", project.settings).recipe, lock, project.context)


def locked(project: Project) -> Lock:
    project.index.wheel("course", "1.0")
    return project.lock("requests", "python 3.12.*", "r-base", python=("course",))


def test_conda_lock_reads_and_renders_its_file(project: Project, channels: Served) -> None:
    lockfile = pytest.importorskip("conda_lock.lockfile")
    lock = locked(project)
    path = project.folder / "conda-lock.yml"
    path.write_text(text_of("conda-lock", lock, project))
    read = lockfile.parse_conda_lock_file(path)
    conda = {p.name: p for p in read.package if p.manager == "conda"}
    assert {name: p.hash.sha256 for name, p in conda.items()} == {
        p.name: p.sha256 for p in lock.conda
    }
    assert conda["requests"].dependencies == {"python": ">=3.9", "tqdm": ">=4"}
    assert [(p.name, p.version) for p in read.package if p.manager == "pip"] == [("course", "1.0")]
    tool = pytest.importorskip("conda_lock.conda_lock")
    rendered = tool.render_lockfile_for_platform(
        lockfile=read,
        extras=set(),
        kind="explicit",
        platform="linux-64",
        include_dev_dependencies=False,
    )
    urls = [line.partition("#")[0] for line in rendered if line.startswith(channels.url)]
    assert sorted(url.rpartition("/")[2] for url in urls) == sorted(p.file for p in lock.conda)


def test_conda_lock_takes_its_content_hash(project: Project, tmp_path: Path) -> None:
    """So `conda-lock --check-input-hash` solves nothing again."""
    pytest.importorskip("conda_lock")
    lock = locked(project)
    for form, name in (("conda-lock", "conda-lock.yml"), ("environment", "environment.yml")):
        (project.folder / name).write_text(text_of(form, lock, project))
    (project.folder / "names.json").write_text("{}")
    conda = project.folder / "conda"
    conda.write_text('#!/bin/sh\necho "conda 25.1.0"\n')
    conda.chmod(0o755)
    argv = (
        sys.executable,
        *("-m", "conda_lock", "lock", "--check-input-hash", "--platform", "linux-64"),
        *("--file", "environment.yml", "--lockfile", "conda-lock.yml", "--conda", str(conda)),
        *("--pypi_to_conda_lookup_file", (project.folder / "names.json").as_uri()),
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = LocalRunner()(
        Command(argv=argv, cwd=project.folder, env=environment, timeout=120), check=False
    )
    assert "Spec hash already locked for ['linux-64']. Skipping solve." in done.stderr


def test_rattler_reads_the_pixi_lock(project: Project) -> None:
    from rattler import LockFile

    lock = locked(project)
    path = project.folder / "pixi.lock"
    path.write_text(text_of("pixi", lock, project))
    environment = LockFile.from_path(path).default_environment()
    assert environment is not None
    [records] = environment.conda_repodata_records().values()
    assert {r.file_name: r.sha256.hex() for r in records if r.sha256} == {
        p.file: p.sha256 for p in lock.conda
    }
    [platform] = environment.platforms()
    assert "__cuda=13.0" in platform.virtual_packages
    [[wheel]] = environment.pypi_packages().values()
    [course] = lock.installed
    assert wheel.name == "course"
    assert wheel.hashes is not None
    assert wheel.hashes.sha256 is not None
    assert wheel.hashes.sha256.hex() == course.sha256


def test_rattler_installs_the_explicit_list(project: Project, tmp_path: Path) -> None:
    from rattler import RepoDataRecord, install
    from rattler.explicit_environment import ExplicitEnvironmentSpec

    lock = locked(project)
    listed = ExplicitEnvironmentSpec.from_str(text_of("conda-explicit", lock, project))
    assert str(listed.platform) == "linux-64"
    urls = [entry.url for entry in listed.packages]
    names = [url.rpartition("/")[2].partition("#")[0].rsplit("-", 2)[0] for url in urls]
    assert names.index("libthing") < names.index("r-base")
    assert names.index("tqdm") < names.index("requests")
    records = []
    for url in urls:
        address, _, md5 = url.partition("#")
        archive = tmp_path / address.rpartition("/")[2]
        archive.write_bytes(urllib.request.urlopen(address).read())
        assert hashlib.md5(archive.read_bytes()).hexdigest() == md5  # noqa: S324  (the form's own)
        records.append(asyncio.run(RepoDataRecord.from_package_archive(archive)))
    prefix = tmp_path / "prefix"
    asyncio.run(install(records=records, target_prefix=prefix))
    assert len(list((prefix / "conda-meta").glob("*.json"))) == len(lock.conda)


def test_an_environment_names_every_build(project: Project) -> None:
    lock = locked(project)
    data = yaml.safe_load(text_of("environment", lock, project))
    assert data["channels"] == ["forge", "nodefaults"]
    assert "r-base=4.4.1=0" in data["dependencies"]
    assert data["dependencies"][-1] == {"pip": ["course==1.0"]}
    parser = pytest.importorskip("conda_lock.src_parser.environment_yaml")
    path = project.folder / "environment.yml"
    path.write_text(text_of("environment", lock, project))
    names = project.folder / "names.json"
    names.write_text("{}")
    spec = parser.parse_environment_file(path, platforms=["linux-64"], mapping_url=names.as_uri())
    assert {d.name for d in spec.dependencies["linux-64"]} >= {p.name for p in lock.conda}


@pytest.mark.parametrize("form", ["pylock", "requirements"])
def test_a_list_for_pip_says_that_conda_packages_are_not_in_it(form: str, project: Project) -> None:
    lines: list[str] = []
    lock = project.lock("r-base")
    project.context = replace(project.context, report=Said(lines))
    text_of(form, lock, project)
    assert lines == ["2 conda packages are not in it: --format conda-explicit"]


def test_licences_are_told_by_channel(project: Project) -> None:
    lines = text_of("licenses", locked(project), project).splitlines()
    assert lines == [
        "channel\tlicence\tpackages",
        "forge\tGPL-2.0-or-later\tr-base",
        "forge\tMIT\tlibthing requests tqdm",
        "forge\tPython-2.0\tpython",
    ]


def test_a_token_of_this_machine_is_in_no_export(project: Project, channels: Served) -> None:
    lock = project.lock("samtools")
    config = project.folder / "config.toml"
    host = channels.url.removeprefix("http://")
    secret = f"http://ada:geheim@{host}/t/tk-123/forge"
    config.write_text(config.read_text().replace(f"{channels.url}/forge", secret))
    from envbuild.settings import load_settings
    from tests.conda.asking import context_of

    project.context = context_of(load_settings(project.settings.environment, project.folder))
    text = text_of("conda-explicit", lock, project)
    assert f"{channels.url}/forge/linux-64/samtools-1.21-0.conda#" in text
    assert "geheim" not in text
    assert "tk-123" not in text


def test_a_lock_without_conda_packages_is_refused(project: Project) -> None:
    project.index.wheel("course", "1.0")
    lock = project.lock("samtools")
    import msgspec

    with pytest.raises(UsageError, match="has no conda packages"):
        text_of("conda-lock", msgspec.structs.replace(lock, conda=()), project)


STAND_IN = """#!{python}
# takes the calls that conda-lock makes of conda: the list is installed by py-rattler
import asyncio, os, pathlib, shutil, sys, urllib.request
from rattler import RepoDataRecord, install
from rattler.explicit_environment import ExplicitEnvironmentSpec
words = sys.argv[1:]
if words[:1] == ["create"]:
    prefix = pathlib.Path(words[words.index("--prefix") + 1])
    records = []
    for entry in ExplicitEnvironmentSpec.from_path(words[words.index("--file") + 1]).packages:
        address = entry.url.partition("#")[0]
        archive = prefix.with_name(address.rpartition("/")[2])
        archive.write_bytes(urllib.request.urlopen(address).read())
        records.append(asyncio.run(RepoDataRecord.from_package_archive(archive)))
    asyncio.run(install(records, prefix))
elif words[:1] == ["run"]:
    shutil.copy(words[words.index("-r") + 1], pathlib.Path(__file__).with_name("wheels.txt"))
else:
    print("conda 25.1.0", flush=True)
os._exit(0)  # py-rattler's threads may end the process with SIGSEGV in Python's own clean-up
"""


def test_conda_lock_installs_what_it_is_given(project: Project, tmp_path: Path) -> None:
    """Its own install: rendered, handed to conda (which a stand-in plays), then pip's part with hashes."""
    pytest.importorskip("conda_lock")
    lock = locked(project)
    (project.folder / "conda-lock.yml").write_text(text_of("conda-lock", lock, project))
    conda = tmp_path / "conda"
    conda.write_text(STAND_IN.format(python=sys.executable))
    conda.chmod(0o755)
    prefix = tmp_path / "prefix"
    words = ("install", "--conda", str(conda), "--prefix", str(prefix), "conda-lock.yml")
    argv = (sys.executable, "-m", "conda_lock", *words)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = Command(argv=argv, cwd=project.folder, env=environment, timeout=180)
    done = LocalRunner()(command, check=False)
    assert done.code == 0, done.stderr
    made = {path.name for path in (prefix / "conda-meta").glob("*.json")}
    assert made == {f"{p.name}-{p.version}-{p.build}.json" for p in lock.conda}
    [course] = lock.installed
    [line] = (tmp_path / "wheels.txt").read_text().splitlines()
    assert line.startswith("course @ ")
    assert line.endswith(f"#sha256={course.sha256}")
