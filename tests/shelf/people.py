"""A small locked recipe, and people who share it: through the command line, or in this process, which is quicker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from envbuild.app.shelf.publish import gather_publication, publish, refuse_failed
from envbuild.cli import run_cli
from envbuild.context import Context
from envbuild.lock.digest import recipe_digest
from envbuild.lock.model import Lock, LockedBase, Packer, PythonPackage
from envbuild.lock.write import write_lock
from envbuild.recipe.read import read_recipe
from envbuild.run import Result
from envbuild.settings import Settings, load_settings
from envbuild.shelf.client import ShelfClient
from envbuild.shelf.config import ShelfConfig, add_shelf, backend_of, normal_url, open_shelf
from envbuild.shelf.fetch import VerifiedEntry, fetch_entry
from tests.project import Project
from tests.support import quiet_context

RECIPE = """\
[recipe]
name = "NAME"
summary = "A small recipe for shelves"

[base]
image = "docker://example.invalid/lab/torch:2.5"

[python]
dependencies = ["six==1.16.0"]

[check]
imports = ["six"]
script = "NAME/check.py"
"""
PACKAGE = PythonPackage(
    name="six", version="1.16.0", group="project", file="six-1.16.0-py2.py3-none-any.whl", size=11053,
    sha256="8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254", via=("(direct)",),
)  # fmt: skip


def lock_of(path: Path) -> Lock:
    """The lock of a recipe file, as if it had been resolved."""
    recipe, _ = read_recipe(path)
    base = LockedBase(
        reference=recipe.base.image or "", digest=f"sha256:{'1' * 64}", facts=f"sha256:{'2' * 64}", python="3.11.2",
        machine="x86_64", glibc="2.36", created="2024-11-01", epoch=1730419200, framework="torch 2.5.1", cuda="12.4.127",
    )  # fmt: skip
    return Lock(
        schema=1, name=recipe.name, platform="linux/amd64", recipe_digest=recipe_digest(recipe), proof="not run",
        direct=recipe.python.dependencies, base=base, packer=Packer(name="p", version="1", compressor="zstd", level=3),
        python=(PACKAGE,),
    )  # fmt: skip


def write_recipe(folder: Path, name: str, *, summary: str, text: str = RECIPE) -> Path:
    """Write a recipe with its check script and lock into a project folder."""
    path = folder / "recipes" / f"{name}.toml"
    script = folder / "recipes" / name / "check.py"
    lock = folder / "lockfiles" / f"{name}.lock"
    for file in (script, lock):
        file.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("print('checked')\n")
    path.write_text(text.replace("NAME", name).replace("A small recipe for shelves", summary))
    lock.write_text(write_lock(lock_of(path)))
    return path


class User(Project):
    """Somebody with a project folder, settings and a memory of his own."""

    def run(self, *arguments: str, timeout: float = 120, **env: str) -> Result:
        """Run the command line in a fork: all is imported already, which is most of the time of a short command."""
        told = [self.folder / name for name in (".stdout", ".stderr")]
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            code = 99
            try:
                signal.alarm(round(timeout))
                code = self._command_line(arguments, env, told)
            except BaseException:  # noqa: BLE001  (nothing of the test may run on in the child)
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out, err = (path.read_text("utf-8") for path in told)
        return Result(
            argv=arguments, code=code, stdout=out, stderr=err, seconds=time.monotonic() - started
        )

    def _command_line(
        self, arguments: tuple[str, ...], env: dict[str, str], told: list[Path]
    ) -> int:
        for number, path in enumerate(told, 1):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(handle, number)
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2)
        )
        os.environ.clear()
        os.environ.update({**self.env, **env})
        os.chdir(self.folder)
        return run_cli(arguments)

    def recipe(self, name: str, *, summary: str = "A small recipe for shelves") -> Path:
        """Write a locked recipe."""
        return write_recipe(self.folder, name, summary=summary)

    def ok(self, *arguments: str, **env: str) -> str:
        """Run a command that must succeed; return what it printed."""
        return self.succeed(*arguments, timeout=120, **env).stdout

    def refused(self, code: int, *arguments: str, **env: str) -> str:
        """Run a command that must fail with this code and without a traceback; return what it said."""
        result = self.run(*arguments, timeout=120, **env)
        assert result.code == code, (result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        return result.stderr


def user(folder: Path, shelf: str | None = None, *options: str) -> User:
    """A user, with the shelf ``lab`` added where one is given."""
    who = User(folder, folder / "store")
    who.env |= {"LOGNAME": folder.name, "GIT_CONFIG_NOSYSTEM": "1"}
    if shelf is not None:
        who.ok("shelf", "add", "lab", shelf, *options)
    return who


def bare(path: Path) -> str:
    """An empty bare repository."""
    subprocess.run(
        ["git", "init", "--quiet", "--bare", str(path)],
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    return str(path)


@dataclass(frozen=True, kw_only=True)
class Member:
    """Somebody who uses the shelf ``lab`` in this process."""

    folder: Path
    settings: Settings

    @property
    def context(self) -> Context:
        return quiet_context(self.settings)

    @property
    def library(self) -> ShelfClient:
        """The shelf, as it is now."""
        return open_shelf("lab", quiet_context(self.settings))

    def recipe(
        self, name: str = "small", summary: str = "A small recipe for shelves", text: str = RECIPE
    ) -> Path:
        return write_recipe(self.folder, name, summary=summary, text=text)

    def publish(self, name: str = "small", *, key: Path | None = None, image: bool = False) -> None:
        publication = gather_publication(name, self.context, shelf="lab", with_image=image, key=key)
        refuse_failed(publication)
        publish(publication, self.context)

    def take(self, name: str = "small", digest: str | None = None) -> VerifiedEntry:
        return fetch_entry(self.library, name, digest)


def member(
    folder: Path,
    place: str,
    *,
    signers: Path | None = None,
    require_signed: bool = False,
    name: str | None = None,
) -> Member:
    """A member of the lab; whoever comes first makes the shelf."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ENVBUILD_", "XDG_", "GIT_"))
    }
    env = {
        **kept,
        "HOME": str(folder),
        "ENVBUILD_STORE": str(folder / "store"),
        "LOGNAME": name or folder.name,
    }
    settings = load_settings({**env, "GIT_CONFIG_NOSYSTEM": "1"}, folder)
    url = normal_url(place, settings)
    backend_of(url, quiet_context(settings)).create()
    add_shelf(
        "lab",
        ShelfConfig(url=url, pinned=signers is not None, require_signed=require_signed),
        signers,
        settings,
    )
    return Member(folder=folder, settings=settings)


def new_key(folder: Path, name: str) -> Path:
    """A key pair without a passphrase."""
    path = folder / name
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@lab", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def allowed(path: Path, *keys: Path, options: str = "") -> Path:
    """An allowed signers file that names the keys by their file names."""
    lines = [
        f"{key.name}@lab {options}{' ' if options else ''}{key.with_suffix('.pub').read_text()}"
        for key in keys
    ]
    path.write_text("".join(lines))
    return path
