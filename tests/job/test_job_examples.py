"""The examples: each job script is what envbuild prints today, and runs where its scheduler runs here."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from envbuild import __version__
from envbuild.cli import run_cli
from envbuild.run import Command, LocalRunner
from tests.job.conftest import SITES, Project, own_network
from tests.job.mpi_image import TORCHRUN, mpi_image
from tests.support import Golden, needs

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = (
    "amane-keras-bert",
    "neuron-torch-ddp",
    "openpbs-optuna",
    "plai-lightning-sweep",
    "tsubame4-chainer",
)
ZERO = "sha256:" + "0" * 64
NOTES = {
    "amane-keras-bert": "note: CUDA 12.2 needs NVIDIA driver 525.60.13 or newer, and the nodes of amane have 450.80.02\n"
}
"""What is told of an example: amane's driver is that of the hands-on's log, older than the shipped recipe needs."""


def words(folder: Path) -> list[str]:
    """The line of submit.sh, without "envbuild submit"."""
    first, *lines = (folder / "submit.sh").read_text("utf-8").splitlines()
    assert first == "#!/bin/bash"
    found = shlex.split(" ".join(line.removesuffix("\\") for line in lines))
    assert found[:2] == ["envbuild", "submit"]
    return found[2:]


def test_every_folder_is_whole() -> None:
    assert tuple(sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())) == NAMES
    overview = (EXAMPLES / "README.md").read_text("utf-8")
    for name in NAMES:
        assert f"[{name}]({name})" in overview
        text = (EXAMPLES / name / "README.md").read_text("utf-8")
        assert "| by hand | with envbuild |" in text
        assert f"envbuild make {words(EXAMPLES / name)[0]}\n" in re.sub(r" +#.*", "", text)


@pytest.mark.parametrize("name", NAMES)
def test_the_script_is_what_envbuild_prints(
    *,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder)
    line = words(folder)
    (folder / f"{line[0]}.sif").write_bytes(bytes(32) + b"SIF_MAGIC")
    for place, word in enumerate(line):
        if word == "--input":
            (folder / line[place + 1]).touch()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("ENVBUILD_CACHES", "/home/you/.cache/envbuild-caches")
    monkeypatch.setattr("envbuild.formats.sif_reader.image_digest", lambda *_, **__: ZERO)
    assert run_cli(["job", *line]) == 0, capsys.readouterr().err
    told = capsys.readouterr()
    assert told.err == NOTES.get(name, "")
    text = told.out.replace(f"envbuild {__version__} ", "envbuild VERSION ")
    # what the lock of the recipe is, is not the example's matter
    text = re.sub(rf"(lock |{ZERO} )(?:none|''|sha256:\w+)", lambda found: found[1] + ZERO, text)
    golden(f"../../examples/{name}/job.sh", text)


@pytest.mark.parametrize("name", NAMES)
def test_the_script_parses(name: str) -> None:
    LocalRunner()(Command(argv=("bash", "-n", str(EXAMPLES / name / "job.sh"))))


@pytest.mark.live
@needs("shellcheck")
def test_shellcheck_likes_the_examples() -> None:
    scripts = [str(EXAMPLES / name / file) for name in NAMES for file in ("job.sh", "submit.sh")]
    result = LocalRunner()(Command(argv=("shellcheck", *scripts)), check=False)
    assert result.stdout == ""


STAND_IN = """
import os, sys
rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
print("stand-in", rank, *sys.argv[1:])
for word in sys.argv[1:]:
    if word.startswith("data/"):
        print("rows", len(open(word).readlines()))
"""
HERE: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "amane-keras-bert": ("amane", "slurm", ()),
    "neuron-torch-ddp": (
        "neuron",
        "slurm",
        (("gpu1", "gpu"), ("--gpus 4 --cpus 4", "--gpus 2 --cpus 1")),
    ),
    "plai-lightning-sweep": ("plai", "slurm", ()),
    "tsubame4-chainer": ("tsubame4", "gridengine", ((" --account my-group", ""),)),
}
"""Site, scheduler, and what has to differ: this cluster has two GPUs, another partition, and no groups."""
SAID = {
    "amane-keras-bert": {
        "stand-in 0 --data data/texts.csv --rate 0.001 --epochs 2",
        "stand-in 0 --data data/texts.csv --rate 0.0001 --epochs 8",
        "rows 7",
    },
    "neuron-torch-ddp": {"stand-in 0 --steps 1000", "stand-in 1 --steps 1000"},
    "plai-lightning-sweep": {
        "stand-in 0 --data data/points.csv --width 64 --rate 0.001",
        "rows 41",
    },
    "tsubame4-chainer": {"stand-in 0 --epochs 5"},
}


@pytest.mark.live
@needs("apptainer", "sbatch", "qsub", "ip", "nsenter", "mpirun")
@own_network
@pytest.mark.skipif(
    not Path("/usr/lib/python3/dist-packages/mpi4py").is_dir(),
    reason="not installed: python3-mpi4py",
)
@pytest.mark.parametrize("name", HERE)
def test_the_example_runs(project: Project, name: str) -> None:
    """The line of submit.sh, its site's name and its recipe's; image, program and the site's rules are stand-ins."""
    site, scheduler, changes = HERE[name]
    shutil.copytree(EXAMPLES / name, project.folder, dirs_exist_ok=True)
    text = SITES[scheduler].replace(f'name = "{scheduler}"', f'name = "{site}"')
    (project.folder / f"sites/{site}.toml").write_text(text)
    (project.folder / "torch/distributed").mkdir(parents=True)
    (project.folder / "torch/distributed/run.py").write_text(TORCHRUN)
    line = " ".join(map(shlex.quote, words(project.folder)))
    for old, new in changes:
        assert old in line
        line = line.replace(old, new)
    argv = shlex.split(line)
    shutil.copy(mpi_image(), project.folder / f"{argv[0]}.sif")
    (project.folder / "train.py").write_text(STAND_IN)
    (project.folder / "mnist.npz").touch()
    result = project.succeed("submit", "--wait", *argv)
    assert SAID[name] <= set(result.stdout.splitlines())
