"""The development layer of an image: what its record says, and what real runs see of it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import envbuild as envbuild_package
from envbuild.app.dev.layer import clear_layer, read_record, record_path
from envbuild.errors import EnvbuildError, HostError, IntegrityError, SpaceError
from envbuild.store.layout import Store
from tests.project import Project
from tests.support import needs
from tests.tiny_image import AS_READER, open_folder

RECIPE = """\
# the course of 2026
[recipe]
name = "small"

[base]
bootstrap = "debian:bookworm"

[python]
dependencies = [
  "six==1.16.0",  # old and small
]
"""
MY_LIB = """\
[project]
name = "my-lib"
version = "0.3"
dependencies = ["six"]
[project.scripts]
my-lib = "my_lib:main"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose image is made."""
    project = Project(tmp_path_factory.mktemp("dev") / "a project")
    project.write("recipes/small.toml", RECIPE)
    project.succeed("make", "small", "--no-proof", "--no-check")
    return project


def python(project: Project, code: str, *options: str, name: str = "small") -> str:
    result = project.run("exec", *options, name, "--", "python3", "-c", code)
    return result.stdout.strip() if result.code == 0 else result.stderr


@pytest.mark.live
@needs("apptainer", "mmdebstrap")
class TestRealLayer:
    def test_a_package_is_tried_and_dropped(self, made: Project) -> None:
        before = (made.folder / "small.sif").read_bytes()
        added = made.succeed("add", "--dev", "small", "humanize==4.9.0")
        assert "humanize 4.9.0" in added.stdout
        again = made.run("add", "--dev", "six")
        assert "there    six 1.16.0: in the image already" in again.stdout, again.stderr
        code = "import humanize, six; print(humanize.__version__, six.__version__)"
        assert python(made, code) == "4.9.0 1.16.0"
        assert "No module named" in python(made, code, name="./small.sif")
        job = ("submit", "--on", "local", "--wait", "small", "--", "python3", "-c", code)
        submitted = made.succeed(*job)
        assert "4.9.0 1.16.0" in submitted.stdout
        assert "humanize==4.9.0" in made.run("dev", "small").stdout
        assert "humanize==4.9.0" in made.run("list").stdout
        assert made.run("dev", "small", "--clear").code == 0
        assert "No module named" in python(made, code)
        assert (made.folder / "small.sif").read_bytes() == before
        assert not list(made.folder.glob("*.dev*"))

    def test_a_package_for_one_run(self, made: Project) -> None:
        code = "import humanize; print(humanize.__version__)"
        assert python(made, code, "--with", "humanize==4.9.0") == "4.9.0"
        assert not list(made.folder.glob("*.dev*"))

    def test_a_project_is_used_from_its_folder(self, made: Project, tmp_path: Path) -> None:
        lib = tmp_path / "meine Bücher"
        (lib / "src/my_lib").mkdir(parents=True)
        (lib / "pyproject.toml").write_text(MY_LIB, "utf-8")
        module = lib / "src/my_lib/__init__.py"
        module.write_text("def main(): print('first')\n", "utf-8")
        (tmp_path / "link").symlink_to(lib)
        made.succeed("add", "--dev", "small", "-e", str(tmp_path / "link"))
        assert made.run("exec", "small", "--", "my-lib").stdout == "first\n"
        module.write_text("def main(): print('second')\n", "utf-8")
        assert made.run("exec", "small", "--", "my-lib").stdout == "second\n"
        lib.rename(tmp_path / "elsewhere")
        gone = made.run("exec", "small", "--", "true")
        assert gone.code == 125
        assert "the folder of my-lib" in gone.stderr
        made.run("dev", "small", "--clear")

    def test_layer_replaces_a_package_of_the_image(self, made: Project) -> None:
        added = made.succeed("add", "--dev", "small", "six==1.17.0")
        assert "six 1.17.0 of 1.16.0" in added.stdout
        code = (
            "import importlib.metadata as m, six; "
            "print(six.__version__, [one.version for one in m.distributions(name='six')])"
        )
        assert python(made, code) == "1.17.0 ['1.17.0']"
        assert python(made, code, name="./small.sif") == "1.16.0 ['1.16.0']"
        checked = made.run("check", "small", "--json")
        assert checked.code == 0, checked.stdout
        made.run("dev", "small", "--clear")

    def test_eight_ranks_read_one_layer_at_once(self, made: Project) -> None:
        assert made.run("add", "--dev", "small", "humanize==4.9.0").code == 0
        argv = (sys.executable, "-m", "envbuild", "exec", "small", "--", "python3", "-c")
        line = (*argv, "import humanize; print(humanize.__version__)")
        assert at_once(line, 8, cwd=made.folder, env=made.env) == ["4.9.0\n"] * 8
        made.run("dev", "small", "--clear")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_an_ordinary_user_does_all_of_it(self, made: Project) -> None:
        folder, source = open_folder() / "dev", open_folder() / "dev-source"
        for old in (folder, source):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(made.folder, folder, ignore=shutil.ignore_patterns("home"))
        store = folder / "store"
        store.mkdir()
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, 65534)
        env = {**made.env, "HOME": str(folder), "ENVBUILD_STORE": str(store)}
        # the runtime mounts a file of ours, and this source tree may be closed to other users
        shutil.copytree(Path(envbuild_package.__file__).parent, source / "envbuild")
        env["PYTHONPATH"] = str(source)
        envbuild = (*AS_READER, sys.executable, "-m", "envbuild")
        add = (*envbuild, "add", "--dev", "small", "humanize==4.9.0")
        assert "humanize 4.9.0" in at_once(add, 1, cwd=folder, env=env)[0]
        enter = (*envbuild, "exec", "small", "--", "python3", "-c")
        line = (*enter, "import humanize, os; print(humanize.__version__, os.getuid())")
        assert at_once(line, 4, cwd=folder, env=env) == ["4.9.0 65534\n"] * 4
        for old in (folder, source):
            shutil.rmtree(old)

    @pytest.mark.parametrize("seconds", [1.2])
    def test_a_kill_leaves_the_layer_that_was_there(self, made: Project, seconds: float) -> None:
        assert made.run("add", "--dev", "small", "humanize==4.9.0").code == 0
        argv = [sys.executable, "-m", "envbuild", "add", "--dev", "small", "six==1.17.0"]
        process = subprocess.Popen(
            argv,
            cwd=made.folder,
            env=made.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(seconds)
        process.kill()
        process.wait()
        found = python(made, "import humanize, six; print(humanize.__version__, six.__version__)")
        assert found in ("4.9.0 1.16.0", "4.9.0 1.17.0")
        made.run("dev", "small", "--clear")
        # what the killed one had begun has a name of its own, until the store is cleared
        assert made.run("store", "gc").code == 0
        assert not list(made.folder.glob("*.dev*"))

    def test_projects_go_into_jobs(self, made: Project, tmp_path: Path) -> None:
        lib = tmp_path / "a,b: c"
        lib.mkdir()
        (lib / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n')
        (lib / "mine.py").write_text("value = 7\n")
        assert made.run("add", "--dev", "small", "-e", str(lib)).code == 0
        line = ("submit", "--on", "local", "--wait", "small", "--", "python3", "-c")
        submitted = made.run(*line, "import mine; print('value', mine.value)")
        assert "value 7" in submitted.stdout, submitted.stderr
        made.run("dev", "small", "--clear")

    def test_an_image_that_changed_is_refused_with_what_to_do(self, made: Project) -> None:
        assert made.run("add", "--dev", "small", "humanize==4.9.0").code == 0
        path = record_path(made.folder, "small")
        text = path.read_text()
        digest = re.search(r"sha256:[0-9a-f]{64}", text)
        assert digest is not None
        path.write_text(text.replace(digest[0], f"sha256:{'0' * 64}", 1))
        stranger = made.run("exec", "small", "--", "true")
        assert stranger.code == 125
        assert "came with the folder" in stranger.stderr
        note = hashlib.sha256(path.read_bytes()).hexdigest()
        (made.store / "v1/dev" / f"{note}.record").touch()
        refused = made.run("exec", "small", "--", "true")
        assert refused.code == 125
        assert "made over another image" in refused.stderr
        assert "envbuild add --dev small" in refused.stderr
        assert made.run("exec", "./small.sif", "--", "true").code == 0
        assert made.run("add", "--dev", "small").code == 0
        assert python(made, "import humanize; print(humanize.__version__)") == "4.9.0"
        made.run("dev", "small", "--clear")

    def test_over_an_image_elsewhere(self, made: Project, tmp_path: Path) -> None:
        site = tmp_path / "site, of: all.sif"
        shutil.copy(made.folder / "small.sif", site)
        site.chmod(0o444)
        user = Project(tmp_path / "user", made.store)
        user.succeed("add", "--dev", "--over", str(site), "ours", "humanize==4.9.0")
        code = "import humanize, six; print(humanize.__version__, six.__version__)"
        assert python(user, code, name="ours") == "4.9.0 1.16.0"
        assert not list(user.folder.glob("*.sif"))
        both = "import humanize, toolz; print(humanize.__version__, toolz.__version__)"
        assert python(user, both, "--with", "toolz==1.0.0", name="ours") == "4.9.0 1.0.0"
        job = ("submit", "--on", "local", "--wait", "ours", "--", "python3", "-c", code)
        submitted = user.succeed(*job)
        assert "\n4.9.0 1.16.0\n" in submitted.stdout
        assert "is taken" in made.run("add", "--dev", "--over", str(site), "small", "x").stderr

    def test_a_folder_whose_name_the_runtime_would_split(
        self, made: Project, tmp_path: Path
    ) -> None:
        user = Project(tmp_path / 'user, "one"', made.store)
        user.env["HOME"] = str(tmp_path)
        add = ("add", "--dev", "--over", str(made.folder / "small.sif"), "ours", "humanize==4.9.0")
        user.succeed(*add)
        assert python(user, "import humanize; print(humanize.__version__)", name="ours") == "4.9.0"

    def test_a_site_changes_the_image_below(self, made: Project, tmp_path: Path) -> None:
        site, user = tmp_path / "site.sif", Project(tmp_path / "user", made.store)
        site.write_bytes(b"no image at all")
        add = ("add", "--dev", "--over", str(site), "ours", "humanize==4.9.0")
        assert "this is not an image" in user.run(*add).stderr
        shutil.copy(made.folder / "small.sif", site)
        assert user.run(*add).code == 0
        site.unlink()
        assert user.run("exec", "ours", "--", "true").code == 125
        other = Project(tmp_path / "other", made.store)
        other.write("recipes/small.toml", RECIPE.replace("1.16.0", "1.17.0"))
        assert other.run("make", "small", "--no-proof", "--no-check").code == 0
        shutil.copy(other.folder / "small.sif", site)
        changed = user.run("submit", "--on", "local", "ours", "--", "true")
        assert changed.code == 4
        assert "made over another image" in changed.stderr
        assert user.run("add", "--dev", "ours").code == 0
        assert python(user, "import humanize; print(humanize.__version__)", name="ours") == "4.9.0"
        site.unlink()
        gone = user.run("exec", "ours", "--", "true")
        assert gone.code == 125
        assert "the image below the layer ours is gone" in gone.stderr
        assert user.run("dev", "ours", "--clear").code == 0

    def test_without_fuse_a_whole_image_is_made(self, made: Project, tmp_path: Path) -> None:
        runtime = tmp_path / "apptainer"
        runtime.write_text(
            '#!/bin/bash\ncase "$*" in *--overlay*) echo "FATAL: no squashfuse" >&2; exit 255;; esac\n'
            f'exec {shutil.which("apptainer")} "$@"\n'
        )
        runtime.chmod(0o755)
        added = made.succeed(
            "add", "--dev", "small", "humanize==4.9.0", ENVBUILD_RUNTIME=str(runtime)
        )
        assert "FATAL: no squashfuse" in added.stderr
        assert "a whole image is made instead" in added.stderr
        code = "import humanize, six; print(humanize.__version__)"
        assert python(made, code) == "4.9.0"
        made.run("dev", "small", "--clear")
        assert not list(made.folder.glob("*.dev*"))


@pytest.mark.live
@needs("apptainer", "mmdebstrap")
class TestRealRecipe:
    @pytest.fixture
    def own(self, made: Project, tmp_path: Path) -> Project:
        """The project made before, copied."""
        project = Project(tmp_path / "own", made.store)
        for name in ("recipes/small.toml", "lockfiles/small.lock", "small.sif"):
            (project.folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(made.folder / name, project.folder / name)
        return project

    def test_a_promoted_image_has_the_bytes_of_one_that_never_had_the_layer(
        self, own: Project, tmp_path: Path
    ) -> None:
        assert own.run("add", "--dev", "small", "humanize==4.9.0").code == 0
        own.succeed("promote", "small")
        assert '  "six==1.16.0",  # old and small\n  "humanize==4.9.0",\n' in (
            own.folder / "recipes/small.toml"
        ).read_text("utf-8")
        assert not list(own.folder.glob("*.dev*"))
        fresh = Project(tmp_path / "fresh", own.store)
        wanted = RECIPE.replace("small\n]", 'small\n  "humanize==4.9.0",\n]')
        fresh.write("recipes/small.toml", wanted)
        assert fresh.run("make", "small", "--no-proof").code == 0
        images = [project.folder / "small.sif" for project in (own, fresh)]
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in images]
        assert digests[0] == digests[1]

    def test_a_promoted_project_is_locked_without_its_layer(
        self, own: Project, tmp_path: Path
    ) -> None:
        own.write("pyproject.toml", '[project]\nname = "mine"\nversion = "1"\n')
        own.write("mine.py", "value = 7\n")
        shutil.rmtree(own.home)
        home = str(tmp_path)  # not in the project, whose files are all locked
        assert own.run("add", "--dev", "small", "-e", ".", HOME=home).code == 0
        own.succeed("promote", "small", "--no-make", HOME=home)
        assert own.run("dev", "small", "--clear", HOME=home).code == 0
        own.succeed("lock", "small", "--check", HOME=home)

    def test_add_and_remove_change_recipe_lock_and_image(self, own: Project) -> None:
        before = (own.folder / "recipes/small.toml").read_text()
        added = own.succeed("add", "small", "humanize==4.9.0")
        assert "+ humanize 4.9.0" in added.stdout
        assert "proof: imported" in added.stdout
        assert 'proof = "imported"' in (own.folder / "lockfiles/small.lock").read_text()
        assert python(own, "import humanize; print(humanize.__version__)") == "4.9.0"
        assert own.run("lock", "small", "--check").code == 0
        assert own.run("remove", "small", "humanize", "--no-make").code == 0
        assert (own.folder / "recipes/small.toml").read_text() == before
        assert "is old" in own.run("exec", "small", "--", "true").stderr

    def test_what_cannot_be_had_changes_nothing(self, own: Project) -> None:
        before = state_of(own)
        missing = own.run("add", "small", "humanize==0.0.99")
        assert missing.code == 3
        broken = own.run("add", "small", "zope.proxy==1")
        assert broken.code != 0
        assert state_of(own) == before

    @pytest.mark.parametrize("seconds", [1.0, 1.9])
    def test_a_kill_while_adding_leaves_all_or_nothing(self, own: Project, seconds: float) -> None:
        before = state_of(own)
        argv = [sys.executable, "-m", "envbuild", "add", "small", "humanize==4.9.0"]
        process = subprocess.Popen(
            argv, cwd=own.folder, env=own.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(seconds)
        process.kill()
        process.wait()
        assert own.run("lock", "small", "--check").code == 0
        assert "is old" not in own.run("exec", "small", "--", "true").stderr
        after = state_of(own)
        changed = [name for name in before if before[name] != after[name]]
        assert changed in ([], list(before))


def at_once(line: tuple[str, ...], count: int, *, cwd: Path, env: dict[str, str]) -> list[str]:
    """Run a command several times at once and return what each has printed."""
    ranks = [
        subprocess.Popen(line, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    return [rank.communicate(timeout=120)[0] for rank in ranks]


def state_of(project: Project) -> dict[str, str]:
    names = ("recipes/small.toml", "lockfiles/small.lock", "small.sif")
    files = {name: (project.folder / name).read_bytes() for name in names}
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def test_a_damaged_record_is_told_and_cleared(tmp_path: Path) -> None:
    path = record_path(tmp_path, "small")
    path.write_text('{"schema": 1, "image": "no digest"}')
    with pytest.raises(IntegrityError, match="cannot be read") as caught:
        read_record(path)
    assert caught.value.hint == "remove it: envbuild dev small --clear"
    assert clear_layer(tmp_path, "small", Store(tmp_path / "store")) == [path]
    assert read_record(path) is None


@pytest.mark.parametrize("error", [SpaceError("full"), HostError("read-only")])
def test_a_layer_is_cleared_to_make_room(
    error: EnvbuildError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the store cannot note what is removed, and removing is what helps."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("envbuild.app.dev.layer.claim_folder", refuse)
    for path in (record_path(tmp_path, "small"), tmp_path / "small.dev-0123456789ab.sqfs"):
        path.write_text("")
    clear_layer(tmp_path, "small", Store(tmp_path / "store"))
    assert not [*tmp_path.glob("small.dev*")]
