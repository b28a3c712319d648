"""A bundle of a real project: the same image without a network, with envbuild and with Apptainer alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

from envbuild.app.spec import build_spec
from envbuild.build.image.rebuild import compare_images, made_again
from envbuild.bundle.own import PYTHONS, needed, write_own_wheel
from envbuild.lock.read import read_lock
from envbuild.recipe.find import find_recipe
from envbuild.run import Command, LocalRunner
from envbuild.settings import load_settings
from tests.base.interpreters import interpreter
from tests.build.images import TOP, copy_of, sha256
from tests.project import Project, shared_store, small_project
from tests.support import needs, quiet_context

pytestmark = pytest.mark.live
THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
OFFLINE = ("unshare", "--net", *(("--map-root-user",) if os.getuid() else ()))
builds = needs("apptainer", "mmdebstrap", "apt-get", "unshare")


def with_files(project: Project) -> Project:
    """Add a file of the project's own to the image."""
    project.write("data/hello.txt", "hello from the project\n")
    recipe = project.folder / "recipes/small.toml"
    recipe.write_text(recipe.read_text() + '\n[files]\n"data" = "/opt/data"\n')
    return project


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small project with its image, made from the shared store."""
    folder = tmp_path_factory.mktemp("bundle")
    folder.chmod(0o755)
    project = with_files(small_project(folder / "first"))
    for arguments in (("lock", "small"), ("make",)):
        project.succeed(*arguments)
    return project


@pytest.fixture(scope="session")
def bundle(made: Project) -> Path:
    done = made.succeed("bundle")
    assert "small.bundle.tar" in done.stdout
    return made.folder / "small.bundle.tar"


def offline(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [*OFFLINE, sys.executable, "-m", "envbuild", *arguments]
    return subprocess.run(
        argv,
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@builds
def test_the_same_image_comes_out_where_there_is_no_network(
    made: Project, bundle: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    other = Project(tmp_path / "p", tmp_path / "store")
    (other.store / TOP).mkdir(parents=True)
    for name in ("bases", "facts"):  # so that Debian's root is not unpacked once more
        (other.store / TOP / name).symlink_to(shared_store() / TOP / name)
    done = offline(other, "make", "--from-bundle", str(bundle))
    assert done.returncode == 0, done.stderr
    assert "nothing to download" in done.stderr
    assert sha256(other.folder / "small.sif") == sha256(made.folder / "small.sif")
    assert not (other.folder / "recipes").exists()


@builds
def test_apptainer_alone_builds_it(bundle: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    subprocess.run(["tar", "-xf", str(bundle), "-C", str(tmp_path)], check=True)
    env = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", str(tmp_path / "small/build.sh")],
        env={
            **env,
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "DEBIAN_MIRROR": "http://127.0.0.1:9/debian",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    image = tmp_path / "small/small.sif"
    ran = LocalRunner()(
        Command(
            argv=(
                "apptainer",
                "exec",
                "--userns",
                str(image),
                "python3",
                "-c",
                "import six, docopt; print(open('/opt/data/hello.txt').read())",
            ),
            env=env,
        )
    )
    assert "hello from the project" in ran.stdout
    (tmp_path / "small/files/envbuild/python/docopt-0.6.2.tar.gz").write_bytes(b"changed")
    again = subprocess.run(
        ["sh", str(tmp_path / "small/build.sh")], capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert "docopt-0.6.2.tar.gz" in again.stdout + again.stderr


@builds
def test_the_same_lock_gives_the_same_bundle(made: Project, bundle: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    other = with_files(copy_of(made, tmp_path / "p"))
    other.succeed("bundle", "-o", "other.tar")
    assert sha256(bundle) == sha256(other.folder / "other.tar")


@needs("unshare")
def test_envbuild_installs_from_it_without_a_network(bundle: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xf", str(bundle), "-C", str(tmp_path)], check=True)
    wheels = [parse_wheel_filename(path.name) for path in (tmp_path / "small/tool").iterdir()]
    names = {str(name) for name, _, _, _ in wheels}
    assert {*needed(), "envbuild"} <= names
    assert "exceptiongroup" in names  # that no Python of after 3.10 needs
    compiled = {tag.interpreter for name, _, _, tags in wheels if name == "msgspec" for tag in tags}
    assert compiled == {"cp310", "cp311", "cp312", "cp313", "cp314"}
    assert json.loads((tmp_path / "small/bundle.json").read_text())["python"] == ", ".join(PYTHONS)
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [
        str(venv / "bin/pip"),
        "install",
        "--quiet",
        "--no-index",
        "--find-links",
        str(tmp_path / "small/tool"),
    ]
    subprocess.run([*OFFLINE, *pip, "envbuild"], check=True, cwd=tmp_path)
    listed = subprocess.run(
        [str(venv / "bin/envbuild"), "list"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "keras-bert" in listed.stdout


@builds
@pytest.mark.parametrize("version", [one for one in PYTHONS if one != THIS])
def test_another_python_installs_it_and_makes_the_same_image(
    version: str, made: Project, bundle: Path, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    tmp_path.chmod(0o755)
    other = Project(tmp_path / "p", tmp_path / "store")
    (other.store / TOP).mkdir(parents=True)
    for name in ("bases", "facts"):  # so that Debian's root is not unpacked once more
        (other.store / TOP / name).symlink_to(shared_store() / TOP / name)
    subprocess.run(["tar", "-xf", str(bundle), "-C", str(other.folder)], check=True)
    # what docs/bundle.md shows, line for line
    lines = f"""set -e
{python} -m venv venv
venv/bin/pip install --quiet --no-index --find-links small/tool envbuild
venv/bin/envbuild make --from-bundle {bundle}
venv/bin/python -c 'import sys; print(*sys.version_info[:2], sep=".")'
"""
    env = {key: value for key, value in other.env.items() if not key.startswith("PIP_")}
    done = subprocess.run(
        [*OFFLINE, "sh", "-c", lines],
        cwd=other.folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == version
    assert sha256(other.folder / "small.sif") == sha256(made.folder / "small.sif")


def test_the_own_wheel_is_the_same_each_time(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert write_own_wheel(one).read_bytes() == write_own_wheel(two).read_bytes()
    names = zipfile.ZipFile(write_own_wheel(one)).namelist()
    assert "envbuild/shipped/recipes/keras-bert.toml" in names
    assert not [name for name in names if "__pycache__" in name]


@builds
def test_made_again_it_is_the_same_and_a_difference_is_named(made: Project, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    other = with_files(copy_of(made, tmp_path / "p", layers=True))
    recipe = other.folder / "recipes/small.toml"
    recipe.write_text(recipe.read_text().replace("the default command", "another command"))
    assert other.run("make", "--no-check").code == 0
    settings = load_settings(made.env, made.folder)
    context = quiet_context(settings)
    source = find_recipe("small", settings)
    order = build_spec(source, read_lock(source.lock), made.folder / "small.sif", "flat", context)
    with made_again(order, context) as (second, clean):
        same = compare_images(made.folder / "small.sif", order, second, clean)
        differs = compare_images(other.folder / "small.sif", order, second, clean)
    assert same.same == "bytes"
    assert differs.same == "nothing"
    assert {layer for layer, _, _ in differs.differs} == {"project"}
    assert ".singularity.d/runscript" in {path for _, path, _ in differs.differs}


def test_rebuilding_for_nothing_is_refused(made: Project) -> None:
    refused = made.run("rebuild")
    assert refused.code == 2
    assert "nothing would be left of what it makes" in refused.stderr
