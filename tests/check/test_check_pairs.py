"""Releases of PyTorch on cards and drivers, judged as published.

Capabilities of cards and the least driver of each family stand in published.toml with their pages.
Code is what the wheels of the index are compiled for (torch.cuda.get_arch_list): of 1.13.1 to 2.4.1
the TORCH_CUDA_ARCH_LIST of manywheel/build_cuda.sh for that CUDA, in pytorch/builder's branches
orig/release/1.13 to 2.4; of 2.5.1 and 2.15.0 by cuobjdump; of 2.6.0 in the warning that it prints
on an RTX 50; of 2.7.1 and 2.8.0 the flags that the wheel's own libtorch_python.so has as text
(2.8.0 has sm_70, though its release notes say that it was taken away); of 2.9.1 to 2.13.0 in the
table "PyTorch CUDA Support" of RELEASE.md (pytorch/pytorch#164471, #175253, #182849, #197555; of
2.10.0 also get_arch_list in #182250).

Of TensorFlow the code of each release is what its wheel's build_info.py names (2.21: a scan), and
what Blackwell refuses is published in tensorflow#89272, #97387, #99592 and #101746.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.check.target import read_target
from envbuild.data import lookup
from tests.check.test_check_target import judged, torch_tree
from tests.check.tree import Tree, failures, make_recipe

KEPLER = (37, 50, 60, 70, 75, 80, 86)
MAXWELL = (50, 60, 70, 75, 80, 86, 90)
VOLTA = (70, 75, 80, 86, 90, 100, 120)
TURING = VOLTA[1:]
PUBLISHED = {
    "1.13.1": ("11.7", KEPLER),
    "2.0.1": ("11.7", KEPLER),
    "2.1.2": ("12.1", MAXWELL),
    "2.2.2": ("12.1", MAXWELL),
    "2.3.1": ("12.1", MAXWELL),
    "2.4.1": ("12.1", MAXWELL),
    "2.5.1": ("12.4", MAXWELL),
    "2.6.0": ("12.4", MAXWELL),
    "2.7.1": ("12.6", MAXWELL),
    "2.8.0": ("12.8", VOLTA),
    "2.9.1": ("12.8", VOLTA),
    "2.10.0": ("12.8", VOLTA),
    "2.11.0": ("13.0", TURING),
    "2.13.0": ("13.0", TURING),
    "2.15.0": ("13.2", TURING),
}
"""Release -> CUDA and capabilities with machine code; none of them has portable code."""
FITS, NO_CODE, OLD = "", "architecture", "driver"
PAIRS = [
    ("1.13.1", "A100", "450.80.02", FITS),
    ("1.13.1", "H100", "525.60.13", NO_CODE),
    ("1.13.1", "RTX 4090", "525.60.13", FITS),
    ("1.13.1", "K80", "470.82.01", FITS),
    ("1.13.1", "T4", "440.33.01", OLD),
    ("2.0.1", "V100", "450.80.02", FITS),
    ("2.0.1", "RTX 5090", "570.124.06", NO_CODE),
    ("2.1.2", "A100", "470.57.02", OLD),
    ("2.1.2", "H100", "535.54.03", FITS),
    ("2.1.2", "K80", "470.82.01", f"{NO_CODE} {OLD}"),
    ("2.2.2", "P100", "525.60.13", FITS),
    ("2.2.2", "GTX 1080", "525.60.13", FITS),
    ("2.3.1", "L40S", "535.54.03", FITS),
    ("2.4.1", "L4", "525.60.13", FITS),
    ("2.5.1", "A100", "525.60.13", FITS),
    ("2.5.1", "A100", "520.61.05", OLD),
    ("2.5.1", "RTX 5090", "570.124.06", NO_CODE),
    ("2.5.1", "B200", "570.124.06", NO_CODE),
    ("2.5.1", "GTX 980", "535.54.03", FITS),
    ("2.6.0", "H200", "550.54.14", FITS),
    ("2.7.1", "RTX 5090", "570.124.06", NO_CODE),
    ("2.7.1", "A40", "525.60.13", FITS),
    ("2.8.0", "RTX 5090", "570.124.06", FITS),
    ("2.8.0", "B200", "570.124.06", FITS),
    ("2.8.0", "P100", "535.54.03", NO_CODE),
    ("2.8.0", "V100", "525.60.13", FITS),
    ("2.8.0", "B300", "580.65.06", FITS),
    ("2.9.1", "H100", "525.60.13", FITS),
    ("2.9.1", "RTX PRO 6000 Blackwell", "575.57.08", FITS),
    ("2.10.0", "T4", "535.54.03", FITS),
    ("2.10.0", "GTX 1080 Ti", "535.54.03", NO_CODE),
    ("2.11.0", "V100", "580.65.06", NO_CODE),
    ("2.11.0", "A100", "550.54.14", OLD),
    ("2.11.0", "A100", "580.65.06", FITS),
    ("2.13.0", "T4", "580.65.06", FITS),
    ("2.13.0", "RTX 3090", "570.124.06", OLD),
    ("2.15.0", "H100", "580.65.06", FITS),
    ("2.15.0", "L40S", "535.54.03", OLD),
    ("2.15.0", "GB10", "580.95.05", FITS),
    ("2.15.0", "V100", "535.54.03", f"{NO_CODE} {OLD}"),
]


@pytest.mark.parametrize("release", PUBLISHED)
def test_a_release_runs_where_it_is_published_to_run(release: str, tmp_path: Path) -> None:
    cuda, sass = PUBLISHED[release]
    tree = torch_tree(tmp_path / "i", [("sass", one) for one in sass], version=release, cuda=cuda)
    told, right = {}, {}
    for _, card, driver, misfit in (pair for pair in PAIRS if pair[0] == release):
        found = failures(judged(tree, gpu=card, driver=driver))
        told[card, driver] = sorted(name for name in found if name.startswith("target-"))
        right[card, driver] = [f"target-{one}" for one in misfit.split()]
    assert told == right


def test_there_are_forty_pairs_and_each_release_has_one() -> None:
    assert len(PAIRS) == len({pair[:3] for pair in PAIRS}) == 40
    assert {pair[0] for pair in PAIRS} == set(PUBLISHED)


TENSORFLOW = [
    ("2.1.0", "V100", "418.87.01", FITS),
    ("2.1.0", "V100", "410.48", OLD),
    ("2.1.0", "A100", "450.80.02", FITS),
    ("2.3.0", "RTX 3090", "455.32.00", FITS),
    ("2.4.1", "A100", "450.80.02", FITS),
    ("2.4.1", "A100", "440.33.01", OLD),
    ("2.4.1", "K80", "450.80.02", FITS),
    ("2.4.1", "GTX 1080", "450.80.02", FITS),
    ("2.11.0", "H100", "525.60.13", FITS),
    ("2.11.0", "H100", "470.82.01", OLD),
    ("2.15.1", "K80", "525.60.13", NO_CODE),
    ("2.15.1", "P100", "525.60.13", FITS),
    ("2.15.1", "H100", "525.60.13", OLD),
    ("2.15.1", "H100", "535.54.03", FITS),
    ("2.16.2", "RTX 5090", "570.124.06", NO_CODE),
    ("2.17.1", "L40S", "525.60.13", FITS),
    ("2.17.1", "T4", "525.60.13", FITS),
    ("2.17.1", "A100", "470.82.01", OLD),
    ("2.18.1", "GTX 980", "535.54.03", NO_CODE),
    ("2.18.1", "H100", "525.60.13", FITS),
    ("2.20.0", "B200", "570.124.06", NO_CODE),
    ("2.21.0", "RTX 5090", "570.124.06", FITS),
    ("2.21.0", "H100", "525.60.13", OLD),
    ("2.21.0", "H100", "555.42.02", FITS),
]


@pytest.mark.parametrize("release", sorted({pair[0] for pair in TENSORFLOW}))
def test_tensorflow_runs_where_it_is_published_to_run(release: str, tmp_path: Path) -> None:
    module = {"tensorflow/__init__.py": f"__version__ = {release!r}\n"}
    tree = Tree(tmp_path / "i").install("tensorflow", release, module)
    told, right = {}, {}
    for _, card, driver, misfit in (pair for pair in TENSORFLOW if pair[0] == release):
        node = read_target(gpu=card, driver=driver)
        found = failures(tree.check(make_recipe(framework="tensorflow"), target=node))
        told[card, driver] = sorted(name for name in found if name.startswith("target-"))
        right[card, driver] = [f"target-{one}" for one in misfit.split()]
    assert told == right


CUPY = [
    ("cupy-cuda101", "418.87.01", FITS),
    ("cupy-cuda101", "410.48", OLD),
    ("cupy-cuda102", "440.33.01", FITS),
    ("cupy-cuda102", "430.50", OLD),
    ("cupy-cuda110", "450.36.06", FITS),
    ("cupy-cuda112", "450.80.02", FITS),
    ("cupy-cuda11x", "450.80.02", FITS),
    ("cupy-cuda11x", "440.33.01", OLD),
    ("cupy-cuda12x", "525.60.13", FITS),
    ("cupy-cuda12x", "535.54.03", FITS),
    ("cupy-cuda12x", "520.61.05", OLD),
    ("cupy-cuda13x", "580.65.06", FITS),
    ("cupy-cuda13x", "575.57.08", OLD),
]
"""Wheels of CuPy, by the CUDA in their name, and drivers.

