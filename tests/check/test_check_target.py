"""Images are judged for the node where they will run: its GPU, driver and C library."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.base.gpu_names import capability_of
from envbuild.check.answers import Code, CodeFile, Region
from envbuild.check.checks.gpu.devices import common_code
from envbuild.check.model import Finding, Report
from envbuild.check.plan import ProbeRequest
from envbuild.check.probe_runner import ProbeRunner
from envbuild.check.target import Target, read_target
from envbuild.data import lookup
from envbuild.errors import UsageError
from envbuild.run import Command, LocalRunner
from tests.check import fatbin
from tests.check.elf import shared_object
from tests.check.tree import Tree, failures, make_recipe, tensorflow_tree
from tests.support import needs

CU12 = [("sass", 50), ("sass", 70), ("sass", 80), ("sass", 90)]
HOPPER_ONLY = [("sass", 90)]


def torch_tree(
    root: Path, *regions: list[fatbin.Entry], version: str = "2.5.1", cuda: str = "12.4"
) -> Tree:
    library = fatbin.library(
        [fatbin.region(entries) for entries in regions or (CU12, CU12, HOPPER_ONLY)]
    )
    return Tree(root).install(
        "torch",
        version,
        {
            "torch/__init__.py": f"__version__ = {version!r}\n",
            "torch/version.py": f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n",
            "torch/lib/libtorch_cuda.so": library,
        },
    )


def judged(tree: Tree, **node: str) -> Report:
    return tree.check(make_recipe(framework="torch"), target=read_target(**node))


def finding(report: Report, check: str) -> Finding:
    return next(one for one in report.findings if one.check == check)


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("A100", 80),
        ("NVIDIA A100-SXM4-40GB", 80),
        ("Tesla V100S-PCIE-32GB", 70),
        ("a10", 86),
        ("A10G", 86),
        ("GTX 980 Ti", 52),
        ("RTX 3090", 86),
        ("GeForce GTX 1080 Ti", 61),
        ("RTX 6000 Ada", 89),
        ("Quadro RTX 6000", 75),
        ("RTX A6000", 86),
        ("H100 80GB HBM3", 90),
        ("NVIDIA RTX PRO 6000 Blackwell", 120),
        ("8.0", 80),
        ("sm_90a", 90),
        ("compute_120", 120),
        ("12.0", 120),
        ("NVIDIA R200", 107),
        ("VR200", 107),
    ],
)
def test_cards_are_known_by_the_names_that_tools_print(text: str, capability: int) -> None:
    assert capability_of(text) == capability


@pytest.mark.parametrize("text", ["A1000", "B", "", "Radeon", "H1000"])
def test_an_unknown_card_is_an_error_that_says_what_to_give(text: str) -> None:
    with pytest.raises(UsageError) as told:
        read_target(gpu=text)
    assert str(told.value).startswith(f'--gpu: the GPU "{text}" is not known')
    assert told.value.hint is not None
    assert told.value.hint.startswith(
        "give its compute capability (--gpu 8.0), or one of: K40, K80, "
    )


def test_versions_of_the_node_are_read_strictly() -> None:
    assert read_target() is None
    assert read_target(driver="450.80.02", glibc="2.28") == Target(driver="450.80.02", glibc="2.28")
    with pytest.raises(UsageError) as told:
        read_target(driver="new")
    assert str(told.value) == "--driver: 'new' is no version"


def test_a_node_that_fits_passes_with_what_was_measured(tmp_path: Path) -> None:
    report = judged(torch_tree(tmp_path / "i"), gpu="A100", driver="535.54.03", glibc="2.28")
    assert failures(report) == {}
    assert report.target == "A100, driver 535.54.03, glibc 2.28"
    architecture = finding(report, "target-architecture")
    assert architecture.reason == "torch 2.5.1 has machine code for A100 (capability 8.0)"
    assert architecture.evidence["sass"] == [50, 70, 80, 90]
    assert architecture.evidence["source"] == "scan of torch/lib/libtorch_cuda.so"
    assert (
        finding(report, "target-driver").reason
        == "driver 535.54.03 (CUDA 12.2) runs torch 2.5.1, built for CUDA 12.4"
    )
    assert finding(report, "target-glibc").reason.startswith("the image brings its own glibc ")


@pytest.mark.parametrize(
    ("regions", "node", "expected"),
    [
        (
            [CU12],
            {"gpu": "A100", "driver": "450.80.02"},
            {
                "target-driver": "driver 450.80.02 is too old for CUDA 12.4 of torch 2.5.1, which needs 525.60.13 or newer"
            },
        ),
        (
            [[("sass", 37), ("sass", 50), ("sass", 70)]],
            {"gpu": "A100"},
            {
                "target-architecture": "torch 2.5.1 has no code for A100 (capability 8.0): machine code for 3.7, 5.0, 7.0, "
                "no portable code"
            },
        ),
        (
            [CU12, CU12, HOPPER_ONLY],
            {"gpu": "RTX 5090"},
            {
                "target-architecture": "torch 2.5.1 has no code for RTX 5090 (capability 12.0): machine code for 5.0, 7.0, "
                "8.0, 9.0, no portable code"
            },
        ),
        (
            [[("sass", 75), ("sass", 80)]],
            {"gpu": "7.0"},
            {
                "target-architecture": "torch 2.5.1 has no code for capability 7.0: machine code for 7.5, 8.0, no portable "
                "code"
            },
        ),
        (
            [[("sass", 70), ("ptx", 80)]],
            {"gpu": "H100", "driver": "535.54.03"},
            {
                "target-driver": "torch 2.5.1 has only portable code for H100 (capability 9.0); driver 535.54.03 (CUDA "
                "12.2) cannot compile what CUDA 12.4 made"
            },
        ),
        (
            [CU12],
            {"gpu": "B200", "driver": "550.54.14"},
            {
                "target-architecture": "torch 2.5.1 has no code for B200 (capability 10.0): machine code for 5.0, 7.0, 8.0, "
                "9.0, no portable code",
                "target-driver": "driver 550.54.14 does not know B200 (capability 10.0), which needs 570.26 or newer",
            },
        ),
    ],
)
def test_each_misfit_is_named(
    regions: list[list[fatbin.Entry]],
    node: dict[str, str],
    expected: dict[str, str],
    tmp_path: Path,
) -> None:
    report = judged(torch_tree(tmp_path / "i", *regions), **node)
    assert failures(report) == expected
    assert all(one.hint for one in report.findings if one.outcome == "failed")


@pytest.mark.parametrize(
    ("regions", "node", "reason"),
    [
        (
            [[("ptx", 70)]],
            {"gpu": "H100", "driver": "550.54.14"},
            "torch 2.5.1 has portable code for H100 (capability 9.0), compiled at first use (minutes, once)",
        ),
        ([[("sass", 80)]], {"gpu": "A40"}, "torch 2.5.1 has machine code for A40 (capability 8.6)"),
    ],
)
def test_nodes_that_fit_in_another_way_are_not_accused(
    regions: list[list[fatbin.Entry]], node: dict[str, str], reason: str, tmp_path: Path
) -> None:
    report = judged(torch_tree(tmp_path / "i", *regions), **node)
    assert failures(report) == {}
    assert finding(report, "target-architecture").reason == reason


def compat_tree(root: Path, version: str = "550.54.15") -> Tree:
    """Make an image with a libcuda of its own before the node's (cuda-compat)."""
    tree = torch_tree(root)
    folder = tree.root / "usr/local/cuda-12.4/compat"
    folder.mkdir(parents=True)
    library = shared_object(["libc.so.6"], soname="libcuda.so.1")
    (folder / f"libcuda.so.{version}").write_bytes(library)
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    (tree.root / "usr/local/cuda").symlink_to("cuda-12.4")
    tree.env["LD_LIBRARY_PATH"] = f"{tree.root}/usr/local/cuda/compat:/.singularity.d/libs"
    return tree


