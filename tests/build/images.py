"""What the live tests of images share."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from envbuild.run import Command, LocalRunner, Result
from tests.project import Project, shared_store, small_project

TOP = Path("v1")


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def copy_of(first: Project, folder: Path, *, layers: bool = False) -> Project:
    """The same project for another user, with a store that has the downloads and Debian roots, maybe the layers."""
    other = small_project(folder, folder / "store")
    shutil.copytree(first.folder / "lockfiles", other.folder / "lockfiles")
    (other.store / TOP).mkdir(parents=True)
    for name in ("artifacts", "bases", "facts", *(["layers", "built"] if layers else [])):
        (other.store / TOP / name).symlink_to(shared_store() / TOP / name)
    return other


def apptainer(project: Project, *arguments: str) -> Result:
    return LocalRunner()(
        Command(argv=("apptainer", *arguments), env=project.env, timeout=600), check=False
    )


def line_of(text: str, key: str) -> str:
    return next(line for line in text.splitlines() if f'"{key}"' in line)


def signed_and_verified(image: Path, folder: Path) -> None:
    """Sign an image with a key made for it in a folder, and have the runtime verify it."""
    project = Project(folder / "p")
    project.env.update({"APPTAINER_KEYSDIR": str(folder / "keys"), "HOME": str(folder)})
    made = apptainer(
        project, "key", "newpair", "-N", "a", "-E", "a@b.invalid", "-P", "", "--push=false"
    )
    assert made.code == 0, made.stderr
    for verb in (("sign",), ("verify", "--local")):
        done = apptainer(project, *verb, str(image))
        assert done.code == 0, done.stderr
