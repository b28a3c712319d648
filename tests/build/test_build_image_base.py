"""Images put together from the layers of an image as base, for real: what is kept, replaced, and proved equal."""

from __future__ import annotations

import io
import platform
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.base.interpreters import interpreter
from tests.base.ociimages import Image, dist, image_of, programs, python_tar, tar_of, write_layout
from tests.build.images import TOP, apptainer, sha256
from tests.project import Project
from tests.support import needs

pytestmark = [
    pytest.mark.live,
    needs("apptainer"),
    pytest.mark.skipif(
        platform.machine() != "x86_64",
        reason="the image is made of this machine's programs, for amd64",
    ),
]
SITE = "opt/conda/lib/python3.11/site-packages"
RECIPE = """\
[recipe]
name = "onimage"
summary = "on an image of several layers"
[base]
image = "{base}"
[python]
dependencies = ["six==1.16.0"]
as-of = "none"
[check]
imports = ["six"]
"""


def last_layer() -> bytes:
    """What real images do to their lower layers: hide, link, give rights."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, mode, target in (
            ("srv/.wh.secret", tarfile.REGTYPE, 0o644, ""),
            ("opt/again", tarfile.SYMTYPE, 0o777, "conda"),
            ("opt/again/shared.txt", tarfile.REGTYPE, 0o644, ""),
            ("opt/conda/hard.txt", tarfile.LNKTYPE, 0o644, "srv/kept"),
            ("usr/bin/as-root", tarfile.REGTYPE, 0o4755, ""),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.linkname, entry.mtime = kind, mode, target, 1_700_000_000
            tar.addfile(entry)
    return out.getvalue()


def base() -> Image:
    """Conda's layout, a second Python at /usr that installers are to keep out of, and an older six."""
    first, second = interpreter("3.11"), interpreter("3.12") or interpreter("3.10")
    if first is None or second is None:
        pytest.skip("no Python 3.11 and another one on this machine")
    old = dist(SITE, "six", "1.15.0")
    old[f"{SITE}/six-1.15.0.dist-info/RECORD"] = (
        str(old[f"{SITE}/six-1.15.0.dist-info/RECORD"]) + "six/gone.py,,\n"
    )
    old[f"{SITE}/six/gone.py"] = "raise SystemExit('an old file')\n"
    return image_of(
        programs(),
        python_tar(second.resolve(), "/usr", managed=True),
        python_tar(first.resolve(), "/opt/conda"),
        tar_of(
            {**old, **dist(SITE, "flax", "0.8.0"), "srv/secret": "hidden", "srv/kept": "shared\n"}
        ),
        last_layer(),
        env=("PATH=/opt/conda/bin:/usr/bin:/bin", "GREETING=it's a test"),
        entrypoint=("/usr/bin/env", "FROM_ENTRYPOINT=yes"),
        cmd=("env",),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("onimage")
    project = Project(folder / "p", folder / "store")
    write_layout(base(), project.folder / "base")
    project.write("recipes/onimage.toml", RECIPE.format(base="oci:base"))
    for verb in (("lock",), ("make",)):
        result = project.succeed(*verb)
    assert "built by --mode" not in result.stderr
    return project


def run(project: Project, image: str, *argv: str) -> str:
    result = apptainer(
        project, "--quiet", "exec", "--userns", "--cleanenv", str(project.folder / image), *argv
    )
    assert result.code == 0, result.stderr
    return result.stdout


def test_the_packages_are_the_bases_pythons_and_old_files_are_gone(made: Project) -> None:
    code = "import flax, six; print(six.__file__, six.__version__, flax.__version__)"
    told = run(made, "onimage.sif", "python3", "-c", code)
    assert told.split() == [f"/{SITE}/six.py", "1.16.0", "0.8.0"]
    listed = run(made, "onimage.sif", "ls", f"/{SITE}", "/srv", "/opt/conda").split()
    assert "six-1.16.0.dist-info" in listed
    assert not {"six-1.15.0.dist-info", "six", "secret"} & set(listed)
    assert {"kept", "shared.txt", "hard.txt"} <= set(listed)
    assert run(made, "onimage.sif", "stat", "-c", "%a %u", "/usr/bin/as-root").split()[0] == "4755"


def test_what_the_image_asks_for_is_kept(made: Project) -> None:
    told = apptainer(
        made, "--quiet", "run", "--userns", "--cleanenv", str(made.folder / "onimage.sif")
    ).stdout.splitlines()
    assert {"FROM_ENTRYPOINT=yes", "GREETING=it's a test"} <= set(told)
    assert "it's a test" in apptainer(
        made, "inspect", "--environment", str(made.folder / "onimage.sif")
    ).stdout.replace("'\"'\"'", "'")


def test_verify_holds_and_layered_has_the_same_tree(made: Project, tmp_path: Path) -> None:
    verified = made.run("verify", "onimage")
    assert (verified.code, "the very bytes" in verified.stdout) == (0, True), verified.stdout
    made.succeed("make", "--mode", "layered", "-o", "layered.sif")
    assert "six-1.15.0" not in run(made, "layered.sif", "ls", f"/{SITE}")
    assert made.run("verify", "layered.sif").code == 0
    made.succeed("flatten", "layered.sif", "-o", str(tmp_path / "flat.sif"))
    assert "six-1.15.0" not in run(made, str(tmp_path / "flat.sif"), "ls", f"/{SITE}")


def test_another_user_gets_the_same_bytes(made: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "öther", tmp_path / "store")
    for name in ("recipes", "lockfiles", "base"):
        shutil.copytree(made.folder / name, other.folder / name)
    (other.store / TOP).mkdir(parents=True)
    (other.store / TOP / "artifacts").symlink_to(made.store / TOP / "artifacts")
    other.succeed("make", "--no-check", LC_ALL="C", TZ="Asia/Tokyo", PYTHONHASHSEED="7")
    assert sha256(other.folder / "onimage.sif") == sha256(made.folder / "onimage.sif")


def test_an_image_file_is_a_base_too(made: Project) -> None:
    text = (
        RECIPE.format(base="onimage.sif")
        .replace('name = "onimage"', 'name = "second"')
        .replace("six==1.16.0", "iniconfig<2")
    )
    made.write("recipes/second.toml", text.replace('imports = ["six"]', 'imports = ["iniconfig"]'))
    for verb in (("lock", "second"), ("make", "second")):
        made.succeed(*verb)
    told = run(
        made,
        "second.sif",
        "python3",
        "-c",
        "import iniconfig, six; print(iniconfig.__file__, six.__version__)",
    )
    assert told.startswith(f"/{SITE}/iniconfig")
    assert told.split()[1] == "1.16.0"
    assert (
        "GREETING=it's a test"
        in apptainer(
            made, "--quiet", "run", "--userns", "--cleanenv", str(made.folder / "second.sif")
        ).stdout
    )
    assert made.run("verify", "second").code == 0