@pytest.mark.parametrize("gpu", ["A100", "Tesla_T4", "RTX A6000", "8.0", None])
def test_a_newer_libcuda_of_the_image_serves_an_old_driver(gpu: str | None, tmp_path: Path) -> None:
    node = {"gpu": gpu} if gpu else {}
    report = judged(compat_tree(tmp_path / "i"), driver="470.82.01", **node)
    assert failures(report) == {}
    assert finding(report, "target-driver").reason == (
        "driver 470.82.01 is too old for CUDA 12.4 of torch 2.5.1, which needs 525.60.13 or newer, "
        "and the image's own libcuda 550.54.15 comes before it: data-centre GPUs run with that, on "
        "the drivers that NVIDIA's guide names for it"
    )


@pytest.mark.parametrize("gpu", ["RTX 3090", "GeForce GTX 1080 Ti", "2080ti"])
def test_cards_for_games_have_no_forward_compatibility(gpu: str, tmp_path: Path) -> None:
    report = judged(compat_tree(tmp_path / "i"), gpu=gpu, driver="470.82.01")
    assert failures(report)["target-driver"].endswith(
        "; libcuda 550.54.15 of the image serves data-centre GPUs only"
    )


def test_a_libcuda_of_the_image_that_is_too_old_or_behind_helps_nobody(tmp_path: Path) -> None:
    old = judged(compat_tree(tmp_path / "i", "515.65.01"), gpu="A100", driver="470.82.01")
    tree = compat_tree(tmp_path / "j")
    del tree.env["LD_LIBRARY_PATH"]
    behind = judged(tree, gpu="A100", driver="470.82.01")
    for report in (old, behind):
        assert failures(report)["target-driver"].endswith("which needs 525.60.13 or newer")


