"""[files]: what a recipe copies into its image; nothing escapes, the same files give the same bytes."""

from __future__ import annotations

import shutil
import tarfile
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pytest

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.errors import StaleLockError, UsageError
from envbuild.lock.decide.decide import decide_lock
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.decide.project_files import require_files
from envbuild.lock.digest import lock_digest, recipe_digest
from envbuild.lock.model import Lock
from envbuild.lock.read import parse_lock
from envbuild.lock.staleness import stale_reasons
from envbuild.lock.write import write_lock
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition
from envbuild.recipe.model import Source
from envbuild.recipe.read import read_recipe
from envbuild.settings import load_settings
from tests.resolve.conftest import SyntheticIndex
from tests.support import quiet_context

FACTS = BaseFacts(
    image="docker://example/x:1",
    python="3.11.2",
    machine="x86_64",
    glibc="2.36",
    created="2024-06-01",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in {
        "labels.txt": "cat\n",
        "data/b.csv": "2\n",
        "data/a.csv": "1\n",
        "data/run.sh": "#!/bin/sh\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "data/run.sh").chmod(0o700)
    (folder / "data/empty").mkdir()
    (folder / "data/latest.csv").symlink_to("b.csv")
    (folder / "data/__pycache__").mkdir()
    return folder


@pytest.fixture
def context(tmp_path: Path) -> Context:
    index = SyntheticIndex(tmp_path / "index")
    index.wheel("uv", version("uv"))
    environment = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "ENVBUILD_INDEX": index.url,
        "TMPDIR": str(tmp_path),
    }
    environment |= {"ENVBUILD_STORE": str(tmp_path / "store"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    settings = load_settings(environment, tmp_path)
    return quiet_context(settings)


def source(project: Path, files: str) -> Source:
    path = project / "recipes/x.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'[recipe]\nname = "x"\n[base]\nimage = "docker://example/x:1"\n[files]\n{files}\n'
    )
    recipe, text = read_recipe(path)
    return Source(recipe=recipe, path=path, text=text, lock=project / "lockfiles/x.lock")


def locked(asked: Source, context: Context) -> Lock:
    return decide_lock(asked, LockOptions(), context, date(2026, 11, 21), facts=FACTS)


BOTH = '"labels.txt" = "/opt/labels.txt"\n"data" = "/opt/lab/data"'


def test_files_and_folders_are_locked_as_archives(project: Path, context: Context) -> None:
    lock = locked(source(project, BOTH), context)
    folder, file = lock.files
    assert (folder.source, folder.target, file.source) == ("data", "/opt/lab/data", "labels.txt")
    with tarfile.open(context.store.artifact(folder.sha256)) as tar:
        members = {
            member.name: (member.mode, member.uid, member.mtime, member.linkname) for member in tar
        }
    assert members == {
        "opt/lab/data/a.csv": (0o644, 0, 315532800, ""),
        "opt/lab/data/b.csv": (0o644, 0, 315532800, ""),
        "opt/lab/data/empty": (0o755, 0, 315532800, ""),
        "opt/lab/data/latest.csv": (0o777, 0, 315532800, "b.csv"),
        "opt/lab/data/run.sh": (0o755, 0, 315532800, ""),
    }
    assert parse_lock(write_lock(lock), "x.lock") == lock


def test_the_same_files_give_the_same_lock_and_others_another(
    project: Path, context: Context
) -> None:
    asked = source(project, BOTH)
    first = locked(asked, context)
    (project / "data/a.csv").touch()
    (project / "data/a.csv").chmod(0o600)
    assert locked(asked, context) == first
    (project / "data/a.csv").write_text("3\n")
    assert lock_digest(locked(asked, context)) != lock_digest(first)


def test_what_changed_is_told_and_what_was_lost_is_packed_again(
    project: Path, context: Context
) -> None:
    asked = source(project, BOTH)
    lock = locked(asked, context)
    shutil.rmtree(context.settings.store)
    require_files(asked, lock, context)
    assert all(
        context.store.artifact(entry.sha256).stat().st_size == entry.size for entry in lock.files
    )
    (project / "labels.txt").write_text("dog\n")
    with pytest.raises(
        StaleLockError, match=r"labels\.txt \(\[files\]\) was changed since it was locked"
    ):
        require_files(asked, lock, context)
    moved = source(project, '"labels.txt" = "/opt/other.txt"')
    assert stale_reasons(moved.recipe, lock) == (
        '[files] "data" was changed',
        '[files] "labels.txt" was changed',
    )
    bare = source(project, "")
    assert recipe_digest(bare.recipe) != lock.recipe_digest
    added = stale_reasons(asked.recipe, locked(bare, context))
    assert added == ('[files] "data" was changed', '[files] "labels.txt" was changed')


def test_the_definition_lays_them_before_the_recipes_own_lines(
    project: Path, context: Context
) -> None:
    asked = source(project, f"{BOTH}\n[system]\npost = ['ls /opt']")
    lock = locked(asked, context)
    text = render_definition(plan_definition(asked.recipe, lock))
    assert text.index(f'{lock.files[0].sha256}.tar"  # /opt/lab/data') < text.index("ls /opt")
    assert "files of the project are on no index; build with envbuild make" in text


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ('"../x" = "/opt/x"', "../x"),
        ('"/etc/passwd" = "/opt/x"', "/etc/passwd"),
        ('"labels.txt" = "opt/x"', "opt/x"),
        ('"labels.txt" = "/opt/../etc/x"', "/opt/../etc/x"),
        ('"labels.txt" = "/"', "/"),
        ('"labels.txt" = "/tmp/x"', "/tmp/x is not a place for files"),
        ('"labels.txt" = "/.singularity.d/runscript"', "is not a place for files"),
        ('"labels.txt" = "/opt/x"\n"data" = "/opt/x"', "both go to /opt/x"),
    ],
)
def test_bad_lines_are_refused_when_they_are_read(files: str, what: str, project: Path) -> None:
    with pytest.raises(UsageError) as caught:
        source(project, files)
    assert what in str(caught.value)


def test_what_is_not_there_and_what_leads_out(project: Path, context: Context) -> None:
    with pytest.raises(UsageError, match=r'"absent" is not there'):
        locked(source(project, '"absent" = "/opt/x"'), context)
    (project / "out").symlink_to("/etc")
    with pytest.raises(UsageError, match='"out" is a link that leaves the project'):
        locked(source(project, '"out" = "/opt/x"'), context)
    (project / "data/out").symlink_to("../labels.txt")
    with pytest.raises(UsageError, match="leads to "):
        locked(source(project, '"data" = "/opt/x"'), context)
    (project / "data/out").unlink()
    (project / "data/out").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="leads to /etc/passwd, out of what"):
        locked(source(project, '"data" = "/opt/x"'), context)


def test_a_lock_cannot_name_other_places(project: Path, context: Context) -> None:
    text = write_lock(locked(source(project, BOTH), context))
    for good, bad, key in (
        ("/opt/labels.txt", "/opt/../etc/x", "target"),
        ('"labels.txt"', '"../labels.txt"', "source"),
        ("/opt/labels.txt", "opt", "target"),
    ):
        with pytest.raises(UsageError, match=rf"files\.{key}: takes text that matches"):
            parse_lock(text.replace(good, bad), "x.lock")
