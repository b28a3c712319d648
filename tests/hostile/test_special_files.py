"""What has no end, or waits for ever, where a verb reads or writes a file of the user's: an error, at once."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.cli import run_cli
from envbuild.errors import UsageError
from envbuild.store.atomic import refuse_special

ROOT = Path(__file__).parents[2]
RECIPE = '[recipe]\nname = "thing"\n[base]\nbootstrap = "debian:bookworm"\n'
SIGNERS = ("shelf", "add", "x", "git+https://x.invalid/a", "--allowed-signers", "@")
READ = (
    ("init", "@"),
    ("init", "app", "--for", "@"),
    ("lock", "thing", "--facts", "@"),
    ("lock", "@"),
    ("make", "--from-bundle", "@"),
    ("check", "@"),
    ("exec", "@", "--", "true"),
    ("job", "thing", "--on", "local", "--each", "@", "--", "true"),
    ("submit", "thing", "--on", "plai", "--env-file", "@", "--", "true"),
    ("job", "thing", "--on", "@", "--", "true"),
    ("job", "lint", "@"),
    ("base", "inspect", "docker-archive:@"),
    ("base", "inspect", "oci-archive:@"),
    ("base", "inspect", "oci:@"),
    ("add", "--dev", "other", "six", "--over", "@"),
    ("diff", "@", "@"),
    ("flatten", "@"),
    ("verify", "@"),
    ("explain", "@"),
    SIGNERS,
    ("site", "show", "@"),
)
WRITTEN = (
    ("make", "keras-bert", "-o", "@"),
    ("def", "keras-bert", "-o", "@"),
    ("export", "keras-bert", "--format", "requirements", "-o", "@"),
    ("bundle", "keras-bert", "-o", "@"),
    ("flatten", "./thing.sif", "-o", "@"),
    ("rebuild", "keras-bert", "-o", "@"),
)
KINDS = ("pipe", "socket", "device", "link to a device", "memory")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a recipe, and something that looks like its image."""
    folder = tmp_path / "project"
    for name in ("recipes", "app"):
        (folder / name).mkdir(parents=True)
    (folder / "recipes/thing.toml").write_text(RECIPE)
    (folder / "app/train.py").write_text("import six\n")
    (folder / "thing.sif").write_bytes(bytes(32) + b"SIF_MAGIC")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    digest = "envbuild.formats.sif_reader.image_digest"
    monkeypatch.setattr(digest, lambda *_, **__: "sha256:" + "1" * 64)
    return folder


@pytest.fixture(params=KINDS)
def special(request: pytest.FixtureRequest, project: Path) -> Path:
    """Something of each kind that is no plain file."""
    path = project / "special.toml"
    if request.param == "memory":  # calls itself a plain file
        return Path("/proc/self/mem")
    if request.param == "device":
        return Path("/dev/zero")
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("words", READ, ids=" ".join)
def test_is_not_read(
    words: tuple[str, ...], special: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_cli([word.replace("@", str(special)) for word in words])
    assert code == (125 if words[0] == "exec" else 6 if code == 6 else 2), capsys.readouterr().err
    assert [path.name for path in project.glob("recipes/*")] == ["thing.toml"]
    assert special.name in capsys.readouterr().err


@pytest.mark.parametrize("words", WRITTEN, ids=" ".join)
@pytest.mark.parametrize(
    "plant", [os.mkfifo, lambda path: path.symlink_to("/dev/null")], ids=("pipe", "device")
)
def test_no_new_file_takes_its_place(
    words: tuple[str, ...],
    plant: Callable[[Path], None],
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plant(project / "special")
    before = os.lstat(project / "special")
    for name in ("recipes", "lockfiles"):
        shutil.copytree(ROOT / name, project / name, dirs_exist_ok=True)
    assert run_cli([word.replace("@", "special") for word in words]) == 2
    assert "special: is no plain file" in capsys.readouterr().err
    after = os.lstat(project / "special")
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


def test_no_new_file_takes_a_place_among_devices() -> None:
    """All programs of the machine would read or write root's."""
    for name in ("stdout", "null", "envbuild.sif"):
        with pytest.raises(UsageError, match="is no plain file"):
            refuse_special(Path("/dev") / name)