def test_what_to_take_for_an_old_driver_is_said(tmp_path: Path) -> None:
    report = judged(torch_tree(tmp_path / "i"), gpu="A100", driver="450.80.02")
    assert finding(report, "target-driver").hint == (
        "take a release of torch for CUDA 11.8 or older, or a node with a newer driver"
    )


def test_without_readable_code_the_table_of_releases_tells(tmp_path: Path) -> None:
    tree, recipe, lock = tensorflow_tree(tmp_path / "i")
    report = tree.check(recipe, lock, target=read_target(gpu="K80"))
    assert failures(report)["target-architecture"].startswith(
        "tensorflow 2.15.1 has no code for K80 (capability 3.7)"
    )
    assert finding(report, "target-architecture").evidence["source"] == "build_info.py"


def test_no_framework_means_no_judgement(tmp_path: Path) -> None:
    report = Tree(tmp_path / "i").check(target=read_target(gpu="A100", driver="450.80.02"))
    assert failures(report) == {}
    assert finding(report, "target-driver").outcome == "skipped"


def test_a_node_newer_than_the_image_is_noted_and_an_ancient_image_fails(tmp_path: Path) -> None:
    newer = judged(torch_tree(tmp_path / "i"), glibc="9.9")
    assert "older than the node's 9.9: CUDA runs" in finding(newer, "target-glibc").reason


# -- the scan


def scan(root: Path, content: bytes) -> Code:
    tree = Tree(root)
    tree.write("torch/lib/libtorch_cuda.so", content)
    request = ProbeRequest(
        name="fatbin_probe", parameters={"files": ["torch/lib/*.so"], "limit": 20, "prefix": ""}
    )
    answer = (
        ProbeRunner(tree.root, tree, LocalRunner(), gpu=False).ask((request,)).answer(request, Code)
    )
    assert answer.data is not None, answer
    return answer.data


PLAIN = (Region(count=2, sass=(70, 80), ptx=(80,)),)


@pytest.mark.parametrize("section", [".nv_fatbin", "__nv_relfatbin", None])
def test_code_is_found_in_its_sections_or_in_the_whole_of_a_stripped_file(
    section: str | None, tmp_path: Path
) -> None:
    entries: list[fatbin.Entry] = [("sass", 70), ("sass", 80), ("ptx", 80)]
    content = fatbin.library(
        [fatbin.region(entries), b"\0" * 999, fatbin.region(entries)], section=section
    )
    assert [one.regions for one in scan(tmp_path / "i", content).files] == [PLAIN]


def test_magic_numbers_without_a_region_and_cut_off_ones_are_no_code(tmp_path: Path) -> None:
    loose = b"\x50\xed\x55\xba" * 3
    cut = fatbin.region([("sass", 80)])[:-1]
    assert scan(tmp_path / "i", fatbin.library([loose, cut], section=None)).files == ()


@settings(max_examples=10, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 400))
def test_no_bytes_make_the_scan_fail(noise: bytes, cut: int) -> None:
    import tempfile

    content = fatbin.library([noise, fatbin.region([("sass", 80)])], noise=noise)
    with tempfile.TemporaryDirectory() as folder:
        assert scan(Path(folder) / "i", content[: len(content) - cut]).bytes <= len(content)


def test_single_kernels_for_one_gpu_do_not_speak_for_all() -> None:
    regions = (
        Region(count=247, sass=(50, 70, 80), ptx=(80,)),
        Region(count=362, sass=(), ptx=(90,)),
        Region(count=30, sass=(90,), ptx=()),
    )
    assert common_code((CodeFile(path="x", regions=regions),)) == (
        (50, 70, 80),
        (80,),
        (50, 70, 80),
    )
    assert common_code((CodeFile(path="x", regions=regions[1:2]),)) == ((), (90,), ())


