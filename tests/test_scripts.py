"""The set-up scripts: clean shell, unattended, and a second run changes nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.support import needs

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted([*ROOT.glob("scripts/*.sh"), ROOT / ".ci/run"])
INSIDE = ROOT / "envbuild/wrap/scripts/list_commands.sh"
"""Runs in images, by whatever sh they have."""
SETUP = ROOT / "scripts/setup-debian.sh"
root_only = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can bind files over those of the system"
)


def bash(*arguments: str, **variables: str) -> Result:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "CI": "true",
        **variables,
    }
    return LocalRunner()(
        Command(argv=("bash", *arguments), env=env, cwd=Path("/"), timeout=300), check=False
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_is_executable_strict_and_parses(script: Path) -> None:
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert os.access(script, os.X_OK)
    assert bash("-n", str(script)).stderr == ""


@pytest.mark.live
@needs("shellcheck")
def test_shellcheck_has_nothing_to_say() -> None:
    result = LocalRunner()(Command(argv=("shellcheck", *map(str, [*SCRIPTS, INSIDE]))), check=False)
    assert result.stdout == ""


def test_ci_runs_what_people_run() -> None:
    commands = [
        line for line in (ROOT / ".ci/run").read_text().splitlines() if not line.startswith("#")
    ]
    assert commands[-1] == "exec bash scripts/test.sh"


def test_help_names_every_option() -> None:
    text = bash(str(SETUP), "--help").stdout
    assert text.startswith("Set up a Debian 12 or 13 machine (or Ubuntu 22.04, 24.04) for envbuild")
    for word in ("--system-only", "--with PACKAGE", "ENVBUILD_VENV", "PYTHON"):
        assert word in text


def test_unknown_option() -> None:
    result = bash(str(SETUP), "--nosuch")
    assert (result.code, result.stderr) == (1, "setup: unknown option --nosuch\n")


def test_a_machine_without_apt(tmp_path: Path) -> None:
    for name in ("id", "dirname", "bash"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    result = bash(str(SETUP), PATH=str(tmp_path))
    assert (result.code, result.stderr) == (
        1,
        "setup: this is for Debian and Ubuntu; elsewhere: docs/platforms.md\n",
    )


def test_find_python_passes_over_one_that_is_too_old_or_missing(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    script = str(ROOT / "scripts/find-python.sh")
    assert (
        bash(script, PYTHON=f"{tmp_path}/gone {old} {sys.executable}").stdout
        == f"{sys.executable}\n"
    )
    result = bash(script, PYTHON=str(old))
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("no Python 3.10 or newer with its venv module was found")


@root_only
@needs("setpriv")
def test_root_takes_a_python_that_every_user_can_start(tmp_path: Path) -> None:
    private = tmp_path / "private/python3"
    private.parent.mkdir(mode=0o700)
    private.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    private.chmod(0o755)
    script, system = str(ROOT / "scripts/find-python.sh"), "/usr/bin/python3"
    assert bash(script, PYTHON=f"{private} {system}").stdout == f"{system}\n"
    alone = bash(script, PYTHON=str(private))
    assert (alone.code, alone.stdout) == (0, f"{private}\n")
    assert alone.stderr.startswith(f"other users cannot start {private}")


def test_fresh_knows_the_commands_of_readme() -> None:
    text = bash(str(ROOT / "scripts/fresh.sh"), "--help").stdout
    assert text.startswith("Run README's commands as new users do")
    commands = [
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("bash scripts/")
    ]
    assert commands == ["bash scripts/setup-debian.sh make keras-bert", "bash scripts/test.sh"]


JAMMY = """\
PRETTY_NAME="Ubuntu 22.04.5 LTS"
NAME="Ubuntu"
VERSION_ID="22.04"
VERSION="22.04.5 LTS (Jammy Jellyfish)"
VERSION_CODENAME=jammy
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME=jammy
"""
NOBLE = """\
PRETTY_NAME="Ubuntu 24.04.4 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION="24.04.4 LTS (Noble Numbat)"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME=noble
LOGO=ubuntu-logo
"""
MINT = """\
NAME="Linux Mint"
ID=linuxmint
ID_LIKE="ubuntu debian"
PRETTY_NAME="Linux Mint 22.3"
VERSION_ID="22.3"
VERSION_CODENAME=zena
UBUNTU_CODENAME=noble
"""
POP = """\
NAME="Pop!_OS"
VERSION="22.04 LTS"
ID=pop
ID_LIKE="ubuntu debian"
VERSION_ID="22.04"
PRETTY_NAME="Pop!_OS 22.04 LTS"
"""
"""/etc/os-release of these systems, shortened by lines that nothing reads."""


def set_up_ubuntu(tmp_path: Path, os_release: str, absent: str = "nothing") -> Result:
    """Run the set-up as on Ubuntu, where no command that names ``absent`` succeeds.

    The commands only: this machine is no Ubuntu, so those that install are replaced by ones that note their words.
    """
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name in (
        "awk",
        "bash",
        "cat",
        "chmod",
        "dirname",
        "env",
        "grep",
        "id",
        "stat",
        "tee",
        "true",
        "unshare",
    ):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    for name in ("add-apt-repository", "apt-get", "dpkg-query"):
        (programs / name).write_text(
            f'#!/bin/sh\necho {name} "$@" >>{calls}\ncase "$*" in *{absent}*) exit 100; esac\n'
        )
        (programs / name).chmod(0o755)
    (tmp_path / "os-release").write_text(os_release)
    for name in ("subuid", "subgid"):
        (tmp_path / name).write_text("root:100000:65536\n")
    targets = {"os-release": "/etc/os-release", "subuid": "/etc/subuid", "subgid": "/etc/subgid"}
    mounts = " && ".join(
        f"mount --bind {tmp_path}/{name} {target}" for name, target in targets.items()
    )
    script = f'{mounts} && PATH={programs} exec bash "$0" --system-only'
    argv = ("unshare", "-m", "sh", "-c", script, str(SETUP))
    return LocalRunner()(
        Command(argv=argv, env={"PATH": os.environ["PATH"], "HOME": "/"}, timeout=60), check=False
    )


@root_only
@needs("unshare", "awk")
def test_ubuntu_without_any_apptainer_says_what_to_do_by_hand(tmp_path: Path) -> None:
    result = set_up_ubuntu(tmp_path, JAMMY, absent="apptainer/ppa*|*singularity-container")
    assert result.code == 1
    assert "no Apptainer could be installed on Ubuntu 22.04." in result.stderr
    assert "sudo apt-get install ./apptainer_*.deb" in result.stderr


@root_only
@needs("unshare", "awk")
@pytest.mark.parametrize(
    ("os_release", "release"),
    [(JAMMY, "22.04"), (NOBLE, "24.04"), (MINT, "24.04"), (POP, "22.04")],
    ids=["jammy", "noble", "mint", "pop"],
)
def test_what_ubuntu_gets(tmp_path: Path, os_release: str, release: str) -> None:
    result, calls = set_up_ubuntu(tmp_path, os_release), tmp_path / "calls"
    assert result.code == 0, result.stderr
    installed = [line.split() for line in calls.read_text().splitlines() if " install " in line]
    assert {"mmdebstrap", "python3-venv", "uidmap", "debian-archive-keyring"} <= set(installed[0])
    assert "add-apt-repository --yes ppa:apptainer/ppa" in calls.read_text().splitlines()
    assert installed[1][-1] == "apptainer"
    assert f"setup: Ubuntu {release}: bases of Debian packages need" in result.stdout
    assert ("too old for bases of Debian packages" in result.stdout) == (release == "22.04")


@pytest.mark.live
@needs("apptainer", "apt-get", "mmdebstrap", "newuidmap", "unshare")
@root_only
class TestHere:
    """The system part on this machine, where everything is installed, in a private mount namespace."""

    def setup_with(self, folder: Path, subuid: str, **variables: str) -> Result:
        for name in ("subuid", "subgid"):
            (folder / name).write_text(subuid)
        mounts = " && ".join(
            f"mount --bind {folder}/{name} /etc/{name}" for name in ("subuid", "subgid")
        )
        return LocalRunner()(
            Command(
                argv=(
                    "unshare",
                    "-m",
                    "bash",
                    "-c",
                    f'{mounts} && exec bash "$0" --system-only',
                    str(SETUP),
                ),
                env={"PATH": os.environ["PATH"], "HOME": str(folder), "CI": "true", **variables},
                timeout=300,
            ),
            check=False,
        )

    def test_a_second_run_changes_nothing(self, tmp_path: Path) -> None:
        result = self.setup_with(tmp_path, "root:100000:65536\n")
        assert result.code == 0, result.stderr
        assert "installing" not in result.stdout
        assert "adding" not in result.stdout
        assert (tmp_path / "subuid").read_text() == "root:100000:65536\n"

    def test_ids_that_nobody_else_has(self, tmp_path: Path) -> None:
        result = self.setup_with(
            tmp_path, "ada:100000:65536\nbob:231072:65536\n", SUDO_USER="nobody"
        )
        assert result.code == 0, result.stderr
        expected = "ada:100000:65536\nbob:231072:65536\nroot:296608:65536\nnobody:362144:65536\n"
        assert (tmp_path / "subuid").read_text() == expected
        assert (tmp_path / "subgid").read_text() == expected
