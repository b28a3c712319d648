"""GPU checks with a driver made of C and frameworks made of a few lines; no GPU is needed or touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from envbuild.check.model import Finding, Level, Report
from envbuild.check.perform import gpu_present
from tests.check import fake_frameworks
from tests.check.conda_tree import CondaTree
from tests.check.tree import BUILD_INFO, Tree, failures, install_cuda, make_recipe, tensorflow_files
from tests.support import needs

pytestmark = needs("cc")


def finding(report: Report, check: str) -> Finding:
    return next(one for one in report.findings if one.check == check)


def with_driver(tree: Tree, driver: Path, **answers: str) -> Tree:
    tree.env.update({"LD_LIBRARY_PATH": str(driver), **answers})
    return tree


def torch_tree(root: Path) -> Tree:
    tree = Tree(root)
    tree.write("numpy/__init__.py", fake_frameworks.NUMPY)
    version = "cuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n"
    return tree.install(
        "torch", "2.5.1", {"torch/__init__.py": fake_frameworks.TORCH, "torch/version.py": version}
    )


def tensorflow_gpu_tree(
    root: Path, source: str = fake_frameworks.TENSORFLOW, version: str = "2.15.1"
) -> Tree:
    tree = Tree(root)
    tree.write("numpy/__init__.py", fake_frameworks.NUMPY)
    tree.install("tensorflow", version, tensorflow_files() | {"tensorflow/__init__.py": source})
    install_cuda(tree)
    return tree


def check_torch(tree: Tree) -> Report:
    return tree.check(make_recipe(framework="torch==2.5.*"), gpu=True)


def test_cuda_of_conda_alone_is_judged_by_the_driver_of_the_node(
    tmp_path: Path, driver: Path
) -> None:
    tree = CondaTree(tmp_path / "i")
    tree.add_cuda("13.0")
    with_driver(tree.tree, driver, CONDA_PREFIX=str(tree.prefix))
    report = tree.tree.check(None, None, gpu=True)
    assert finding(report, "driver").reason == (
        "driver 535.129.03 is too old for CUDA 13.0, which needs 580.65.06 or newer"
    )


def test_a_healthy_gpu_passes_and_is_described(tmp_path: Path, driver: Path) -> None:
    report = check_torch(with_driver(torch_tree(tmp_path / "i"), driver))
    assert failures(report) == {}
    assert report.gpu == ("Fake A100",)
    assert report.driver == "535.129.03"
    assert finding(report, "driver").reason == "driver 535.129.03, supports CUDA 12.2"
    assert finding(report, "driver").evidence["path"] == str(driver / "libcuda.so.1")
    assert finding(report, "devices").reason == "Fake A100 (capability 8.0)"
    assert (
        finding(report, "architecture").reason
        == "torch 2.5.1 has machine code for Fake A100 (capability 8.0)"
    )
    assert finding(report, "compute").reason == (
        "torch computed a matrix product on 1 GPU; relative error 0.0e+00 (up to 1e-03 is right)"
    )


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            {"FAKE_INIT": "34", "FAKE_COUNT": "0"},
            {
                "driver": "cuInit answers 34, CUDA_ERROR_STUB_LIBRARY: a stub of libcuda was loaded, which is only for linking"
            },
        ),
        (
            {"FAKE_INIT": "803"},
            {
                "driver": "cuInit answers 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: libcuda and the kernel's driver are of "
                "different releases; often a compat folder of the image comes first"
            },
        ),
        ({"FAKE_INIT": "777"}, {"driver": "cuInit answers 777, an unknown code"}),
        (
            {"FAKE_DRIVER": "470.42.01", "FAKE_CUDA": "11040"},
            {"driver": "driver 470.42.01 is too old for CUDA 12.4, which needs 525.60.13 or newer"},
        ),
        ({"FAKE_COUNT": "0"}, {"devices": "the driver shows no GPU to the container"}),
        (
            {"CUDA_VISIBLE_DEVICES": "0,1", "FAKE_COUNT": "1"},
            {"devices": "CUDA_VISIBLE_DEVICES promises 2 GPUs (0,1); the driver shows 1"},
        ),
        (
            {"FAKE_CAPABILITY": "120"},
            {
                "architecture": "torch 2.5.1 has no code for Fake A100 (capability 12.0): machine code for 5.0, 7.0, 8.0, "
                "9.0, no portable code"
            },
        ),
        (
            {"FAKE_CAPABILITY": "120", "FAKE_ARCHES": "sm_80 compute_90"},
            {
                "architecture": "torch 2.5.1 has only portable code for Fake A100 (capability 12.0), and the driver "
                "supports CUDA 12.2, older than the 12.4 that it was made with"
            },
        ),
        (
            {"FAKE_FAULT": "cpu"},
            {"compute": "torch on GPU 0: the product was computed elsewhere (cpu)"},
        ),
        (
            {"FAKE_FAULT": "raise"},
            {
                "compute": "torch on GPU 0: RuntimeError: CUDA error: no kernel image is available for execution on the "
                "device"
            },
        ),
        (
            {"FAKE_FAULT": "nan"},
            {"compute": "torch on GPU 0: the product has values that are not finite"},
        ),
        (
            {"FAKE_FAULT": "none"},
            {
                "compute": "torch sees 0 GPUs where the driver shows 1; it says: RuntimeError: The NVIDIA driver on your "
                "system is too old (found version 11000)"
            },
        ),
    ],
    ids=lambda value: (
        "-".join(f"{k}={v}" for k, v in value.items()) if "FAKE" in str(value) else None
    ),
)
def test_each_fault_of_gpu_and_driver_is_named(
    answers: dict[str, str], expected: dict[str, str], tmp_path: Path, driver: Path
) -> None:
    report = check_torch(with_driver(torch_tree(tmp_path / "i"), driver, **answers))
    found = failures(report)
    assert {name: found.get(name) for name in expected} == expected
    assert all(one.hint for one in report.findings if one.outcome == "failed")


def test_a_wrong_product_is_a_failure(tmp_path: Path, driver: Path) -> None:
    report = check_torch(with_driver(torch_tree(tmp_path / "i"), driver, FAKE_FAULT="wrong"))
    assert list(failures(report)) == ["compute"]
    assert failures(report)["compute"].startswith(
        "torch on GPU 0: the product is wrong: relative error 0."
    )


def test_portable_code_on_a_new_driver_passes_and_says_that_it_is_slow_at_first(
    tmp_path: Path, driver: Path
) -> None:
    tree = with_driver(
        torch_tree(tmp_path / "i"),
        driver,
        FAKE_CAPABILITY="120",
        FAKE_ARCHES="sm_80 compute_90",
        FAKE_CUDA="12080",
    )
    report = check_torch(tree)
    assert failures(report) == {}
    assert finding(report, "architecture").reason == (
        "torch 2.5.1 has portable code for Fake A100 (capability 12.0), which the driver compiles at first use "
        "(minutes, once)"
    )


def test_a_stub_in_the_path_is_told_by_its_real_place(tmp_path: Path, driver: Path) -> None:
    stubs = tmp_path / "stubs"
    shutil.copytree(driver, stubs)
    report = check_torch(with_driver(torch_tree(tmp_path / "i"), stubs))
    assert (
        failures(report)["driver"]
        == f"{stubs}/libcuda.so.1 was loaded, a stub that is only for linking"
    )


def test_a_driver_on_the_host_but_not_in_the_container(tmp_path: Path) -> None:
    report = check_torch(torch_tree(tmp_path / "i"))
    if finding(report, "driver").evidence["path"]:
        pytest.skip("this machine has a libcuda.so.1 of its own")
    assert failures(report)["driver"].startswith(
        "the container has no libcuda.so.1, though this machine has a driver: libcuda.so.1: cannot open"
    )


def test_without_a_gpu_its_checks_are_skipped_and_where_one_is_required_there_is_no_verdict(
    tmp_path: Path,
) -> None:
    recipe = make_recipe(framework="torch==2.5.*")
    tree = torch_tree(tmp_path / "i")
    names = ["driver", "devices", "architecture", "compute"]
    skipped = [one for one in tree.check(recipe).findings if one.check in names]
    assert [(one.check, one.outcome, one.reason) for one in skipped] == [
        (name, "skipped", "this machine has no NVIDIA driver") for name in names
    ]
    assert {one.hint for one in skipped} == {
        "check on a node with a GPU: envbuild check IMAGE --require-gpu"
    }
    assert tree.check(recipe).verdict == "passed"
    assert tree.check(recipe, require_gpu=True).verdict == "skipped"


def test_the_deeper_levels_ask_for_more_and_are_skipped_without_a_gpu(tmp_path: Path) -> None:
    tree = torch_tree(tmp_path / "i")
    recipe = make_recipe(framework="torch==2.5.*")
    levels: tuple[Level, ...] = ("quick", "full", "soak")
    quick, full, soak = (
        {one.check for one in tree.check(recipe, level=level).findings} for level in levels
    )
    assert full - quick == {
        "precision",
        "convolution",
        "training",
        "compiled",
        "seen-by-driver",
        "one-prefix",
        "speed",
        "collective",
    }
    assert soak - full == {"endurance"}


def test_the_framework_is_asked_for_the_tasks_of_the_level(tmp_path: Path, driver: Path) -> None:
    """The stand-in for PyTorch can multiply only: all else is told as failed, with its own words."""
    tree = with_driver(torch_tree(tmp_path / "i"), driver)
    report = tree.check(make_recipe(framework="torch==2.5.*"), gpu=True, level="full")
    assert finding(report, "compute").outcome == "passed"
    assert failures(report)["training"].startswith("torch on GPU 0: AttributeError: ")
    assert finding(report, "collective").reason == "there is one GPU only"
    assert (
        finding(report, "seen-by-driver").reason
        == "NVML lists the process; memory in use rose by 512 MiB"
    )


def test_tensorflow_2_is_asked_eagerly(tmp_path: Path, driver: Path) -> None:
    tree = with_driver(tensorflow_gpu_tree(tmp_path / "i"), driver)
    report = tree.check(make_recipe(framework="tensorflow==2.15.*"), gpu=True)
    assert failures(report) == {}
    assert finding(report, "architecture").evidence == {
        "sass": [50, 60, 70, 75, 80],
        "ptx": [80],
        "source": "build_info.py",
    }
    (result,) = finding(report, "compute").evidence["results"]
    assert result["device"] == "/job:localhost/replica:0/task:0/device:GPU:0"


def test_tensorflow_that_goes_on_without_the_gpu_is_caught_with_its_own_words(
    tmp_path: Path, driver: Path
) -> None:
    tree = with_driver(tensorflow_gpu_tree(tmp_path / "i"), driver, FAKE_FAULT="none")
    report = tree.check(make_recipe(framework="tensorflow==2.15.*"), gpu=True)
    assert failures(report) == {
        "compute": "tensorflow sees 0 GPUs where the driver shows 1; it says: Could not load dynamic library "
        "'libcudnn.so.8'; dlerror: no such file"
    }


def test_tensorflow_1_is_asked_through_a_session(tmp_path: Path, driver: Path) -> None:
    tree = tensorflow_gpu_tree(tmp_path / "i", fake_frameworks.TENSORFLOW_1, "1.15.5")
    tree.write("tensorflow/python/__init__.py")
    tree.write("tensorflow/python/client/__init__.py")
    tree.write("tensorflow/python/client/device_lib.py", fake_frameworks.DEVICE_LIB)
    build_info = "is_cuda_build = True\ncuda_version_number = '12.2'\ncudnn_version_number = '8'\n"
    tree.write("tensorflow/python/platform/build_info.py", build_info)
    report = with_driver(tree, driver).check(make_recipe(framework="tensorflow==1.15.*"), gpu=True)
    assert set(failures(report)) == {"base-files"}  # the tree is a 2.15 with its files changed
    assert finding(report, "compute").outcome == "passed"


@pytest.mark.parametrize("fault", ["", "cpu", "none"])
@pytest.mark.parametrize(
    ("name", "source"), [("jax", fake_frameworks.JAX), ("cupy-cuda12x", fake_frameworks.CUPY)]
)
def test_jax_and_cupy_are_asked_too(
    name: str, source: str, fault: str, tmp_path: Path, driver: Path
) -> None:
    tree = Tree(tmp_path / "i")
    tree.write("numpy/__init__.py", fake_frameworks.NUMPY)
    tree.install(name, "1.0", {f"{name.removesuffix('-cuda12x')}/__init__.py": source})
    report = with_driver(tree, driver, FAKE_FAULT=fault).check(make_recipe(name), gpu=True)
    works = not fault or (fault, name) == ("cpu", "cupy-cuda12x")  # CuPy has no CPU to fall back to
    assert finding(report, "compute").outcome == ("passed" if works else "failed")


def test_the_framework_probe_that_crashes_is_a_finding(tmp_path: Path, driver: Path) -> None:
    tree = with_driver(torch_tree(tmp_path / "i"), driver)
    tree.write(
        "torch/__init__.py",
        fake_frameworks.TORCH.replace("product(self.value", "os.abort(), product(self.value"),
    )
    assert failures(check_torch(tree))["compute"] == "the torch probe was killed by SIGABRT"


def test_the_driver_of_the_host_is_seen_by_its_device_or_its_proc_file(tmp_path: Path) -> None:
    assert not gpu_present(tmp_path)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    assert gpu_present(tmp_path)


def test_mig_is_noted(tmp_path: Path, driver: Path) -> None:
    report = check_torch(with_driver(torch_tree(tmp_path / "i"), driver, FAKE_MIG="1"))
    assert finding(report, "devices").evidence["mig"] == [True]


def test_the_fixture_is_what_the_wheel_has() -> None:
    assert "'sm_75', 'compute_80'" in BUILD_INFO
