"""Sick trees, each with exactly one real fault, the checks that find it and their words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

from envbuild.check import plan
from envbuild.check.model import Report
from envbuild.check.target import read_target
from tests.check import fatbin
from tests.check.elf import shared_object
from tests.check.tree import (
    BUILD_INFO,
    Tree,
    install_cuda,
    make_lock,
    make_recipe,
    tensorflow_files,
    tensorflow_tree,
)

Sick = tuple[Callable[[Path], Report], dict[str, str]]


def second_tensorflow_over_the_bases(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("tensorflow-cpu", "2.4.1", {"tensorflow/__init__.py": "__version__ = '2.4.1'\n"})
    return tree.check(recipe, lock)


def other_tensorflow_than_locked(root: Path) -> Report:
    tree, recipe, _ = tensorflow_tree(root)
    return tree.check(recipe, make_lock({"tensorflow": "2.15.0"}))


def framework_absent(root: Path) -> Report:
    return Tree(root).check(make_recipe(framework="tensorflow==2.15.*"))


def changed_file(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.write("tensorflow/python/platform/build_info.py", BUILD_INFO.replace("sm_50", "sm_35"))
    return tree.check(recipe, lock)


def removed_file(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    (tree.site / "nvidia/cufft/__init__.py").unlink()
    return tree.check(recipe, lock)


def framework_installed_again(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    return tree.check(recipe, lock, records={"tensorflow": "1" * 64, "not-there": "2" * 64})


def cudnn_not_installed(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root, without=["nvidia-cudnn-cu12"])
    return tree.check(recipe, lock)


def cudnn_of_another_major_version(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root, without=["nvidia-cudnn-cu12"])
    tree.install("nvidia-cudnn-cu12", "9.3.0.75", {"nvidia/cudnn/lib/libcudnn.so.9": shared_object(["libc.so.6"])})
    return tree.check(recipe, lock)


def cudnn_too_old(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root, without=["nvidia-cudnn-cu12"])
    tree.install("nvidia-cudnn-cu12", "8.6.0.163", {"nvidia/cudnn/lib/libcudnn.so.8": shared_object(["libc.so.6"])})
    return tree.check(recipe, lock)


def cuda_of_another_machine(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root, without=["nvidia-cufft-cu12"])
    tree.install("nvidia-cufft-cu12", "11.0", {"nvidia/cufft/lib/libcufft.so.11": shared_object(machine=183)})
    return tree.check(recipe, lock)


def cpu_build_of_torch(root: Path) -> Report:
    tree = Tree(root).install(
        "torch", "2.5.1+cpu", {"torch/__init__.py": "", "torch/version.py": "cuda: Optional[str] = None\nhip = None\n"}
    )
    return tree.check(make_recipe(framework="torch==2.5.*"))


def cpu_distribution_of_tensorflow(root: Path) -> Report:
    tree = Tree(root).install("intel-tensorflow", "2.15.1", {"tensorflow/__init__.py": "__version__ = '2.15.1'\n"})
    return tree.check(make_recipe(framework="tensorflow==2.15.*"))


def jax_without_plugin(root: Path) -> Report:
    tree = Tree(root).install("jax", "0.4.30", {"jax/__init__.py": ""})
    tree.install("jaxlib", "0.4.30", {"jaxlib/__init__.py": ""})
    return tree.check(make_recipe("jax"))


def jax_with_half_a_plugin(root: Path) -> Report:
    tree = Tree(root).install("jax", "0.4.30", {"jax/__init__.py": ""})
    tree.install("jax-cuda12-plugin", "0.4.30").install("jax-cuda12-pjrt", "0.4.28")
    install_compilers(tree)
    return tree.check(make_recipe("jax"))


def cupy_whose_libraries_are_in_no_folder_of_the_loader(root: Path) -> Report:
    tree = Tree(root).install("cupy-cuda12x", "13.0.0", {"cupy/__init__.py": ""})
    install_cuda(tree)
    return tree.check(make_recipe("cupy-cuda12x"))


def cupy_for_another_cuda(root: Path) -> Report:
    tree = Tree(root).install("cupy-cuda11x", "13.0.0", {"cupy/__init__.py": ""})
    install_cuda(tree)
    return tree.check(make_recipe("cupy-cuda11x"))


def two_opencvs(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("opencv-python", "4.10.0.84", {"cv2/__init__.py": "one = 1\n"})
    tree.install("opencv-python-headless", "4.6.0.66", {"cv2/__init__.py": "two = 2\n"})
    return tree.check(recipe, lock)


def onnxruntime_over_its_gpu_build(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("onnxruntime-gpu", "1.20.0", {"onnxruntime/__init__.py": "one = 1\n"})
    tree.install("onnxruntime", "1.19.0", {"onnxruntime/__init__.py": "two = 2\n"})
    return tree.check(recipe, lock)


def upgrade_cut_short(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("numpy", "1.26.4", {"numpy/__init__.py": ""}).install("numpy", "2.0.0")
    return tree.check(recipe, lock)


def package_of_the_lock_missing(root: Path) -> Report:
    tree, recipe, _ = tensorflow_tree(root)
    return tree.check(recipe, make_lock({"tensorflow": "2.15.1"}, {"pydot": "2.0.0", "scikit-learn": "1.4.0"}))


def package_in_another_version(root: Path) -> Report:
    tree, recipe, _ = tensorflow_tree(root)
    return tree.check(recipe, make_lock({"tensorflow": "2.15.1"}, {"scikit-learn": "1.5.0"}))


def known_library_missing(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("torch2trt", "1", {"torch2trt/plugin.so": shared_object(["libnvinfer.so.10", "libc.so.6"])})
    return tree.check(recipe, lock)


def unknown_library_missing(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("oddity", "1", {"oddity.so": shared_object(["libnobody-has-this.so.3"])})
    return tree.check(recipe, lock)


def damaged_shared_object(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("oddity", "1", {"oddity.so": shared_object(["libc.so.6"])[:100]})
    return tree.check(recipe, lock)


def dependency_of_a_dependency_missing(root: Path) -> Report:
    tree, _, lock = tensorflow_tree(root)
    tree.install("pydot", "2", {"pydot.py": "import pyparsing_of_nobody\n"})
    return tree.check(make_recipe("pydot", framework="tensorflow==2.15.*"), lock)


def compiled_for_numpy_1(root: Path) -> Report:
    tree, _, lock = tensorflow_tree(root)
    tree.install("old", "2", {"old.py": "raise ImportError('numpy.core.multiarray failed to import')\n"})
    return tree.check(make_recipe("old", framework="tensorflow==2.15.*"), lock)


def import_that_crashes(root: Path) -> Report:
    tree, _, lock = tensorflow_tree(root)
    tree.install("crash", "1", {"crash.py": "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n"})
    return tree.check(make_recipe("crash", "scikit-learn", framework="tensorflow==2.15.*"), lock)


def framework_that_crashes(root: Path) -> Report:
    tree = Tree(root).install("torch", "2.5.1", {"torch/__init__.py": "import os\nos.abort()\n"})
    tree.install("tqdm", "4", {"tqdm/__init__.py": ""})
    return tree.check(make_recipe("tqdm", framework="torch==2.5.*"))


def import_that_exits(root: Path) -> Report:
    tree, _, lock = tensorflow_tree(root)
    tree.install("leaver", "1", {"leaver.py": "import sys\nsys.exit('goodbye')\n"})
    return tree.check(make_recipe("leaver", framework="tensorflow==2.15.*"), lock)


def library_missing_at_import(root: Path) -> Report:
    tree, _, lock = tensorflow_tree(root)
    message = "libSM.so.6: cannot open shared object file: No such file or directory"
    tree.install("viewer", "1", {"viewer.py": f"raise ImportError({message!r})\n"})
    return tree.check(make_recipe("viewer", framework="tensorflow==2.15.*"), lock)


def stubs_in_library_path(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.env["LD_LIBRARY_PATH"] = "/usr/local/cuda/lib64/stubs:/.singularity.d/libs"
    return tree.check(recipe, lock)


def pythonpath_of_the_host(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.env["PYTHONPATH"] = "/data/of/somebody/else"
    return tree.check(recipe, lock)


def packages_in_a_home_folder(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    folder = tree.home / "packages"
    folder.mkdir()
    tree.env["PYTHONPATH"] = str(folder)
    return tree.check(recipe, lock)


def user_base_moved(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.env["PYTHONUSERBASE"] = "/scratch/me"
    return tree.check(recipe, lock)


def preload_of_the_host(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.env["LD_PRELOAD"] = "/opt/site/libtrace.so"
    return tree.check(recipe, lock)


def user_packages_come_in(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    (tree.root / "pyvenv.cfg").write_text(f"home = {tree.python.parent}\ninclude-system-site-packages = true\n")
    del tree.env["PYTHONNOUSERSITE"]
    return tree.check(recipe, lock)


def script_that_fails(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    script = root / "check.py"
    script.write_text("print('step 5, loss 0.7')\nraise SystemExit('the loss does not fall')\n")
    return tree.check(recipe, lock, script=script)


def script_that_crashes(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    script = root / "check.py"
    script.write_text("print('before', flush=True)\nimport os\nos.abort()\n")
    return tree.check(recipe, lock, script=script)


def h5py_3_beside_tensorflow_2_1(root: Path) -> Report:
    tree = old_tensorflow_tree(root)
    tree.install("h5py", "3.1.0", {"h5py/__init__.py": ""})
    return tree.check(make_recipe("h5py"))


def torchvision_of_another_torch(root: Path) -> Report:
    tree = torch_tree(root)
    tree.install("torchvision", "0.18.0", {"torchvision/__init__.py": ""})
    return tree.check(make_recipe("torchvision", framework="torch==2.5.*"))


def keras_3_over_tensorflow_2_15(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("keras", "3.4.1", {"keras/__init__.py": ""})
    return tree.check(recipe, lock)


def installed_for_the_user_in_post(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    home = root.with_name("roots-home")
    (home / ".local/lib/python3.11/site-packages/einops-0.8.0.dist-info").mkdir(parents=True)
    with mock.patch.object(plan, "HOMES", (str(home),)):
        return tree.check(recipe, lock)


def list_of_files_emptied(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.write("tensorflow-2.15.1.dist-info/RECORD", "")
    return tree.check(recipe, lock)


def onnxruntime_gpu_without_cudnn(root: Path) -> Report:
    tree = Tree(root)
    install_cuda(tree, without=["nvidia-cudnn-cu12"])
    cuda_part = shared_object(["libcublasLt.so.12", "libcudnn.so.9"])
    files: dict[str, str | bytes] = {
        "onnxruntime/__init__.py": "",
        "onnxruntime/capi/build_and_package_info.py": "package_name = 'onnxruntime-gpu'\ncuda_version = '12.2'\n",
        "onnxruntime/capi/libonnxruntime_providers_cuda.so": cuda_part,
    }
    return tree.install("onnxruntime-gpu", "1.20.0", files).check(make_recipe("onnxruntime-gpu"))


def xla_without_its_tools(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    return tree.check(recipe, lock, project=project(root, "step = tf.function(step, jit_compile=True)\n"))


def function_printed_instead_of_called(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    return tree.check(recipe, lock, project=project(root, "print(tf.test.is_gpu_available)\n"))


def gpus_chosen_in_the_source(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    text = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"
    return tree.check(recipe, lock, project=project(root, text))


def driver_below_the_floor(root: Path) -> Report:
    return torch_tree(root).check(make_recipe(framework="torch"), target=read_target(driver="470.42.01"))


def no_code_for_blackwell(root: Path) -> Report:
    return torch_tree(root).check(make_recipe(framework="torch"), target=read_target(gpu="RTX 5090"))


def no_code_for_hopper(root: Path) -> Report:
    tree = torch_tree(root, ("sass", 70), ("sass", 80))
    return tree.check(make_recipe(framework="torch"), target=read_target(gpu="H100"))


def portable_code_only_and_an_old_driver(root: Path) -> Report:
    tree = torch_tree(root, ("ptx", 70))
    return tree.check(make_recipe(framework="torch"), target=read_target(gpu="A100", driver="535.54.03"))


def extension_without_code_for_the_gpu(root: Path) -> Report:
    tree = torch_tree(root)
    tree.install("deformable", "1", {"deformable/ops.so": fatbin.library([fatbin.region([("sass", 70)])])})
    return tree.check(make_recipe(framework="torch"), target=read_target(gpu="A100"), level="full")


def torch_tree(root: Path, *code: fatbin.Entry) -> Tree:
    """Make PyTorch 2.5.1 for CUDA 12.4 with this GPU code (that of its wheels when left out)."""
    entries = code or tuple(("sass", number) for number in (50, 60, 70, 75, 80, 86, 90))
    files: dict[str, str | bytes] = {
        "torch/__init__.py": "__version__ = '2.5.1+cu124'\n",
        "torch/version.py": "cuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n",
        "torch/lib/libtorch_cuda.so": fatbin.library([fatbin.region(entries)]),
    }
    return Tree(root).install("torch", "2.5.1", files)


def old_tensorflow_tree(root: Path) -> Tree:
    """Make tensorflow-gpu 2.1.0 with CUDA 10.1 in a folder of its own, as the base images have it."""
    tree = Tree(root)
    build = "is_cuda_build = True\ncuda_version_number = '10.1'\ncudnn_version_number = '7'\n"
    files = {**tensorflow_files("2.1.0", build), "tensorflow_core/__init__.py": ""}
    tree.install("tensorflow-gpu", "2.1.0", files)
    cuda = root / "usr/local/cuda/lib64"
    cuda.mkdir(parents=True)
    for name in ("cudart.so.10.1", "cublas.so.10", "cufft.so.10", "cusolver.so.10", "cusparse.so.10", "cudnn.so.7"):
        (cuda / f"lib{name}").write_bytes(shared_object(["libc.so.6"], soname=f"lib{name}"))
    tree.env["LD_LIBRARY_PATH"] = str(cuda)
    return tree


def install_compilers(tree: Tree) -> None:
    """Install what XLA compiles with, where nvidia-cuda-nvcc-cu12 has it."""
    tree.write("nvidia/cuda_nvcc/bin/ptxas")
    tree.write("nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc")


def project(root: Path, text: str) -> Path:
    folder = root.with_name(f"{root.name}-project")
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return folder


OVER = "another copy of it was written over the first"
SICK: list[Sick] = [
    (
        second_tensorflow_over_the_bases,
        {
            "framework-version": f"import tensorflow gives 2.4.1, though 2.15.1 is what is registered as installed: {OVER}",
            "one-framework": "2 distributions provide tensorflow: tensorflow 2.15.1, tensorflow-cpu 2.4.1; the one "
            "installed last has written over the other's files",
            "base-files": "tensorflow: 1 changed of 6 files (for one, tensorflow/__init__.py)",
        },
    ),
    (
        other_tensorflow_than_locked,
        {
            "framework-version": "tensorflow 2.15.1 is installed; the lock says 2.15.0",
            "locked-versions": "the image is not what the lock says: tensorflow 2.15.1 instead of 2.15.0",
        },
    ),
    (framework_absent, {"framework-version": "tensorflow is not installed"}),
    (
        changed_file,
        {"base-files": "tensorflow: 1 changed of 6 files (for one, tensorflow/python/platform/build_info.py)"},
    ),
    (removed_file, {"base-files": "nvidia-cufft-cu12: 1 missing of 5 files (for one, nvidia/cufft/__init__.py)"}),
    (
        framework_installed_again,
        {"base-files": "tensorflow: installed again since the base was read (its RECORD differs)"},
    ),
    (
        cudnn_not_installed,
        {
            "cuda-match": "tensorflow 2.15.1 was built for CUDA 12.2 and cuDNN 8.9, and opens libcudnn.so.8, which is "
            "not in the image; it would go on without the GPU"
        },
    ),
    (
        cudnn_of_another_major_version,
        {
            "cuda-match": "tensorflow 2.15.1 was built for CUDA 12.2 and cuDNN 8.9, and opens libcudnn.so.8, which is "
            "not in the image (there is libcudnn.so.9); it would go on without the GPU"
        },
    ),
    (
        cudnn_too_old,
        {
            "cuda-match": "tensorflow 2.15.1 was compiled with cuDNN 8.9; the image has 8.6.0.163, and it refuses an "
            "older one"
        },
    ),
    (
        cuda_of_another_machine,
        {
            "cuda-match": "tensorflow 2.15.1 was built for CUDA 12.2 and cuDNN 8.9, and opens libcufft.so.11, which is "
            "not in the image; it would go on without the GPU"
        },
    ),
    (cpu_build_of_torch, {"cuda-match": "torch 2.5.1+cpu is a build without CUDA: it computes on the CPU only"}),
    (
        cpu_distribution_of_tensorflow,
        {"cuda-match": "tensorflow 2.15.1 is a build without CUDA: it computes on the CPU only"},
    ),
    (
        jax_without_plugin,
        {"cuda-match": "jax 0.4.30 is installed without its CUDA plug-in and computes on the CPU only"},
    ),
    (
        jax_with_half_a_plugin,
        {
            "cuda-match": "the parts of JAX's CUDA plug-in do not belong together: jax-cuda12-pjrt 0.4.28, "
            "jax-cuda12-plugin 0.4.30"
        },
    ),
    (
        cupy_whose_libraries_are_in_no_folder_of_the_loader,
        {
            "cuda-match": "cupy 13.0.0 was built for CUDA 12, and opens libcublas.so.12, which is in "
            "nvidia/cublas/lib, where its loader does not look; it would go on without "
            "the GPU"
        },
    ),
    (
        cupy_for_another_cuda,
        {
            "cuda-match": "cupy 13.0.0 was built for CUDA 11, and opens libcublas.so.11, which is not in the image "
            "(there is libcublas.so.12); it would go on without the GPU"
        },
    ),
    (
        two_opencvs,
        {"exclusive": "opencv-python and opencv-python-headless are both installed; they share the files of cv2"},
    ),
    (
        onnxruntime_over_its_gpu_build,
        {"exclusive": "onnxruntime and onnxruntime-gpu are both installed; they share the files of onnxruntime"},
    ),
    (
        upgrade_cut_short,
        {"exclusive": "two versions of one distribution are registered in one folder: numpy 1.26.4 and 2.0.0"},
    ),
    (package_of_the_lock_missing, {"locked-versions": "the image is not what the lock says: pydot missing"}),
    (
        package_in_another_version,
        {"locked-versions": "the image is not what the lock says: scikit-learn 1.4.0 instead of 1.5.0"},
    ),
    (
        known_library_missing,
        {"shared-libraries": "libnvinfer.so.10 is not in the image; needed by torch2trt/plugin.so"},
    ),
    (
        unknown_library_missing,
        {"shared-libraries": "libnobody-has-this.so.3 is not in the image; needed by oddity.so"},
    ),
    (
        damaged_shared_object,
        {"shared-libraries": "1 shared object cannot be read: oddity.so (it is cut off)"},
    ),
    (
        dependency_of_a_dependency_missing,
        {"direct-imports": "import pydot: ModuleNotFoundError: No module named 'pyparsing_of_nobody'"},
    ),
    (
        compiled_for_numpy_1,
        {"direct-imports": "import old: ImportError: numpy.core.multiarray failed to import"},
    ),
    (import_that_crashes, {"direct-imports": "import crash: the process was killed by SIGILL"}),
    (framework_that_crashes, {"direct-imports": "import torch: the process was killed by SIGABRT"}),
    (import_that_exits, {"direct-imports": "import leaver: SystemExit: goodbye"}),
    (
        library_missing_at_import,
        {
            "direct-imports": "import viewer: ImportError: libSM.so.6: cannot open shared object file: No such file or "
            "directory"
        },
    ),
    (
        stubs_in_library_path,
        {"leaks": "LD_LIBRARY_PATH has /usr/local/cuda/lib64/stubs, whose libraries are only for linking"},
    ),
    (pythonpath_of_the_host, {"leaks": "PYTHONPATH names /data/of/somebody/else, which is not in the image"}),
    (packages_in_a_home_folder, {"leaks": "sys.path has ROOT-home/packages, below a home folder"}),
    (user_base_moved, {"leaks": "PYTHONUSERBASE is set (/scratch/me)"}),
    (preload_of_the_host, {"leaks": "LD_PRELOAD names /opt/site/libtrace.so, which is not in the image"}),
    (script_that_fails, {"script": "check.py ended with code 1; its last line: the loss does not fall"}),
    (
        h5py_3_beside_tensorflow_2_1,
        {"companions": "h5py 3.1.0 does not go with tensorflow 2.1.0: it wants h5py<3"},
    ),
    (
        torchvision_of_another_torch,
        {"companions": "torchvision 0.18.0 does not go with torch 2.5.1: it wants torchvision==0.20.*"},
    ),
    (
        keras_3_over_tensorflow_2_15,
        {"companions": "keras 3.4.1 does not go with tensorflow 2.15.1: it wants keras==2.15.*"},
    ),
    (
        installed_for_the_user_in_post,
        {
            "user-site-off": "einops was installed into roots-home/.local/lib/python3.11/site-packages of the image, "
            "where no user's Python looks"
        },
    ),
    (list_of_files_emptied, {"base-files": "tensorflow: the list of its files (RECORD) is gone or empty"}),
    (
        onnxruntime_gpu_without_cudnn,
        {
            "shared-libraries": "libcudnn.so.9 is not in the image; needed by "
            "onnxruntime/capi/libonnxruntime_providers_cuda.so"
        },
    ),
    (
        xla_without_its_tools,
        {
            "compiler-tools": "the project lets tensorflow compile for the GPU, which needs ptxas and libdevice.10.bc, "
            "and the image has neither"
        },
    ),
    (
        function_printed_instead_of_called,
        {"sources": "train.py:1: tf.test.is_gpu_available is not called there, and a function always counts as true"},
    ),
    (
        gpus_chosen_in_the_source,
        {
            "sources": "train.py:2: os.environ['CUDA_VISIBLE_DEVICES'] = '0': takes the choice of GPUs from the "
            "scheduler"
        },
    ),
    (
        driver_below_the_floor,
        {"target-driver": "driver 470.42.01 is too old for CUDA 12.4 of torch 2.5.1, which needs 525.60.13 or newer"},
    ),
    (
        no_code_for_blackwell,
        {
            "target-architecture": "torch 2.5.1 has no code for RTX 5090 (capability 12.0): machine code for 5.0, 6.0, "
            "7.0, 7.5, 8.0, 8.6, 9.0, no portable code"
        },
    ),
    (
        no_code_for_hopper,
        {
            "target-architecture": "torch 2.5.1 has no code for H100 (capability 9.0): machine code for 7.0, 8.0, no "
            "portable code"
        },
    ),
    (
        portable_code_only_and_an_old_driver,
        {
            "target-driver": "torch 2.5.1 has only portable code for A100 (capability 8.0); driver 535.54.03 (CUDA 12.2) "
            "cannot compile what CUDA 12.4 made"
        },
    ),
    (
        extension_without_code_for_the_gpu,
        {"target-architecture": "deformable/ops.so: no code for A100 (capability 8.0)"},
    ),
    (script_that_crashes, {"script": "check.py was killed by SIGABRT; its last line: before"}),
]


HINTS = {
    known_library_missing: 'libnvinfer.so.10: add "tensorrt" to [python] dependencies',
    cudnn_not_installed: 'libcudnn.so.8: add "nvidia-cudnn-cu12==8.9.*" to [python] dependencies',
    library_missing_at_import: 'add "libsm6" to [system] packages',
    compiled_for_numpy_1: 'it was compiled for another NumPy: add "numpy<2" to the dependencies, or take a newer '
    "release of it",
    cudnn_too_old: 'add "nvidia-cudnn-cu12>=8.9" to [python] dependencies',
    unknown_library_missing: "find the Debian package that has libnobody-has-this.so.3 (apt-file search "
    "libnobody-has-this.so.3) and add it to [system] packages",
}
