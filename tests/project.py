"""A small real project for live tests, and a way to run the command line in it as a user with an empty HOME would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from envbuild.run import Command, LocalRunner, Result

SUMMARY = "one wheel, one source package, one Debian package"
SMALL = f"""\
[recipe]
name = "small"
summary = "{SUMMARY}"

[base]
bootstrap = "debian:bookworm"

[python]
dependencies = [
  "six==1.16.0",
  "docopt==0.6.2",  # published as source only
]

[system]
packages = ["hello-traditional"]

[check]
imports = ["six", "docopt"]
script = "check.py"

[run]
command = ["python", "-c", "print('the default command')"]
"""
CHECK = "import docopt, six\nprint('checked', six.__version__, docopt.__version__)\n"


def shared_store() -> Path:
    """A store that live tests of one user share between runs: what it keeps is named by its content."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "envbuild-tests"


LISTENING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from envbuild.__main__ import main; main()"
)
"""The command line for tests that press Ctrl-C: a suite started in the background makes its children ignore it."""


class Project:
    """A folder with a recipe, an empty HOME and a store."""

    def __init__(self, folder: Path, store: Path | None = None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.store = store or shared_store()
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(
                ("ENVBUILD_", "XDG_", "APPTAINER", "SINGULARITY", "UV_SYSTEM_CERTS")
            )
        }
        self.env = {**kept, "HOME": str(self.home), "ENVBUILD_STORE": str(self.store)}

    def read_shared_store(self) -> None:
        """Take from the shared store what it has, and write into one's own: others' images stay as they are."""
        self.env["ENVBUILD_STORE_BELOW"] = str(shared_store())

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *arguments: str, timeout: float = 600, **env: str) -> Result:
        argv = (sys.executable, "-m", "envbuild", *arguments)
        return LocalRunner()(
            Command(argv=argv, cwd=self.folder, env={**self.env, **env}, timeout=timeout),
            check=False,
        )

    def succeed(self, *arguments: str, timeout: float = 600, **env: str) -> Result:
        """Run the command line; fail with all that it said where its code is not 0."""
        done = self.run(*arguments, timeout=timeout, **env)
        assert done.code == 0, done.stdout + done.stderr
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command line as a terminal would, to be interrupted."""
        argv = [sys.executable, "-c", LISTENING, *arguments]
        return subprocess.Popen(
            argv, cwd=self.folder, env=self.env, stderr=subprocess.PIPE, text=True
        )


def small_project(folder: Path, store: Path | None = None) -> Project:
    project = Project(folder, store)
    project.write("recipes/small.toml", SMALL)
    project.write("recipes/check.py", CHECK)
    return project