# -- versions of symbols


def built(folder: Path, name: str, source: str, *flags: str) -> Path:
    (folder / "source.c").write_text(source)
    LocalRunner()(
        Command(argv=("cc", "-shared", "-fPIC", "-o", name, "source.c", *flags), cwd=folder)
    )
    return folder / name


@needs("cc")
def test_a_library_older_than_what_was_linked_is_named(tmp_path: Path) -> None:
    (tmp_path / "new.map").write_text(
        "THING_1.9 { global: one; };\nTHING_1.10 { global: two; } THING_1.9;\n"
    )
    (tmp_path / "old.map").write_text("THING_1.9 { global: one; };\n")
    both = "int one(void) { return 1; }\nint two(void) { return 2; }\n"
    new = ("-Wl,--version-script=new.map", "-Wl,-soname,libthing.so.1")
    library = built(tmp_path, "libthing.so.1", both, *new)
    user = built(
        tmp_path,
        "user.so",
        "int one(void); int two(void); int use(void) { return one() + two(); }\n",
        str(library),
    )
    tree = Tree(tmp_path / "image")
    tree.install("user", "1", {"user/native.so": user.read_bytes()})
    tree.env["LD_LIBRARY_PATH"] = str(tmp_path)
    assert failures(tree.check()) == {}
    built(
        tmp_path, "libthing.so.1", both, "-Wl,--version-script=old.map", "-Wl,-soname,libthing.so.1"
    )
    assert failures(tree.check()) == {
        "shared-libraries": "user/native.so needs THING_1.10 of libthing.so.1, and the image's is older"
    }


CARDS = {
    35: ["Tesla K40m"],
    37: ["Tesla K80"],
    50: ["Tesla M10", "GeForce GTX 750 Ti"],
    52: [
        "Tesla M60",
        "Tesla M40 24GB",
        "Quadro M6000 24GB",
        "GeForce GTX TITAN X",
        "GeForce GTX 980 Ti",
    ],
    60: ["Tesla P100-PCIE-16GB", "Quadro GP100"],
    61: [
        "Tesla P40",
        "Tesla P4",
        "Quadro P5000",
        "Quadro P400",
        "NVIDIA TITAN X (Pascal)",
        "NVIDIA TITAN Xp",
        "GeForce GTX 1080 Ti",
        "GeForce GTX 1050",
    ],
    62: ["Jetson TX2"],
    70: ["Tesla V100-SXM2-32GB", "Tesla V100S-PCIE-32GB", "Quadro GV100", "NVIDIA TITAN V"],
    72: ["Xavier NX"],
    75: [
        "Tesla T4",
        "NVIDIA T4G",
        "NVIDIA T1000 8GB",
        "NVIDIA T400 4GB",
        "Quadro RTX 3000",
        "Quadro RTX 4000",
        "Quadro RTX 5000",
        "Quadro RTX 6000",
        "Quadro RTX 8000",
        "NVIDIA TITAN RTX",
        "GeForce RTX 2080 Ti",
        "GeForce GTX 1660 SUPER",
    ],
    80: ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A800-SXM4-80GB", "NVIDIA A30"],
    86: [
        "NVIDIA A10",
        "NVIDIA A10G",
        "NVIDIA A2",
        "NVIDIA A16",
        "NVIDIA A40",
        "NVIDIA RTX A2000 12GB",
        "NVIDIA RTX A4000",
        "NVIDIA RTX A4500",
        "NVIDIA RTX A5000",
        "NVIDIA RTX A6000",
        "NVIDIA GeForce RTX 3060 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
    ],
    87: ["Orin Nano", "Jetson AGX Orin"],
    89: [
        "NVIDIA L4",
        "NVIDIA L40",
        "NVIDIA L40S",
        "NVIDIA L20",
        "NVIDIA RTX 2000 Ada Generation",
        "NVIDIA RTX 3000 Ada Generation Laptop GPU",
        "NVIDIA RTX 4000 SFF Ada Generation",
        "NVIDIA RTX 4500 Ada Generation",
        "NVIDIA RTX 5000 Ada Generation",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4060 Ti",
    ],
    90: [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA H200",
        "NVIDIA H20",
        "NVIDIA GH200 480GB",
    ],
    100: ["NVIDIA B200", "NVIDIA GB200"],
    103: ["NVIDIA B300 SXM6 AC", "NVIDIA GB300"],
    120: [
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA RTX PRO 4500 Blackwell",
        "NVIDIA GeForce RTX 5090",
        "NVIDIA GeForce RTX 5070 Ti",
    ],
    121: ["NVIDIA GB10"],
}
"""Names as nvidia-smi prints them, by compute capability (NVIDIA's list of CUDA GPUs)."""


