"""Other people's programs: found, measured, and what to do about a missing one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.cli.make import name_runtime
from envbuild.errors import HostError
from envbuild.run import LocalRunner
from envbuild.settings import Settings, load_settings
from envbuild.store.units import join_numbers
from envbuild.tools import KINDS, find_tool, install_hint, package_hint
from tests.support import ScriptedRunner, needs, settings_with


@pytest.mark.parametrize(
    ("name", "said", "version"),
    [
        ("mksquashfs", "mksquashfs version 4.5.1 (2022/03/17)\ncopyright (C) 2022 …\n", (4, 5, 1)),
        ("mksquashfs", "mksquashfs version 4.7 (2025/06/03)\n", (4, 7)),
        ("mmdebstrap", "mmdebstrap 1.3.5\n", (1, 3, 5)),
        ("apt-get", "apt 2.6.1 (amd64)\n", (2, 6, 1)),
    ],
)
def test_versions(tmp_path: Path, name: str, said: str, version: tuple[int, ...]) -> None:
    tool = find_tool(name, settings_with(tmp_path, name), ScriptedRunner({name: (0, said, "")}))
    assert (tool.path, tool.version) == (tmp_path / "bin" / name, version)
    assert tool.version_text == ".".join(map(str, version))


def test_a_version_told_with_a_failing_exit_is_read(tmp_path: Path) -> None:
    """unsquashfs 4.5 does so."""
    runner = ScriptedRunner({"unsquashfs": (1, "unsquashfs version 4.5.1 (2022/03/17)\n", "")})
    assert find_tool("unsquashfs", settings_with(tmp_path, "unsquashfs"), runner).version == (
        4,
        5,
        1,
    )


def test_a_program_that_tells_no_version_is_not_started(tmp_path: Path) -> None:
    runner = ScriptedRunner({})
    assert find_tool("newuidmap", settings_with(tmp_path, "newuidmap"), runner).version == ()
    assert runner.calls == []


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        find_tool("mksquashfs", settings_with(tmp_path), ScriptedRunner({}))
    assert str(caught.value) == "mksquashfs was not found on PATH"
    assert caught.value.hint == (
        "as root: install what Debian has in its package squashfs-tools\n"
        "on a login node: module avail, or ask its staff for squashfs-tools"
    )


def test_too_old(tmp_path: Path) -> None:
    runner = ScriptedRunner({"mksquashfs": (0, "mksquashfs version 4.3 (2014/05/12)\n", "")})
    with pytest.raises(HostError) as caught:
        find_tool("mksquashfs", settings_with(tmp_path, "mksquashfs"), runner)
    assert (
        str(caught.value)
        == f"{tmp_path}/bin/mksquashfs: mksquashfs 4.3 is too old: 4.4 or newer is needed"
    )


def test_one_that_does_not_start(tmp_path: Path) -> None:
    runner = ScriptedRunner({"mmdebstrap": (127, "", "Can't locate Dpkg.pm in @INC\n")})
    with pytest.raises(HostError) as caught:
        find_tool("mmdebstrap", settings_with(tmp_path, "mmdebstrap"), runner)
    assert str(caught.value) == (
        f"{tmp_path}/bin/mmdebstrap --version: it printed no version: Can't locate Dpkg.pm in @INC"
    )


def test_uv_comes_with_envbuild(tmp_path: Path) -> None:
    tool = find_tool("uv", settings_with(tmp_path), LocalRunner())
    assert tool.version >= KINDS["uv"].minimum
    # pip installs none that is older
    assert f'"uv>={join_numbers(KINDS["uv"].minimum)}"' in (
        Path(__file__).parents[1] / "pyproject.toml"
    ).read_text("utf-8")
    assert "pip install --user envbuild" in install_hint("uv", settings_with(tmp_path))


def test_the_systems_own_installer_is_advised(tmp_path: Path) -> None:
    with_apt, other = settings_with(tmp_path, "apt-get"), {"PATH": "/nowhere"}
    staff = "\non a login node: module avail, or ask its staff for uidmap"
    assert install_hint("newuidmap", with_apt) == f"as root: apt-get install uidmap{staff}"
    assert (
        package_hint("uidmap", other)
        == f"as root: install what Debian has in its package uidmap{staff}"
    )


@pytest.mark.live
@needs(*(name for name in KINDS if name != "uv"))
@pytest.mark.parametrize("name", KINDS)
def test_real_ones(name: str, user_settings: Settings) -> None:
    assert find_tool(name, user_settings, LocalRunner()).version >= KINDS[name].minimum


@pytest.mark.parametrize("installed", ["apptainer", "singularity"])
def test_make_names_the_runtime_that_is_here(installed: str, tmp_path: Path) -> None:
    here = settings_with(tmp_path, installed)
    assert name_runtime(here) == installed
    assert name_runtime(replace(here, runtime="/opt/a/bin/apptainer")) == "/opt/a/bin/apptainer"


def test_a_machine_without_a_runtime_is_told_of_apptainer(tmp_path: Path) -> None:
    assert name_runtime(settings_with(tmp_path)) == "apptainer"


@pytest.mark.parametrize(
    "name", ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"]
)
def test_relative_folders_of_xdg_are_ignored(name: str, tmp_path: Path) -> None:
    """Else a stranger's folder would have the user's settings and store, once one is in it."""
    environment = {"HOME": str(tmp_path / "home"), "PATH": ""}
    plain = load_settings(environment, tmp_path)
    found = load_settings({**environment, name: "."}, tmp_path)
    assert found == plain
