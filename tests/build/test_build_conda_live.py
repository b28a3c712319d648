"""A recipe with conda packages for real: solved, fetched from two mirrors, linked, its scripts run, activated, used."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.lock.read import read_lock
from tests.build.images import sha256
from tests.build.test_build_conda_link import MODULE, OLD, TOOL
from tests.conda.archives import Archive
from tests.conda.channels import Served, index, serve
from tests.conda.real_python import MINOR, has_real_python, real_python
from tests.project import Project
from tests.support import needs

pytestmark = [
    pytest.mark.live,
    needs("apptainer", "mmdebstrap", "apt-get"),
    pytest.mark.skipif(not has_real_python(), reason="this machine's Python is not Debian's"),
]
POST = b"""#!/bin/bash
echo "$PKG_NAME $PKG_VERSION $PKG_BUILDNUM in $PREFIX" >"$PREFIX/share/post"
if (echo >/dev/tcp/127.0.0.1/PORT) 2>/dev/null; then echo reached >>"$PREFIX/share/post"; fi
echo 'a word of the package' >"$PREFIX/.messages.txt"
"""
PRE = b"""echo "$PKG_NAME" >"$PREFIX/share/pre"
"""
ACTIVATE = b"""export HOOK="$CONDA_PREFIX/hook"
if [[ -n $HOOK ]]; then export PATH="$PATH:$HOOK/bin"; fi
hook_mode() { :; }
"""
RECIPE = f"""\
[recipe]
name = "env"
[base]
bootstrap = "debian:bookworm"
[conda]
channels = ["lab"]
dependencies = ["python {MINOR}.*", "module", "tool", "hook"]
[python]
dependencies = ["six==1.16.0"]
[check]
imports = ["six", "module.where"]
"""


def packages(port: str) -> tuple[Archive, ...]:
    hook = Archive(
        name="hook",
        files={
            "bin/.hook-pre-link.sh": PRE,
            "bin/.hook-post-link.sh": POST.replace(b"PORT", port.encode()),
            "etc/conda/activate.d/hook.sh": ACTIVATE,
            "etc/conda/env_vars.d/hook.json": b'{"HOOK_WORDS": "one two"}',
            "share/hook": b"",
        },
    )
    program = b"#!" + OLD + b"/bin/python -s\nimport six; print(six.__file__)\n"
    module = replace(
        MODULE,
        files={
            "site-packages/module/__init__.py": b"import sys\ndef main(): print(sys.prefix)\n",
            "site-packages/module/where.py": b"prefix = '" + OLD + b"'\n",
        },
        text=("site-packages/module/where.py",),
        programs=(),
        entry_points=("module = module:main",),
    )
    tool = replace(TOOL, files={**TOOL.files, "bin/tool": program}, depends=("python",))
    return (real_python(), hook, module, tool)


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("channel")
    with serve(folder) as served:
        for archive in packages(served.url.rpartition(":")[2]):
            archive.write(folder / "lab" / archive.subdir)
        index(folder / "lab")
        # a mirror that has the list of the files, and none of them
        shutil.copytree(folder / "lab", folder / "half", ignore=shutil.ignore_patterns("*.conda"))
        yield served


@pytest.fixture(scope="module")
def made(channel: Served, tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("conda") / "p")
    # the first mirror has none of the files
    mirrors = f'["{channel.url}/half", "{channel.url}/lab"]'
    project.write("home/.config/envbuild/config.toml", f"[channels]\nlab = {mirrors}\n")
    project.write("recipes/env.toml", RECIPE)
    for verb in ("lock", "make"):
        done = project.succeed(verb, "env")
    project.write("told", done.stderr)
    return project


def run(project: Project, *words: str) -> str:
    done = project.succeed("exec", "env", "--", *words)
    return done.stdout


def test_programs_run_in_the_prefix(made: Project) -> None:
    assert run(made, "module") == "/opt/env\n"
    assert run(made, "tool") == f"/opt/env/lib/python{MINOR}/site-packages/six.py\n"
    code = "import module.where as w; print(w.prefix, w.__cached__)"
    tag = f"cpython-{MINOR.replace('.', '')}"
    folder = f"/opt/env/lib/python{MINOR}/site-packages/module"
    assert run(made, "python", "-c", code) == f"/opt/env {folder}/__pycache__/where.{tag}.pyc\n"


def test_scripts_ran_without_a_network(made: Project) -> None:
    assert run(made, "cat", "/opt/env/share/pre") == "hook\n"
    assert run(made, "cat", "/opt/env/share/post") == "hook 1.0 0 in /opt/env\n"
    assert "messages" not in run(made, "ls", "-a", "/opt/env")


def test_what_activating_does_is_there_without_it(made: Project) -> None:
    told = run(made, "sh", "-c", 'echo "$HOOK $HOOK_WORDS $PATH $CONDA_PREFIX"').split(" ")
    assert told[:3] == ["/opt/env/hook", "one", "two"]
    assert told[3].startswith("/opt/env/bin:/usr/")
    assert told[3].endswith(":/opt/env/hook/bin")
    assert told[4] == "/opt/env\n"
    assert (
        "no image can keep: hook_mode (a function or alias)" in (made.folder / "told").read_text()
    )


def test_a_development_layer_goes_to_condas_python(made: Project) -> None:
    added = made.succeed("add", "--dev", "env", "humanize==4.9.0", "six==1.17.0")
    assert "six 1.17.0 of 1.16.0" in added.stdout
    code = "import humanize, six; print(humanize.__version__, six.__version__, humanize.__file__)"
    site = f"/opt/env/lib/python{MINOR}/site-packages"
    assert run(made, "python", "-c", code) == f"4.9.0 1.17.0 {site}/humanize/__init__.py\n"
    assert made.run("dev", "env", "--clear").code == 0


def test_another_user_gets_the_same_bytes(made: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "other", tmp_path / "store")
    for name in ("recipes/env.toml", "lockfiles/env.lock", "home/.config/envbuild/config.toml"):
        other.write(name, (made.folder / name).read_text())
    (other.store / "v1").mkdir(parents=True)
    for kept in ("bases", "facts"):
        (other.store / "v1" / kept).symlink_to(made.store / "v1" / kept)
    done = other.succeed("make", "env", "--no-check", LC_ALL="C", TZ="Asia/Tokyo")
    assert "link 4 conda packages" in done.stderr
    assert sha256(other.folder / "env.sif") == sha256(made.folder / "env.sif")
    lock = read_lock(made.folder / "lockfiles/env.lock")
    assert [package.name for package in lock.conda] == ["hook", "module", "python", "tool"]


@pytest.mark.slow
def test_the_definition_gives_the_same_environment(made: Project, tmp_path: Path) -> None:
    """Built by Apptainer from the written text, where py-rattler installs the packages."""
    other = Project(tmp_path / "other", made.store)
    for name in ("recipes/env.toml", "lockfiles/env.lock", "home/.config/envbuild/config.toml"):
        other.write(name, (made.folder / name).read_text())
    other.succeed("make", "env", "--mode", "fakeroot", "--no-check")
    # Debian's Python, which plays conda's, lets uv put six into another folder
    find = "cd /opt/env && find . -not -type d -not -name '*.pyc' -not -path '*conda-meta*' -not -path '*six*'"
    listing = f"{find} | LC_ALL=C sort | xargs sha256sum"
    assert run(other, "sh", "-c", listing) == run(made, "sh", "-c", listing)
    told = "cat /.singularity.d/env/91-conda.sh /opt/env/conda-meta/history; ls /opt/env/conda-meta"
    assert run(other, "sh", "-c", told) == run(made, "sh", "-c", told)
    assert run(other, "module") == "/opt/env\n"
