"""The lines of a definition that install conda packages, and the programs it carries."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import runpy
import sys
from pathlib import Path

import msgspec
import pytest

from envbuild.lock.model import Lock, PythonPackage
from envbuild.lock.read import read_lock
from envbuild.plan.conda import CERTIFICATE, install_conda
from envbuild.plan.definition import plan_definition, plan_dockerfile
from envbuild.plan.dockerfile import render_dockerfile
from envbuild.plan.scripts.activate_conda import changed_variables
from envbuild.plan.shell import SCRIPTS
from envbuild.recipe.read import read_recipe
from envbuild.run import Command, LocalRunner, Result
from tests.conda.archives import Archive
from tests.conda.channels import serve
from tests.plan.carried import load_program

TOP = Path(__file__).parents[2]
LINKER = PythonPackage(
    name="py-rattler",
    version="0.28.0",
    group="build",
    file="py_rattler-0.28.0-cp310-abi3-manylinux_2_17_x86_64.whl",
    size=1,
    sha256="a" * 64,
)


def conda_lock(*build: PythonPackage) -> Lock:
    """A shipped lock with one conda package more."""
    lock = read_lock(TOP / "lockfiles/torch-mnist.lock")
    package = Archive(name="tool").locked(b"")
    python = (*lock.python, *build)
    return msgspec.structs.replace(lock, python=python, conda=(package,), channels=("lab",))


def test_definition_and_dockerfile_put_the_prefix_first() -> None:
    recipe, _ = read_recipe(TOP / "recipes/torch-mnist.toml")
    lock = conda_lock(LINKER)
    definition = plan_definition(recipe, lock)
    assert definition.path == ("/opt/env/bin",)
    assert dict(definition.environment)["CONDA_PREFIX"] == "/opt/env"
    text = "\n".join(definition.post)
    assert f"{lock.conda[0].sha256} lab linux-64/tool-1.0-h1_0.conda" in text
    assert text.index("fetch_conda.py") < text.index("install.py") < text.index("pip install")
    dockerfile = render_dockerfile(plan_dockerfile(recipe, lock))
    assert 'ENV PATH="/opt/env/bin:$PATH"\n' in dockerfile


def test_a_base_that_cannot_start_the_linker_is_told() -> None:
    lines = install_conda(conda_lock(), ())
    assert lines[-1] == "exit 1"
    assert "cannot start py-rattler" in lines[0]
    assert install_conda(read_lock(TOP / "lockfiles/torch-mnist.lock"), ()) == ()


@pytest.mark.parametrize("damaged", [False, True])
def test_packages_are_fetched_from_the_channel_and_verified(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Archive(name="tool").write(tmp_path / "served/lab/linux-64")
    sha256 = "0" * 64 if damaged else package.sha256
    (tmp_path / "conda.txt").write_text(f"{sha256} lab linux-64/{package.file}\n")
    (tmp_path / "out").mkdir()
    fetch = load_program("fetch_conda").main
    with serve(tmp_path / "served") as served:
        monkeypatch.setenv("ENVBUILD_CHANNEL_LAB", f"{served.url}/lab")
        if damaged:
            with pytest.raises(SystemExit, match="the lock says 0000"):
                fetch(str(tmp_path / "out"), str(tmp_path / "conda.txt"))
            return
        fetch(str(tmp_path / "out"), str(tmp_path / "conda.txt"))
    data = (tmp_path / "out" / package.file).read_bytes()
    assert hashlib.sha256(data).hexdigest() == package.sha256


def test_a_channel_without_an_address_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conda.txt").write_text("00 conda-forge noarch/a-1-0.conda\n")
    monkeypatch.delenv("ENVBUILD_CHANNEL_CONDA_FORGE", raising=False)
    with pytest.raises(SystemExit, match="set ENVBUILD_CHANNEL_CONDA_FORGE to the address"):
        load_program("fetch_conda").main(str(tmp_path), str(tmp_path / "conda.txt"))
    fetch = load_program("fetch_packages")
    monkeypatch.setattr(fetch, "passwords", {})
    monkeypatch.setenv("ENVBUILD_CHANNEL_LAB", "https://me:pa%20ss@lab.invalid/c/")
    assert fetch.named_address("CHANNEL", "lab", "the conda channel lab") == "https://lab.invalid/c"
    secret = fetch.passwords["lab.invalid"].split()[1]
    assert base64.b64decode(secret) == b"me:pa ss"


def test_activation_is_written_as_exports(tmp_path: Path) -> None:
    folder = tmp_path / "env/etc/conda"
    (folder / "activate.d").mkdir(parents=True)
    (folder / "env_vars.d").mkdir()
    (folder / "activate.d/a.sh").write_text('export DIR="$CONDA_PREFIX/x" WORDS=changed KEPT=no\n')
    (folder / "env_vars.d/a.json").write_text('{"WORDS": "1", "no name": "2"}')
    target = tmp_path / "d/91-conda.sh"
    main = runpy.run_path(str(SCRIPTS / "activate_conda.py"))["main"]
    main(str(tmp_path / "env"), str(target), "KEPT")
    assert target.read_text() == f"#!/bin/sh\nexport DIR={tmp_path}/env/x\nexport WORDS=changed\n"
    (folder / "activate.d/b.sh").write_text("exit 3\n")
    with pytest.raises(SystemExit, match="ended the shell"):
        main(str(tmp_path / "env"), str(target))
    assert [*changed_variables({}, {"A": "1"}, ())] == ["export A=1"]


def run_installer(folder: Path, prefix: Path, *archives: Archive) -> Result:
    """Install archives with the script that a definition carries."""
    files, listing, history = (folder / name for name in ("files", "list", "history"))
    rows = [archive.write(files) for archive in archives]
    listing.write_text("".join(f"{row.sha256} lab linux-64/{row.file}\n" for row in rows))
    history.touch()
    (folder / "nobody.pem").write_text(CERTIFICATE)
    script = TOP / "envbuild/plan/scripts/install_conda.py"
    words = (str(files), str(listing), str(prefix), str(history))
    command = Command(argv=(sys.executable, str(script), *words))
    return LocalRunner()(command, check=False)


def test_scripts_of_packages_run_in_their_order_or_end_the_build(tmp_path: Path) -> None:
    note = b'echo "%s $PKG_NAME $PKG_VERSION $PKG_BUILDNUM" >>"$PREFIX/share/order"\n'
    scripts = {
        f"bin/.a-{phase}-link.sh": note % phase.encode() + b"ls $PREFIX/bin >/dev/null\n"
        for phase in ("pre", "post")
    }
    base = Archive(
        name="z-base", files={"share/z": b"", "bin/.z-base-post-link.sh": note % b"post"}
    )
    later = Archive(name="a", files=scripts, depends=("z-base",))
    prefix = tmp_path / "prefix"
    done = run_installer(tmp_path, prefix, later, base)
    assert done.code == 0, done.stderr
    told = (prefix / "share/order").read_text().splitlines()
    assert told == ["post z-base 1.0 0", "pre a 1.0 0", "post a 1.0 0"]
    bad = Archive(name="bad", files={"bin/.bad-post-link.sh": b"echo no >&2\nexit 3\n"})
    done = run_installer(tmp_path, tmp_path / "second", bad)
    assert done.code == 1
    assert "the post-link script of bad failed" in done.stderr


def test_a_bases_own_environment_is_extended(tmp_path: Path) -> None:
    """py-rattler would remove what it is not told of."""
    import rattler

    prefix = tmp_path / "prefix"
    before = [
        Archive(name="tool", files={"bin/tool": b"old", "share/only": b""}),
        Archive(name="other", files={"bin/other": b"other"}),
    ]
    after = [
        Archive(name="tool", version="2.0", files={"bin/tool": b"new"}),
        Archive(name="more", files={"bin/more": b"more"}, depends=("tool",)),
    ]
    for archive in before:
        archive.write(tmp_path / "old")
    archives = [tmp_path / "old" / archive.file for archive in before]
    records = [asyncio.run(rattler.RepoDataRecord.from_package_archive(path)) for path in archives]
    asyncio.run(rattler.install(records, prefix, show_progress=False))
    (prefix / "conda-meta/history").write_text("==> old <==\n")
    kept = (prefix / "conda-meta/other-1.0-h1_0.json").read_bytes()
    (tmp_path / "history").write_text("==> new <==\n")
    assert run_installer(tmp_path, prefix, *after).code == 0
    assert {path.name for path in (prefix / "bin").iterdir()} == {"tool", "other", "more"}
    assert (prefix / "bin/tool").read_text() == "new"
    assert not (prefix / "share/only").exists()
    assert (prefix / "conda-meta/other-1.0-h1_0.json").read_bytes() == kept
    assert (prefix / "conda-meta/history").read_text() == "==> old <==\n==> new <==\n"