CuPy compiles with NVRTC, which makes machine code since CUDA 11.1: minor-version compatibility
covers it (NVIDIA's CUDA compatibility guide), so each family has one oldest driver.
"""


@pytest.mark.parametrize("pair", CUPY, ids=" ".join)
def test_cupy_runs_where_it_is_published_to_run(pair: tuple[str, str, str], tmp_path: Path) -> None:
    name, driver, misfit = pair
    tree = Tree(tmp_path / "i").install(name, "13.0.0", {"cupy/__init__.py": ""})
    found = failures(tree.check(make_recipe(name), target=read_target(driver=driver)))
    told = [one for one in found if one.startswith("target-")]
    assert told == [f"target-{one}" for one in misfit.split()]


SHOWN = {
    "384.81": "9.0", "390.46": "9.1", "396.26": "9.2", "410.48": "10.0", "418.87.01": "10.1", "440.33.01": "10.2",
    "450.80.02": "11.0", "455.32.00": "11.1", "460.32.03": "11.2", "465.19.01": "11.3", "470.82.01": "11.4",
    "470.256.02": "11.4", "495.29.05": "11.5", "510.47.03": "11.6", "515.65.01": "11.7", "520.61.05": "11.8",
    "525.60.13": "12.0", "525.147.05": "12.0", "530.30.02": "12.1", "535.54.03": "12.2", "535.183.06": "12.2",
    "545.23.08": "12.3", "550.54.14": "12.4", "550.163.01": "12.4", "555.42.02": "12.5", "560.35.03": "12.6",
    "570.124.06": "12.8", "570.211.01": "12.8", "575.57.08": "12.9", "580.65.06": "13.0", "580.159.04": "13.0",
    "590.48.01": "13.1", "595.58.03": "13.2", "610.43.02": "13.3",
    "610.57.04": "13.3", "615.71.10": "13.4", "620.70.06": "13.5",
}  # fmt: skip
"""Driver -> the CUDA that nvidia-smi shows with it (565 shows 12.7, of which there is no toolkit)."""


def test_each_driver_has_the_cuda_that_nvidia_smi_shows() -> None:
    assert {driver: lookup.cuda_of_driver(driver) for driver in SHOWN} == SHOWN
