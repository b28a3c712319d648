"""The GPU rule: which build a target gets, or what is missing for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.conda.model import GpuTarget
from envbuild.conda.target import toolkit_ranges
from envbuild.context import Context
from envbuild.errors import NoSolutionError
from tests.conda.asking import builds, choose, context_of, user_of
from tests.conda.channels import Package, Served, make_channel


@pytest.fixture(scope="module")
def context(channels: Served, tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("user")
    return context_of(user_of(folder, forge=f"{channels.url}/forge"))


# driver, cards, the CUDA of the chosen build (None: refused), cuda-version
TABLE = (
    ("470", (), "11.8", "11.8"),
    ("470", (70,), "11.8", "11.8"),
    ("470", (80,), "11.8", "11.8"),
    ("470", (90,), None, None),
    ("470", (120,), None, None),
    ("525", (), "12.9", "12.9"),
    ("525", (70,), "12.9", "12.9"),
    ("525", (80,), "12.9", "12.9"),
    ("525", (90,), "12.9", "12.9"),
    ("525", (120,), None, None),
    ("550", (), "12.9", "12.9"),
    ("550", (70,), "12.9", "12.9"),
    ("550", (80,), "12.9", "12.9"),
    ("550", (90,), "12.9", "12.9"),
    ("550", (120,), None, None),
    ("560.28.03", (80,), "12.6", "12.6"),
    ("580", (), "13.0", "13.0"),
    ("580", (70,), "12.9", "12.9"),
    ("580", (80,), "13.0", "13.0"),
    ("580", (90,), "13.0", "13.0"),
    ("580", (120,), "13.0", "13.0"),
    ("580", (70, 90), "12.9", "12.9"),
    ("580", (70, 120), "12.9", "12.9"),
    ("450.80.02", (80,), "11.8", "11.8"),
    ("470.256.02", (75,), "11.8", "11.8"),
    ("515.43.04", (86,), "11.8", "11.8"),
    ("535.183.01", (89,), "12.9", "12.9"),
    ("560.28.03", (100,), None, None),
    ("570.86.15", (90,), "12.6", "12.6"),
    ("570.86.15", (120,), "12.9", "12.9"),
    ("575.51.03", (120,), "12.9", "12.9"),
    ("580.65.06", (60,), "12.9", "12.9"),
    ("580.65.06", (61, 80), "12.9", "12.9"),
    ("580.65.06", (75,), "13.0", "13.0"),
    ("580.65.06", (80, 120), "13.0", "13.0"),
    ("590.44.01", (100,), "13.0", "13.0"),
)


@pytest.mark.parametrize(("driver", "cards", "cuda", "pinned"), TABLE)
def test_the_build_is_that_of_the_target(
    driver: str, cards: tuple[int, ...], cuda: str | None, pinned: str | None, context: Context
) -> None:
    if cuda is None:
        with pytest.raises(NoSolutionError, match=f"need driver .* have {driver}"):
            choose(context, "pytorch", driver=driver, cards=cards)
        return
    solution = choose(context, "pytorch", driver=driver, cards=cards)
    versions = {package.name: package.version for package in solution.packages}
    assert builds(solution)["pytorch"].startswith(f"cuda{cuda.replace('.', '')}_")
    assert versions["cuda-version"] == pinned


def test_without_a_target_a_framework_is_refused_and_the_missing_thing_named(
    context: Context,
) -> None:
    with pytest.raises(
        NoSolutionError, match=r"pytorch 2.7.1 would be the build cpu_.* nothing"
    ) as e:
        choose(context, "pytorch")
    assert "[target]" in (e.value.hint or "")
    assert "cpu = true" in (e.value.hint or "")
    with pytest.raises(NoSolutionError, match="nothing says the driver of the nodes"):
        choose(context, "pytorch", cards=(80,))


def test_who_means_the_cpu_gets_its_build(context: Context) -> None:
    assert builds(choose(context, "pytorch", cpu=True))["pytorch"].startswith("cpu_")
    # a build that the recipe itself says is nobody else's to choose
    chosen = choose(context, "pytorch * cpu*", driver="580", cards=(80,))
    assert builds(chosen)["pytorch"].startswith("cpu_")
    assert "build for the CPU" in chosen.notes[0]


@pytest.mark.parametrize("spec", ["pytorch * cuda130*", "cuda-version 13.*"])
def test_a_cuda_that_the_recipe_asks_for_and_no_card_runs_is_refused(
    spec: str, context: Context
) -> None:
    with pytest.raises(NoSolutionError, match=r"cuda-version 13.0 is asked for; driver 580 and"):
        choose(context, spec, driver="580", cards=(70,))
    assert choose(context, spec, driver="580", cards=(90,)).packages


def test_builds_told_apart_by_flag_are_known_too(context: Context) -> None:
    assert builds(choose(context, "flagged", driver="550"))["flagged"] == "h_g"
    assert builds(choose(context, "flagged"))["flagged"] == "h_c"
    with pytest.raises(NoSolutionError, match="__cuda"):
        choose(context, 'flagged[flags=["cuda"]]')


@pytest.mark.parametrize(("cards", "build"), [((80,), "sm75"), ((90,), "sm90"), ((80, 90), "sm75")])
def test_packages_bound_to_the_card(cards: tuple[int, ...], build: str, context: Context) -> None:
    assert builds(choose(context, "kernels", driver="550", cards=cards))["kernels"] == build


def test_a_package_bound_to_the_card_is_refused_without_one(context: Context) -> None:
    with pytest.raises(NoSolutionError, match="__cuda_arch"):
        choose(context, "kernels", driver="550")


def test_what_fits_no_card_at_once_is_said() -> None:
    # no toolkit compiles for a K80 and an H100 but 11.8
    target = GpuTarget(driver="580", capabilities=(37, 90))
    assert toolkit_ranges(target) == (("11.8", "12.0"),)
    assert toolkit_ranges(GpuTarget(driver="580", capabilities=(37, 120))) == ()


def test_a_channel_without_a_gpu_build_for_the_target_is_named(tmp_path: Path) -> None:
    old = Package(name="pytorch", build="py3.10_cuda11.8_cudnn8.7.0_0", depends=("__cuda",))
    cpu = Package(name="pytorch", version="2.0", build="cpu_0")
    channel = make_channel(tmp_path / "old", [old, cpu, Package(name="jaxlib", build="cpu_0")])
    context = context_of(user_of(tmp_path, old=channel.as_uri()))
    refused = {"pytorch": "GPU builds for CUDA 11.8; driver 580 and cards of 12.0 need >=13.0"}
    refused["jaxlib"] = "the channels old have no GPU build of jaxlib"
    for name, said in refused.items():
        with pytest.raises(NoSolutionError, match=said):
            choose(context, name, channels=("old",), driver="580", cards=(120,))
    # the build string of the channel that PyTorch had is known
    found = choose(context, "pytorch", channels=("old",), driver="470", cards=(80,))
    assert builds(found)["pytorch"] == old.build


def test_nothing_of_this_machine_is_asked(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "13.0")
    monkeypatch.setenv("CONDA_OVERRIDE_GLIBC", "2.99")
    solution = choose(context, "flagged")
    assert solution.virtual == ("__unix=0", "__linux=4.18", "__glibc=2.36", "__archspec=1=x86_64")
