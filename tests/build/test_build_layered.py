"""Layered images: every silent way in which a runtime loses a layer ends with a message and a code of its own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from envbuild.formats.sif_reader import read_sif
from envbuild.run import Command, LocalRunner
from tests.build.images import apptainer, line_of, signed_and_verified
from tests.project import Project
from tests.support import needs
from tests.tiny_image import AS_NOBODY, as_nobody, open_folder

pytestmark = [pytest.mark.live, needs("apptainer", "mmdebstrap", "apt-get")]


def test_it_has_the_same_tree_and_runs(first: Project, layered: Project) -> None:
    one, two = (project.run("verify", "small", "--json").stdout for project in (first, layered))
    assert line_of(one, "tree") == line_of(two, "tree")
    assert (
        layered.run("exec", "small", "--", "python", "-c", "import six; print(1)").stdout == "1\n"
    )
    listed = apptainer(layered, "sif", "list", str(layered.folder / "small.sif")).stdout
    assert listed.count("Squashfs/Overlay") == 2
    told = apptainer(layered, "inspect", "--helpfile", str(layered.folder / "small.sif")).stdout
    assert "This image is made of layers" in told


def test_every_way_to_start_works_and_it_says_what_it_is(layered: Project) -> None:
    image = str(layered.folder / "small.sif")
    assert layered.run("run", "small").stdout == "the default command\n"
    assert apptainer(layered, "--quiet", "run", "--userns", image).stdout == "the default command\n"
    assert layered.run("exec", "small", "--", "hello").stdout == "Hello, world!\n"
    typed = "hello; python -c 'import six, docopt; print(six.__version__)'; exit 3\n"
    for argv in (
        ("apptainer", "--quiet", "shell", "--userns", image),
        (sys.executable, "-m", "envbuild", "shell", "small"),
    ):
        shell = LocalRunner()(
            Command(argv=argv, cwd=layered.folder, env=layered.env, stdin=typed, timeout=600),
            check=False,
        )
        assert (shell.stdout, shell.code) == ("Hello, world!\n1.16.0\n", 3), shell.stderr
    tested = apptainer(layered, "test", "--userns", image)
    assert tested.code == 0, tested.stderr
    assert "envbuild.recipe: small" in apptainer(layered, "inspect", "--labels", image).stdout
    assert (
        "export PYTHONNOUSERSITE=1" in apptainer(layered, "inspect", "--environment", image).stdout
    )
    assert "the default command" in apptainer(layered, "inspect", "--runscript", image).stdout
    assert "bootstrap: scratch" in apptainer(layered, "inspect", "--deffile", image).stdout.lower()


def test_signing_and_verifying_work(layered: Project, tmp_path: Path) -> None:
    image = tmp_path / "signed.sif"
    shutil.copyfile(layered.folder / "small.sif", image)
    signed_and_verified(image, tmp_path)
    layered.succeed("verify", str(image))
    assert (
        apptainer(layered, "--quiet", "exec", "--userns", str(image), "hello").stdout
        == "Hello, world!\n"
    )


MISSING = "a layer of this image is missing or damaged"


def test_underlay_drops_layers(layered: Project) -> None:
    done = apptainer(
        layered,
        "--quiet",
        "exec",
        "--userns",
        "--underlay",
        str(layered.folder / "small.sif"),
        "true",
    )
    assert (done.code, MISSING in done.stderr) == (78, True), done.stderr


def test_unpacking_drops_layers(layered: Project, tmp_path: Path) -> None:
    """What --unsquash asks for is also what happens by itself where there is no squashfuse or no /dev/fuse."""
    image = open_folder() / "layered.sif"
    shutil.copyfile(layered.folder / "small.sif", image)
    home = open_folder() / "layered-home"
    home.mkdir()
    home.chmod(0o777)
    argv = ("apptainer", "--quiet", "exec", "--unsquash", "--no-home", str(image), "true")
    env = {**layered.env, "TMPDIR": str(home)}
    done = as_nobody(Command(argv=argv, env=env), home=home)
    assert (done.code, MISSING in done.stderr) == (78, True), done.stderr


HOSTS = {
    "no squashfuse": "for file in $(ls /usr/bin/squashfuse* /usr/libexec/apptainer/bin/squashfuse* 2>/dev/null); do "
    'mount --bind /dev/null "$file"; done',
    "no /dev/fuse": 'mknod "$1/fuse" c 10 229 && chmod 600 "$1/fuse" && mount --bind "$1/fuse" /dev/fuse',
    "enable overlay = no": "conf=/etc/apptainer/apptainer.conf && "
    'sed "s/^enable overlay = .*/enable overlay = no/" $conf > "$1/conf" && mount --bind "$1/conf" $conf',
}


@pytest.mark.parametrize("host", HOSTS)
def test_hosts_that_cannot_lay_one_over_another(layered: Project, host: str) -> None:
    """What they do is hidden from the others: it happens in a mount namespace of its own."""
    folder = open_folder() / f"host-{list(HOSTS).index(host)}"
    folder.mkdir()
    folder.chmod(0o777)
    if os.getuid() or LocalRunner()(Command(argv=("unshare", "-m", "true")), check=False).code:
        pytest.skip("only root can take squashfuse away for a while")
    image = folder / "image.sif"
    shutil.copyfile(layered.folder / "small.sif", image)
    run = (*AS_NOBODY, "apptainer", "--quiet", "exec", "--no-home", str(image), "true")
    argv = (
        "unshare",
        "-m",
        "sh",
        "-c",
        f'set -e; {HOSTS[host]}; shift; exec "$@"',
        "sh",
        str(folder),
        *run,
    )
    env = {**layered.env, "TMPDIR": str(folder), "HOME": str(folder)}
    done = LocalRunner()(Command(argv=argv, cwd=folder, env=env, timeout=600), check=False)
    if host == "no /dev/fuse":  # told by the runtime itself, about every image
        assert (done.code, "failed to open /dev/fuse" in done.stderr) == (255, True), done.stderr
    else:
        assert (done.code, MISSING in done.stderr) == (78, True), done.stderr


@pytest.mark.parametrize("kind", ["sandbox", "localimage"])
def test_builds_that_start_from_it(layered: Project, tmp_path: Path, kind: str) -> None:
    source, target = layered.folder / "small.sif", tmp_path / "out"
    if kind == "localimage":
        source = layered.write("from.def", f"Bootstrap: localimage\nFrom: {source}\n")
    flags = (
        ["--sandbox"]
        if kind == "sandbox"
        else ["--mksquashfs-args", "-comp zstd -Xcompression-level 1"]
    )
    built = apptainer(layered, "build", "--fakeroot", *flags, str(target), str(source))
    assert built.code == 0, built.stderr
    done = apptainer(layered, "--quiet", "exec", "--userns", str(target), "true")
    assert (done.code, MISSING in done.stderr) == (78, True), done.stderr


def test_a_file_that_is_cut_off(layered: Project, tmp_path: Path) -> None:
    cut = tmp_path / "cut.sif"
    data = (layered.folder / "small.sif").read_bytes()
    for lost in (5000, 60_000):
        cut.write_bytes(data[:-lost])
        done = apptainer(layered, "--quiet", "exec", "--userns", str(cut), "true")
        assert done.code != 0


def test_a_damaged_header_of_a_layer(layered: Project, tmp_path: Path) -> None:
    image = tmp_path / "damaged.sif"
    shutil.copyfile(layered.folder / "small.sif", image)
    overlay = [item for item in read_sif(image).objects if item.partition == 4][-1]
    with image.open("r+b") as file:
        file.seek(overlay.offset)
        file.write(b"\0" * 4)
    done = apptainer(layered, "--quiet", "exec", "--userns", str(image), "true")
    assert done.code != 0
    assert "missing or damaged" in done.stderr or "FATAL" in done.stderr
    flattened = layered.run("flatten", str(image), "-o", str(tmp_path / "flat.sif"))
    assert flattened.code == 6, flattened.stderr
    assert not (tmp_path / "flat.sif").exists()


def test_a_layer_added_after_signing_is_told_by_verify(layered: Project, tmp_path: Path) -> None:
    image = tmp_path / "more.sif"
    shutil.copyfile(layered.folder / "small.sif", image)
    overlay = next(item for item in read_sif(image).objects if item.partition == 4)
    layer = tmp_path / "layer.squashfs"
    layer.write_bytes(image.read_bytes()[overlay.offset : overlay.offset + overlay.size])
    added = (
        "--datatype",
        "4",
        "--parttype",
        "4",
        "--partfs",
        "1",
        "--partarch",
        "2",
        "--groupid",
        "1",
    )
    assert apptainer(layered, "sif", "add", *added, str(image), str(layer)).code == 0
    with image.open("r+b") as file:  # another file of the same length, still in order
        data = layer.read_bytes()
        file.seek(read_sif(image).objects[-1].offset)
        file.write(data.replace(b"six.py", b"siy.py"))
    verified = layered.run("verify", str(image))
    assert (verified.code, "extra" in verified.stdout) == (1, True), (
        verified.stdout + verified.stderr
    )


def test_flatten_makes_one_partition_with_the_same_tree(layered: Project, tmp_path: Path) -> None:
    target = tmp_path / "flat.sif"
    done = layered.succeed("flatten", "small", "-o", str(target))
    sif = read_sif(target)
    assert [item.partition for item in sif.objects if item.data_type == 0x4004] == [2]
    assert (
        line_of(layered.run("verify", "small", "--json").stdout, "tree").split('"')[3]
        in done.stdout
    )
    assert (
        apptainer(
            layered, "exec", "--userns", "--underlay", str(target), "python3", "-c", "import six"
        ).code
        == 0
    )
    assert "made of layers" not in apptainer(layered, "inspect", "--helpfile", str(target)).stdout
    again = layered.run("flatten", str(target))
    assert (again.code, "is not a layered image of envbuild" in again.stderr) == (2, True)
