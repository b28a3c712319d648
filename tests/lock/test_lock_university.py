"""The university's case for real: CPython 3.6 and the wheels of tensorflow-gpu 2.1.0 as the base, the course's list on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tomli

from envbuild.run import Command, LocalRunner
from tests.project import Project
from tests.support import needs

DAY = "2020-01-15"
"""A week after the release of TensorFlow 2.1: its image was made of the packages of these days."""
ROOT = """\
[recipe]
name = "root"

[base]
bootstrap = "debian:bookworm"

[system]
packages = ["libbz2-1.0", "libffi8", "liblzma5", "libreadline8", "libsqlite3-0", "libssl3"]
"""
DEFINITION = """\
Bootstrap: localimage
From: root.sif

%files
    python /usr/local/python

%post
    cd /usr/local/python && tar c . | tar x -C /usr/local
    rm -rf /usr/local/python
    ldconfig
    ln -sf python3.6 /usr/local/bin/python3
"""
COURSE = """\
[recipe]
name = "course"

[base]
image = "base.sif"

[python]
dependencies = [
  "keras-bert", "tensorflow", "keras", "sentencepiece", "scikit-learn", "transformers", "matplotlib", "pydot",
]
"""
USE = """\
import keras, keras_bert, numpy, tensorflow
model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", "mse")
model.save("/tmp/model.h5")
again = keras.models.load_model("/tmp/model.h5")
assert numpy.allclose(model.predict(numpy.ones((1, 2))), again.predict(numpy.ones((1, 2))))
print("TENSORFLOW", tensorflow.__version__, "KERAS", keras.__version__)
"""


def old_python() -> Path | None:
    """A relocatable CPython 3.6 of this machine: its own folder, not a part of /usr."""
    versions = sorted((Path.home() / ".pyenv/versions").glob("3.6.*"))
    found = [folder for folder in versions if (folder / "bin/python3.6").is_file()]
    return found[-1] if found else None


def tensorflow_base(project: Project, python: Path) -> None:
    """Write base.sif: a Debian with that Python under /usr/local and TensorFlow's wheels of its day in it."""
    project.write("recipes/root.toml", ROOT)
    project.succeed("make", "root", "--no-check")
    copy = project.folder / "python"
    shutil.copytree(
        python, copy, symlinks=True, ignore=shutil.ignore_patterns("test", "__pycache__")
    )
    run = LocalRunner()
    import uv

    install = ("pip", "install", "-q", "--no-python-downloads", "--exclude-newer", DAY, "--python")
    run(
        Command(
            argv=(uv.find_uv_bin(), *install, str(copy / "bin/python3.6"), "tensorflow-gpu==2.1.0"),
            timeout=600,
        )
    )
    project.write("base.def", DEFINITION)
    scratch = project.folder / "scratch"
    scratch.mkdir()
    env = {**project.env, "TMPDIR": str(scratch), "APPTAINER_TMPDIR": str(scratch)}
    pack = ("--mksquashfs-args", "-comp zstd -Xcompression-level 3")
    argv = ("apptainer", "build", "--fakeroot", *pack, "base.sif", "base.def")
    run(Command(argv=argv, cwd=project.folder, env=env, timeout=600))
    shutil.rmtree(copy)


@pytest.mark.live
@pytest.mark.slow
@needs("apptainer", "mmdebstrap", "mksquashfs")
@pytest.mark.skipif(old_python() is None, reason="there is no CPython 3.6 under ~/.pyenv/versions")
def test_the_course_on_tensorflow_2_1(tmp_path: Path) -> None:
    python = old_python()
    assert python is not None
    tmp_path.chmod(0o755)
    project = Project(tmp_path / "p")
    tensorflow_base(project, python)
    project.write("recipes/course.toml", COURSE)
    project.succeed("lock", "course", "--prove", "--as-of", "none", timeout=1200)
    lock = tomli.loads((project.folder / "lockfiles/course.lock").read_text())
    assert lock["proof"] == "imported"
    assert lock["base"]["framework"] == "tensorflow-gpu 2.1.0"
    versions = {package["name"]: package["version"] for package in lock["python"]}
    assert versions["keras"] == "2.3.1"
    assert not {"tensorflow", "tensorflow-gpu", "h5py"} & set(versions), "the base's own stay"

    project.succeed("make", "course", "--no-check")
    used = project.run("exec", "course", "--", "python3", "-c", USE)
    assert "TENSORFLOW 2.1.0 KERAS 2.3.1" in used.stdout, used.stderr
    listed = project.run(
        "exec", "course", "--", "python3", "-m", "pip", "list", "--format", "freeze"
    )
    assert [
        line for line in listed.stdout.splitlines() if line.lower().startswith("tensorflow")
    ] == [
        "tensorflow-estimator==2.1.0",
        "tensorflow-gpu==2.1.0",
    ]