@pytest.mark.parametrize(("capability", "names"), CARDS.items())
def test_cards_by_the_names_that_tools_print(capability: int, names: list[str]) -> None:
    assert {name: capability_of(name) for name in names} == dict.fromkeys(names, capability)
    assert sum(map(len, CARDS.values())) >= 80


def test_code_for_one_gpu_alone_runs_on_no_other() -> None:
    assert lookup.runs_on(90, (), (), (90,)) == "sass"
    assert lookup.runs_on(100, (), (), (90,)) is None
    assert (
        lookup.runs_on(103, (100,), (), (100,)) == "sass"
    )  # plain code beside it runs on 10.3 too
    assert lookup.runs_on(103, (), (), (100,)) is None


OLDEST = {
    "9.0": "384.81", "9.1": "390.46", "9.2": "396.26", "10.0": "410.48", "10.1": "418.39", "10.2": "440.33",
    "11.0": "450.36.06", "11.1": "450.80.02", "11.2": "450.80.02", "11.3": "450.80.02", "11.4": "450.80.02",
    "11.5": "450.80.02", "11.6": "450.80.02", "11.7": "450.80.02", "11.8": "450.80.02", "12.0": "525.60.13",
    "12.1": "525.60.13", "12.2": "525.60.13", "12.3": "525.60.13", "12.4": "525.60.13", "12.5": "525.60.13",
    "12.6": "525.60.13", "12.8": "525.60.13", "12.9": "525.60.13", "13.0": "580.65.06", "13.1": "580.65.06",
    "13.2": "580.65.06", "12": "525.60.13", "13": "580.65.06",
}  # fmt: skip
"""Oldest drivers on Linux x86_64 (CUDA toolkit release notes, table "CUDA Toolkit and Minimum Required Driver")."""
NEWEST = {
    "384.81": "9.0", "410.104": "10.0", "418.87": "10.1", "440.33": "10.2", "450.80.02": "11.8", "470.57": "11.8",
    "510.47": "11.8", "515.65": "11.8", "525.60.13": "12.9", "535.104": "12.9", "550.54": "12.9", "565.57": "12.9",
    "570.26": "12.9", "580.65.06": "13.5", "595.45.04": "13.5",
}  # fmt: skip
"""Newest toolkit whose machine code a driver runs, by the same table and minor-version compatibility."""


@pytest.mark.parametrize(
    ("toolkit", "driver"), [*OLDEST.items(), ("12.5.1", "525.60.13"), ("14.0", None)]
)
def test_the_oldest_driver_of_each_toolkit_is_the_published_one(
    toolkit: str, driver: str | None
) -> None:
    assert lookup.oldest_driver(toolkit) == driver


@pytest.mark.parametrize(("driver", "toolkit"), NEWEST.items())
def test_the_newest_toolkit_of_a_driver_is_the_published_one(driver: str, toolkit: str) -> None:
    assert lookup.newest_toolkit(driver) == toolkit


@pytest.mark.parametrize(
    ("plugin", "driver", "old"),
    [
        ("jax-cuda12-plugin", "450.80.02", True),
        ("jax-cuda12-plugin", "520.61.05", True),
        ("jax-cuda12-plugin", "525.60.13", False),
        ("jax-cuda12-plugin", "535.54.03", False),
        ("jax-cuda13-plugin", "550.54.14", True),
        ("jax-cuda13-plugin", "575.57.08", True),
        ("jax-cuda13-plugin", "580.65.06", False),
    ],
)
def test_the_driver_that_jax_needs_is_that_of_its_plugin(
    plugin: str, driver: str, old: bool, tmp_path: Path
) -> None:
    tree = Tree(tmp_path / "i").install("jax", "0.7.2", {"jax/__init__.py": ""})
    tree.install("jaxlib", "0.7.2", {"jaxlib/__init__.py": ""})
    tree.install(plugin, "0.7.2").install(plugin.replace("plugin", "pjrt"), "0.7.2")
    report = tree.check(make_recipe("jax"), target=read_target(driver=driver))
    assert ("target-driver" in failures(report)) is old
