"""What a site file knows of driver and GPUs is told before a job waits in the queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from envbuild.app.lock import refuse_unfit
from envbuild.cli import run_cli
from envbuild.errors import NoSolutionError
from envbuild.formats.sif_writer import partition_object, write_sif
from envbuild.formats.squashfs.layout import COMPRESSORS, MAGIC, SUPERBLOCK
from envbuild.job.sites.find import load_site
from envbuild.job.sites.fit import why_unfit
from envbuild.job.sites.site import Gpu, HostFacts, Site
from envbuild.settings import Settings
from tests.cli.test_cli_current import LOCK, NAME, project
from tests.support import quiet_context

__all__ = ["project"]


def site(settings: Settings, driver: str = "", cards: tuple[Gpu, ...] = ()) -> Site:
    return structs.replace(load_site("neuron", settings), host=HostFacts(driver=driver), gpu=cards)


V100 = Gpu(name="V100", capability=70, partition="old")
H100 = Gpu(name="H100", capability=90, partition="new")


@pytest.mark.parametrize(
    ("cuda", "driver", "told"),
    [
        (
            "12.4",
            "450.80.02",
            "CUDA 12.4 needs NVIDIA driver 525.60.13 or newer, and the nodes of neuron have 450.80.02",
        ),
        (
            "12",
            "450.80.02",
            "CUDA 12 needs NVIDIA driver 525.60.13 or newer, and the nodes of neuron have 450.80.02",
        ),
        ("12.4", "525.60.13", None),
        ("11.8", "450.80.02", None),
        ("10.1", "418.39", None),
        (
            "10.1",
            "410.48",
            "CUDA 10.1 needs NVIDIA driver 418.39 or newer, and the nodes of neuron have 410.48",
        ),
        (
            "13.0",
            "580.65",
            "CUDA 13.0 needs NVIDIA driver 580.65.06 or newer, and the nodes of neuron have 580.65",
        ),
        ("12.4", "", None),
        ("99.1", "450.80.02", None),
    ],
)
def test_drivers(cuda: str, driver: str, told: str | None, user_settings: Settings) -> None:
    assert why_unfit(cuda, site(user_settings, driver)) == told


@pytest.mark.parametrize(
    ("cuda", "partition", "fits"),
    [
        ("12.9", "old", True),
        ("13.0", "old", False),
        ("13.0", None, True),
        ("13.0", "new", True),
        ("12", "old", True),
    ],
)
def test_cards_that_a_toolkit_has_left_behind(
    cuda: str, partition: str | None, fits: bool, user_settings: Settings
) -> None:
    told = why_unfit(cuda, site(user_settings, cards=(V100, H100)), partition)
    assert told == (
        None
        if fits
        else f"CUDA {cuda} has no code for V100 of neuron; the last that has is below 13.0"
    )


def test_job_tells_and_submit_refuses(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = project / f"recipes/{NAME}.toml"
    recipe.write_text(recipe.read_text().partition("[job]")[0])
    told = (
        "CUDA 12.4 needs NVIDIA driver 525.60.13 or newer, and the nodes of amane have 450.80.02\n"
    )
    assert run_cli(["job", NAME, "--on", "amane", "--", "true"]) == 0
    assert f"note: {told}" in capsys.readouterr().err
    assert run_cli(["submit", NAME, "--on", "amane", "--", "true"]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "envbuild base suggest --driver 450.80.02 names bases that fit" in err
    assert run_cli(["job", NAME, "--on", "amane", "--gpus", "0", "--", "true"]) == 0
    assert capsys.readouterr().err == ""


def test_an_image_that_singularity_cannot_open(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    superblock = SUPERBLOCK.pack(MAGIC, 0, 0, 0, 0, COMPRESSORS["zstd"], *(0,) * 13)
    objects = [partition_object(lambda out: out.write(superblock), machine="x86_64")]
    with (project / f"{NAME}.sif").open("wb") as out:
        write_sif(out, objects, machine="x86_64", epoch=0, identity="x")
    options = [
        "--on",
        "neuron",
        "--gpus",
        "0",
        "--partition",
        "any",
        "--walltime",
        "1h",
        "--",
        "true",
    ]
    told = "Singularity at neuron cannot open an image that is packed with zstd"
    assert run_cli(["job", NAME, *options]) == 0
    assert f"note: {told}" in capsys.readouterr().err
    assert run_cli(["submit", f"./{NAME}.sif", *options]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert 'sites = ["neuron"] under [target]' in err


def test_a_lock_for_a_site(user_settings: Settings) -> None:
    context = quiet_context(user_settings)
    with pytest.raises(NoSolutionError, match=r"the nodes of amane have 450\.80\.02"):
        refuse_unfit(LOCK, "amane", context)
    refuse_unfit(LOCK, "tsubame4", context)
