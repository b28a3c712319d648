"""Sick trees, each with exactly one real fault, the checks that find it and their words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from envbuild.check import plan
from envbuild.check.model import Report
from envbuild.check.target import read_target
from tests.check import fatbin
from tests.check.conda_tree import CONDA_SICK
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
    tree.install(
        "nvidia-cudnn-cu12",
        "9.3.0.75",
        {"nvidia/cudnn/lib/libcudnn.so.9": shared_object(["libc.so.6"])},
    )
    return tree.check(recipe, lock)


def cudnn_too_old(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root, without=["nvidia-cudnn-cu12"])
    tree.install(
        "nvidia-cudnn-cu12",
        "8.6.0.163",
        {"nvidia/cudnn/lib/libcudnn.so.8": shared_object(["libc.so.6"])},
    )
    return tree.check(recipe, lock)


def cuda_of_another_machine(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root, without=["nvidia-cufft-cu12"])
    tree.install(
        "nvidia-cufft-cu12", "11.0", {"nvidia/cufft/lib/libcufft.so.11": shared_object(machine=183)}
    )
    return tree.check(recipe, lock)


def cpu_build_of_torch(root: Path) -> Report:
    tree = Tree(root).install(
        "torch",
        "2.5.1+cpu",
        {"torch/__init__.py": "", "torch/version.py": "cuda: Optional[str] = None\nhip = None\n"},
    )
    return tree.check(make_recipe(framework="torch==2.5.*"))


def cpu_distribution_of_tensorflow(root: Path) -> Report:
    tree = Tree(root).install(
        "intel-tensorflow", "2.15.1", {"tensorflow/__init__.py": "__version__ = '2.15.1'\n"}
    )
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


def opencv_over_its_contrib_of_one_release(root: Path) -> Report:
    tree = torch_tree(root)
    tree.install("opencv-contrib-python", "4.10.0.84", {"cv2/__init__.py": "", "cv2/a.py": "a = 1"})
    tree.install("opencv-python", "4.10.0.84", {"cv2/__init__.py": "", "cv2/a.py": "a = 2"})
    return tree.check(make_recipe("opencv-python", framework="torch==2.5.*"))


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
    return tree.check(
        recipe, make_lock({"tensorflow": "2.15.1"}, {"pydot": "2.0.0", "scikit-learn": "1.4.0"})
    )


def package_in_another_version(root: Path) -> Report:
    tree, recipe, _ = tensorflow_tree(root)
    return tree.check(recipe, make_lock({"tensorflow": "2.15.1"}, {"scikit-learn": "1.5.0"}))


def known_library_missing(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install(
        "torch2trt", "1", {"torch2trt/plugin.so": shared_object(["libnvinfer.so.10", "libc.so.6"])}
    )
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
    tree.install(
        "old", "2", {"old.py": "raise ImportError('numpy.core.multiarray failed to import')\n"}
    )
    return tree.check(make_recipe("old", framework="tensorflow==2.15.*"), lock)


def import_that_crashes(root: Path) -> Report:
    tree, _, lock = tensorflow_tree(root)
    tree.install(
        "crash", "1", {"crash.py": "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n"}
    )
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
    (tree.root / "pyvenv.cfg").write_text(
        f"home = {tree.python.parent}\ninclude-system-site-packages = true\n"
    )
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
    return loads(tree, "keras").check(recipe, lock)


def loads(tree: Tree, module: str) -> Tree:
    """Let a package that the recipe asks for import a module: of others a rule says nothing."""
    return tree.install("keras-bert", "0.89.0", {"keras_bert/__init__.py": f"import {module}\n"})


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
    return tree.check(
        recipe, lock, project=project(root, "step = tf.function(step, jit_compile=True)\n")
    )


def function_printed_instead_of_called(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    return tree.check(recipe, lock, project=project(root, "print(tf.test.is_gpu_available)\n"))


def gpus_chosen_in_the_source(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    text = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"
    return tree.check(recipe, lock, project=project(root, text))


def driver_below_the_floor(root: Path) -> Report:
    return torch_tree(root).check(
        make_recipe(framework="torch"), target=read_target(driver="470.42.01")
    )


def no_code_for_blackwell(root: Path) -> Report:
    return torch_tree(root).check(
        make_recipe(framework="torch"), target=read_target(gpu="RTX 5090")
    )


def no_code_for_hopper(root: Path) -> Report:
    tree = torch_tree(root, ("sass", 70), ("sass", 80))
    return tree.check(make_recipe(framework="torch"), target=read_target(gpu="H100"))


def portable_code_only_and_an_old_driver(root: Path) -> Report:
    tree = torch_tree(root, ("ptx", 70))
    return tree.check(
        make_recipe(framework="torch"), target=read_target(gpu="A100", driver="535.54.03")
    )


def extension_without_code_for_the_gpu(root: Path) -> Report:
    tree = torch_tree(root)
    tree.install(
        "deformable", "1", {"deformable/ops.so": fatbin.library([fatbin.region([("sass", 70)])])}
    )
    return tree.check(make_recipe(framework="torch"), target=read_target(gpu="A100"), level="full")


def gpus_hidden_by_the_image(root: Path) -> Report:
    tree = torch_tree(root)
    tree.env["CUDA_VISIBLE_DEVICES"] = "-1"
    return tree.check(make_recipe(framework="torch"))


def one_gpu_fixed_by_the_image(root: Path) -> Report:
    tree = torch_tree(root)
    tree.env["CUDA_VISIBLE_DEVICES"] = "0"
    return tree.check(make_recipe(framework="torch"))


def jax_told_to_use_the_cpu(root: Path) -> Report:
    tree = jax_tree(root, "0.4.30", "0.4.30")
    tree.env["JAX_PLATFORMS"] = "cpu"
    return tree.check(make_recipe("jax"))


def triton_told_to_interpret(root: Path) -> Report:
    tree = torch_tree(root).install("triton", "3.1.0", {"triton/__init__.py": ""})
    tree.env["TRITON_INTERPRET"] = "1"
    return tree.check(make_recipe(framework="torch"))


def keras_told_to_use_numpy(root: Path) -> Report:
    tree = torch_tree(root).install("keras", "3.7.0", {"keras/__init__.py": ""})
    tree.env["KERAS_BACKEND"] = "numpy"
    return tree.check(make_recipe("keras", framework="torch"))


def no_device_by_the_words_of_a_runtime(root: Path) -> Report:
    tree = torch_tree(root)
    tree.env["CUDA_VISIBLE_DEVICES"] = "all"
    return tree.check(make_recipe(framework="torch"))


def deepspeed_told_to_use_the_cpu(root: Path) -> Report:
    tree = torch_tree(root).install("deepspeed", "0.16.2")
    tree.env["DS_ACCELERATOR"] = "cpu"
    return tree.check(make_recipe(framework="torch"))


def xgboost_over_its_cpu_build(root: Path) -> Report:
    tree = Tree(root)
    for name, needed in (("xgboost", "libc.so.6"), ("xgboost-cpu", "libm.so.6")):
        library = shared_object([needed])
        files: dict[str, str | bytes] = {"xgboost/__init__.py": ""}
        files["xgboost/lib/libxgboost.so"] = library
        tree.install(name, "3.0.1", files)
    return tree.check(make_recipe("xgboost"))


def wheel_for_another_system(root: Path) -> Report:
    tree = Tree(root)
    tag = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-aarch64-linux-gnu"
    files: dict[str, str | bytes] = {"quick/__init__.py": ""}
    files[f"quick/_core.{tag}.so"] = shared_object(machine=183)
    return tree.install("quick", "1", files).check(make_recipe("quick"))


def another_package_than_the_module_is_from(root: Path) -> Report:
    tree = Tree(root).install("whisper", "1.1.10", {"whisper.py": ""})
    return tree.check(make_recipe("whisper"), project=project(root, TRANSCRIBE))


TRANSCRIBE = "import whisper\nmodel = whisper.load_model('base')\n"


def framework_left_out_by_transformers(root: Path) -> Report:
    text = "class BertConfig:\n    def __init__(self, **sizes): pass\nclass BertModel:\n    def __init__(self, config): pass\n"
    tree = torch_tree(root).install("transformers", "4.46.3", {"transformers/__init__.py": text})
    tree.env["USE_TORCH"] = "0"
    return tree.check(make_recipe(framework="torch"))


def trainer_without_accelerate(root: Path) -> Report:
    text = (
        "class TrainingArguments:\n    def __init__(self, folder):\n"
        "        raise ImportError('Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`')\n"
        "class BertConfig:\n    def __init__(self, **sizes): pass\nclass BertModel:\n    def __init__(self, config): pass\n"
    )
    tree = torch_tree(root).install("transformers", "4.46.3", {"transformers/__init__.py": text})
    uses = project(root, "from transformers import TrainingArguments\n")
    return tree.check(make_recipe(framework="torch"), project=uses)


def tensorboard_without_what_it_imports(root: Path) -> Report:
    files = {"tensorboard/__init__.py": "", "tensorboard/main.py": "import pkg_resources_of_old\n"}
    return Tree(root).install("tensorboard", "2.20.0", files).check(make_recipe("tensorboard"))


def packages_that_do_not_go_together_without_a_framework(root: Path) -> Report:
    tree = Tree(root).install("scipy", "1.13.1", {"scipy/__init__.py": ""})
    tree.install("gensim", "4.3.2", {"gensim/__init__.py": "import scipy\n"})
    return tree.check(make_recipe("gensim"))


def name_that_another_release_has(root: Path) -> Report:
    tree = torch_tree(root).install(
        "peft", "0.14.0", {"peft/__init__.py": "from torch import Cache\n"}
    )
    return tree.check(make_recipe("peft", framework="torch"))


def driver_of_another_machine_in_the_image(root: Path) -> Report:
    tree = torch_tree(root)
    tree.env["LD_LIBRARY_PATH"] = f"{own_driver(root, 'usr/lib/nvidia')}:/.singularity.d/libs"
    return tree.check(make_recipe(framework="torch"))


def packages_that_only_root_can_read(root: Path) -> Report:
    tree = torch_tree(root).install("einops", "0.8.0", {"einops/__init__.py": ""})
    (tree.site / "einops/__init__.py").chmod(0o600)
    (tree.site / "einops").chmod(0o700)
    return tree.check(make_recipe("einops", framework="torch"))


def chainer_without_cupy(root: Path) -> Report:
    return (
        Tree(root)
        .install("chainer", "7.8.1", {"chainer/__init__.py": ""})
        .check(make_recipe("chainer"))
    )


def script_named_like_a_module(root: Path) -> Report:
    folder = project(root, "import torch\n")
    (folder / "random.py").write_text("seed = 1\n")
    return torch_tree(root).check(make_recipe(framework="torch"), project=folder)


def part_of_another_release_than_torch_asks_for(root: Path) -> Report:
    tree = Tree(root).install("torch", "2.5.1", torch_files(), requires=TORCH_PARTS)
    tree.install("triton", "3.1.0", {"triton/__init__.py": ""}).install(
        "nvidia-nccl-cu12", "2.18.1"
    )
    return tree.check(make_recipe(framework="torch"))


def two_cupys(root: Path) -> Report:
    tree = Tree(root).install("cupy-cuda12x", "13.0.0", {"cupy/__init__.py": ""})
    tree.install("cupy-cuda111", "12.0.0", {"cupy/__init__.py": ""})
    install_cuda(tree)
    for soname in ("libcublas.so.11", "libcublas.so.12"):
        tree.write(f"nvidia/cublas/lib/{soname}", shared_object(["libc.so.6"], soname=soname))
    tree.env["LD_LIBRARY_PATH"] = str(tree.site / "nvidia/cublas/lib")
    return tree.check(make_recipe("cupy-cuda12x"))


def cudnn_of_two_cudas(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    files: dict[str, str | bytes] = {
        "nvidia/cudnn/lib/libcudnn.so.8": shared_object(["libc.so.6"], soname="libcudnn.so.8")
    }
    tree.install("nvidia-cudnn-cu11", "8.9.4.25", files)
    return tree.check(recipe, lock)


def faiss_over_its_gpu_build(root: Path) -> Report:
    tree = torch_tree(root).install("faiss-gpu", "1.7.2", {"faiss/__init__.py": "one = 1\n"})
    tree.install("faiss-cpu", "1.8.0", {"faiss/__init__.py": "two = 2\n"})
    return tree.check(make_recipe(framework="torch"))


def nightly_over_the_release(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install(
        "tf-nightly", "2.16.0.dev1", {"tensorflow/__init__.py": "__version__ = '2.16.0'\n"}
    )
    return tree.check(recipe, lock)


def keras_2_4_on_tensorflow_2_1(root: Path) -> Report:
    return (
        old_tensorflow_tree(root)
        .install("Keras", "2.4.3", {"keras/__init__.py": ""})
        .check(make_recipe("keras"))
    )


def jaxlib_newer_than_jax(root: Path) -> Report:
    return jax_tree(root, "0.4.26", "0.4.38").check(make_recipe("jax"))


def numpy_2_under_tensorflow_2_15(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("numpy", "2.0.0", {"numpy/__init__.py": ""})
    return loads(tree, "numpy").check(recipe, lock)


def protobuf_4_under_tensorflow_2_1(root: Path) -> Report:
    tree = old_tensorflow_tree(root).install(
        "protobuf", "4.25.0", {"google/protobuf/__init__.py": ""}
    )
    return tree.check(make_recipe("protobuf"))


def cpu_wheel_under_the_usual_name(root: Path) -> Report:
    build = "is_rocm_build = False\nis_cuda_build = False\n"
    files = {**tensorflow_files("1.15.5", build), "tensorflow_core/__init__.py": ""}
    return (
        Tree(root)
        .install("tensorflow", "1.15.5", files)
        .check(make_recipe(framework="tensorflow==1.15.*"))
    )


def tensorflow_text_of_another_minor_version(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("tensorflow-text", "2.16.1", {"tensorflow_text/__init__.py": ""})
    return loads(tree, "tensorflow_text").check(recipe, lock)


def library_that_is_a_link_to_nowhere(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root, without=["nvidia-cublas-cu12"])
    tree.install("nvidia-cublas-cu12", "12.2.5.6", {"nvidia/cublas/__init__.py": ""})
    (tree.site / "nvidia/cublas/lib").mkdir()
    (tree.site / "nvidia/cublas/lib/libcublas.so.12").symlink_to("libcublas.so.12.2.5.6")
    (tree.site / "nvidia/cublas/lib/libcublasLt.so.12").write_bytes(shared_object(["libc.so.6"]))
    return tree.check(recipe, lock)


def onnxruntime_gpu_for_another_cuda(root: Path) -> Report:
    tree = Tree(root)
    install_cuda(tree)
    files: dict[str, str | bytes] = {
        "onnxruntime/__init__.py": "",
        "onnxruntime/capi/build_and_package_info.py": "package_name = 'onnxruntime-gpu'\ncuda_version = '12.2'\n",
        "onnxruntime/capi/libonnxruntime_providers_cuda.so": shared_object(["libcublasLt.so.11"]),
    }
    return tree.install("onnxruntime-gpu", "1.20.0", files).check(make_recipe("onnxruntime-gpu"))


def no_code_for_volta(root: Path) -> Report:
    tree = torch_tree(root, *(("sass", number) for number in (75, 80, 86, 90, 100, 120)))
    return tree.check(make_recipe(framework="torch"), target=read_target(gpu="V100"))


def function_asked_without_a_call_in_an_expression(root: Path) -> Report:
    text = "import torch\ndevice = 'cuda' if torch.cuda.is_available else 'cpu'\n"
    return torch_tree(root).check(make_recipe(framework="torch"), project=project(root, text))


TORCH_PARTS = (
    "nvidia-nccl-cu12==2.21.5; platform_system == 'Linux' and platform_machine == 'x86_64'",
    "triton==3.1.0; python_version < '3.99'",
    "triton==2.0.0; python_version < '3.6'",
    "typing-extensions>=4.8",
    "nvidia-cudnn-cu12==9.9.9; extra == 'other'",
)
"""Requirements as PyTorch's wheels have them."""


def own_driver(root: Path, folder: str) -> Path:
    """Put a real driver's library into a folder of the image, as a package of Debian's or a careless copy does."""
    place = root / folder
    place.mkdir(parents=True)
    (place / "libcuda.so.470.82.01").write_bytes(
        shared_object(["libc.so.6"], soname="libcuda.so.1")
    )
    (place / "libcuda.so.1").symlink_to("libcuda.so.470.82.01")
    return place


def jax_tree(root: Path, jax: str, jaxlib: str) -> Tree:
    """Make JAX with its plug-in and the tools that it compiles with."""
    tree = Tree(root).install("jax", jax, {"jax/__init__.py": "import jaxlib\n"})
    tree.install("jaxlib", jaxlib, {"jaxlib/__init__.py": ""})
    tree.install("jax-cuda12-plugin", jaxlib).install("jax-cuda12-pjrt", jaxlib)
    install_compilers(tree)
    return tree


def torch_tree(root: Path, *code: fatbin.Entry) -> Tree:
    """Make PyTorch 2.5.1 for CUDA 12.4 with this GPU code (that of its wheels when left out)."""
    return Tree(root).install("torch", "2.5.1", torch_files(*code))


def torch_files(*code: fatbin.Entry) -> dict[str, str | bytes]:
    """Return the files of PyTorch 2.5.1."""
    entries = code or tuple(("sass", number) for number in (50, 60, 70, 75, 80, 86, 90))
    return {
        "torch/__init__.py": "__version__ = '2.5.1+cu124'\n",
        "torch/cuda/__init__.py": "is_available = device_count = lambda: 0\n",
        "torch/version.py": "cuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n",
        "torch/lib/libtorch_cuda.so": fatbin.library([fatbin.region(entries)]),
    }


def old_tensorflow_tree(root: Path) -> Tree:
    """Make tensorflow-gpu 2.1.0 with CUDA 10.1 in a folder of its own, as the base images have it."""
    tree = Tree(root)
    build = "is_cuda_build = True\ncuda_version_number = '10.1'\ncudnn_version_number = '7'\n"
    files = {**tensorflow_files("2.1.0", build), "tensorflow_core/__init__.py": ""}
    tree.install("tensorflow-gpu", "2.1.0", files)
    cuda = root / "usr/local/cuda/lib64"
    cuda.mkdir(parents=True)
    for name in (
        "cudart.so.10.1",
        "cublas.so.10",
        "cufft.so.10",
        "curand.so.10",
        "cusolver.so.10",
        "cusparse.so.10",
        "cudnn.so.7",
    ):
        (cuda / f"lib{name}").write_bytes(shared_object(["libc.so.6"], soname=f"lib{name}"))
    tree.env["LD_LIBRARY_PATH"] = str(cuda)
    return tree


def install_compilers(tree: Tree) -> None:
    """Install what XLA compiles with, where nvidia-cuda-nvcc-cu12 has it."""
    tree.write("nvidia/cuda_nvcc/bin/ptxas")
    tree.write("nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc")


def install_c_compilers(tree: Tree, root: Path) -> None:
    """Install what Triton and Inductor build code with, and hide what this machine has of it."""
    folder = root.with_name(f"{root.name}-bin")
    folder.mkdir()
    for name in ("gcc", "g++"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    (folder / "Python.h").write_text("")
    tree.env |= {"PATH": str(folder), "CPATH": str(folder)}


def torch_compile_without_a_compiler(root: Path) -> Report:
    """A decorator without brackets is a use too; a machine's own compiler is not the image's."""
    tree = torch_tree(root)
    tree.install(
        "triton", "3.1.0", {"triton/__init__.py": "", "triton/backends/nvidia/bin/ptxas": ""}
    )
    tree.env["PATH"] = str(root / "no-programs")
    headers = root.with_name(f"{root.name}-headers")  # the host's Python may have none
    headers.mkdir()
    (headers / "Python.h").touch()
    tree.env["CPATH"] = str(headers)
    return tree.check(
        make_recipe(framework="torch"),
        project=project(root, "@torch.compile\ndef f(x):\n    return x\n"),
    )


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
        {
            "base-files": "tensorflow: 1 changed of 6 files (for one, tensorflow/python/platform/build_info.py)"
        },
    ),
    (
        removed_file,
        {
            "base-files": "nvidia-cufft-cu12: 1 missing of 4 files (for one, nvidia/cufft/__init__.py)"
        },
    ),
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
    (
        cpu_build_of_torch,
        {"cuda-match": "torch 2.5.1+cpu is a build without CUDA: it computes on the CPU only"},
    ),
    (
        cpu_distribution_of_tensorflow,
        {"cuda-match": "tensorflow 2.15.1 is a build without CUDA: it computes on the CPU only"},
    ),
    (
        jax_without_plugin,
        {
            "cuda-match": "jax 0.4.30 is installed without its CUDA plug-in and computes on the CPU only"
        },
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
        {
            "exclusive": "opencv-python and opencv-python-headless are both installed; they share the files of cv2"
        },
    ),
    (
        opencv_over_its_contrib_of_one_release,
        {
            "exclusive": "opencv-contrib-python and opencv-python are both installed; they share the files of cv2"
        },
    ),
    (
        onnxruntime_over_its_gpu_build,
        {
            "base-files": "onnxruntime-gpu: 1 changed of 3 files (for one, onnxruntime/__init__.py)",
            "one-framework": "2 distributions provide onnxruntime: onnxruntime 1.19.0, onnxruntime-gpu 1.20.0; the one "
            "installed last has written over the other's files",
        },
    ),
    (
        upgrade_cut_short,
        {
            "exclusive": "two versions of one distribution are registered in one folder: numpy 1.26.4 and 2.0.0"
        },
    ),
    (
        package_of_the_lock_missing,
        {"locked-versions": "the image is not what the lock says: pydot missing"},
    ),
    (
        package_in_another_version,
        {
            "locked-versions": "the image is not what the lock says: scikit-learn 1.4.0 instead of 1.5.0"
        },
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
        {
            "direct-imports": "import pydot: ModuleNotFoundError: No module named 'pyparsing_of_nobody'"
        },
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
        {
            "leaks": "LD_LIBRARY_PATH has /usr/local/cuda/lib64/stubs, whose libraries are only for linking"
        },
    ),
    (
        pythonpath_of_the_host,
        {"leaks": "PYTHONPATH names /data/of/somebody/else, which is not in the image"},
    ),
    (packages_in_a_home_folder, {"leaks": "sys.path has ROOT-home/packages, below a home folder"}),
    (user_base_moved, {"leaks": "PYTHONUSERBASE is set (/scratch/me)"}),
    (
        preload_of_the_host,
        {"leaks": "LD_PRELOAD names /opt/site/libtrace.so, which is not in the image"},
    ),
    (
        script_that_fails,
        {"script": "check.py ended with code 1; its last line: the loss does not fall"},
    ),
    (
        h5py_3_beside_tensorflow_2_1,
        {"companions": "h5py 3.1.0 does not go with tensorflow 2.1.0: it wants h5py<3"},
    ),
    (
        torchvision_of_another_torch,
        {
            "companions": "torchvision 0.18.0 does not go with torch 2.5.1: it wants torchvision==0.20.*"
        },
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
    (
        list_of_files_emptied,
        {"base-files": "tensorflow: the list of its files (RECORD) is gone or empty"},
    ),
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
        torch_compile_without_a_compiler,
        {
            "compiler-tools": "the project uses torch.compile or Triton, which build code when it runs (with gcc, g++ and "
            "Python.h); the image lacks gcc, g++"
        },
    ),
    (
        function_printed_instead_of_called,
        {
            "sources": "train.py:1: tf.test.is_gpu_available is not called there, and a function always counts as true"
        },
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
        {
            "target-driver": "driver 470.42.01 is too old for CUDA 12.4 of torch 2.5.1, which needs 525.60.13 or newer"
        },
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
    (
        gpus_hidden_by_the_image,
        {"gpus-left": 'the image sets CUDA_VISIBLE_DEVICES to "-1": no program in it sees a GPU'},
    ),
    (
        one_gpu_fixed_by_the_image,
        {
            "gpus-left": 'the image sets CUDA_VISIBLE_DEVICES to "0": whatever GPUs the scheduler gives to the job'
        },
    ),
    (
        no_device_by_the_words_of_a_runtime,
        {"gpus-left": 'the image sets CUDA_VISIBLE_DEVICES to "all": no program in it sees a GPU'},
    ),
    (
        deepspeed_told_to_use_the_cpu,
        {"gpus-left": 'the image sets DS_ACCELERATOR to "cpu": DeepSpeed computes on the CPU'},
    ),
    (
        xgboost_over_its_cpu_build,
        {
            "exclusive": "xgboost and xgboost-cpu are both installed; they share the files of xgboost"
        },
    ),
    (
        wheel_for_another_system,
        {
            "shared-libraries": "quick/_core.cpython-311-aarch64-linux-gnu.so: built for another system "
            "(aarch64-linux-gnu), and the image has 3.11, which cannot import it"
        },
    ),
    (
        another_package_than_the_module_is_from,
        {
            "project-imports": "the project's source imports whisper: AttributeError: module 'whisper' has no "
            "attribute 'load_model'"
        },
    ),
    (
        triton_told_to_interpret,
        {
            "gpus-left": 'the image sets TRITON_INTERPRET to "1": Triton\'s kernels run in NumPy on the CPU'
        },
    ),
    (
        keras_told_to_use_numpy,
        {
            "gpus-left": 'the image sets KERAS_BACKEND to "numpy": Keras computes in NumPy on the CPU, and trains nothing'
        },
    ),
    (
        framework_left_out_by_transformers,
        {"gpus-left": 'the image sets USE_TORCH to "0": transformers leaves torch out'},
    ),
    (
        trainer_without_accelerate,
        {
            "entry-points": "transformers' Trainer: ImportError: Using the `Trainer` with `PyTorch` requires "
            "`accelerate>=0.26.0`"
        },
    ),
    (
        tensorboard_without_what_it_imports,
        {
            "entry-points": "TensorBoard's program: ModuleNotFoundError: No module named 'pkg_resources_of_old'"
        },
    ),
    (
        packages_that_do_not_go_together_without_a_framework,
        {"companions": "scipy 1.13.1 does not go with gensim 4.3.2: it wants scipy<1.13"},
    ),
    (
        name_that_another_release_has,
        {
            "direct-imports": "import peft: ImportError: cannot import name 'Cache' from 'torch' "
            "(ROOT/lib/python3.11/site-packages/torch/__init__.py)"
        },
    ),
    (
        jax_told_to_use_the_cpu,
        {"gpus-left": 'the image sets JAX_PLATFORMS to "cpu": JAX computes on the CPU'},
    ),
    (
        driver_of_another_machine_in_the_image,
        {
            "leaks": "LD_LIBRARY_PATH has ROOT/usr/lib/nvidia, whose libcuda comes before the host's driver"
        },
    ),
    (
        packages_that_only_root_can_read,
        {
            "readable": "einops may only be read by the owner of the files, and other users cannot import it"
        },
    ),
    (
        chainer_without_cupy,
        {"cuda-match": "chainer 7.8.1 is installed without CuPy and computes on the CPU only"},
    ),
    (
        script_named_like_a_module,
        {"sources": "random.py hides the module random from the scripts beside it"},
    ),
    (
        part_of_another_release_than_torch_asks_for,
        {
            "companions": "torch 2.5.1 asks for nvidia-nccl-cu12==2.21.5; there is nvidia-nccl-cu12 2.18.1"
        },
    ),
    (
        two_cupys,
        {
            "one-framework": "2 distributions provide cupy: cupy-cuda111 12.0.0, cupy-cuda12x 13.0.0; the one installed "
            "last has written over the other's files",
        },
    ),
    (
        cudnn_of_two_cudas,
        {
            "exclusive": "nvidia-cudnn-cu11 and nvidia-cudnn-cu12 are both installed; they share the files of nvidia.cudnn"
        },
    ),
    (
        faiss_over_its_gpu_build,
        {"exclusive": "faiss-cpu and faiss-gpu are both installed; they share the files of faiss"},
    ),
    (
        nightly_over_the_release,
        {
            "framework-version": f"import tensorflow gives 2.16.0, though 2.15.1 is what is registered as installed: {OVER}",
            "one-framework": "2 distributions provide tensorflow: tensorflow 2.15.1, tf-nightly 2.16.0.dev1; the one "
            "installed last has written over the other's files",
            "base-files": "tensorflow: 1 changed of 6 files (for one, tensorflow/__init__.py)",
        },
    ),
    (
        keras_2_4_on_tensorflow_2_1,
        {"companions": "keras 2.4.3 does not go with tensorflow 2.1.0: it wants keras>=2.3,<2.4"},
    ),
    (
        jaxlib_newer_than_jax,
        {"companions": "jaxlib 0.4.38 does not go with jax 0.4.26: it wants jaxlib<=0.4.26"},
    ),
    (
        numpy_2_under_tensorflow_2_15,
        {"companions": "numpy 2.0.0 does not go with tensorflow 2.15.1: it wants numpy<2"},
    ),
    (
        protobuf_4_under_tensorflow_2_1,
        {"companions": "protobuf 4.25.0 does not go with tensorflow 2.1.0: it wants protobuf<4"},
    ),
    (
        cpu_wheel_under_the_usual_name,
        {"cuda-match": "tensorflow 1.15.5 is a build without CUDA: it computes on the CPU only"},
    ),
    (
        tensorflow_text_of_another_minor_version,
        {
            "companions": "tensorflow-text 2.16.1 does not go with tensorflow 2.15.1: it wants tensorflow-text==2.15.*"
        },
    ),
    (
        library_that_is_a_link_to_nowhere,
        {
            "cuda-match": "tensorflow 2.15.1 was built for CUDA 12.2 and cuDNN 8.9, and opens libcublas.so.12, which is "
            "not in the image; it would go on without the GPU"
        },
    ),
    (
        onnxruntime_gpu_for_another_cuda,
        {
            "shared-libraries": "libcublasLt.so.11 is not in the image; needed by "
            "onnxruntime/capi/libonnxruntime_providers_cuda.so"
        },
    ),
    (
        no_code_for_volta,
        {
            "target-architecture": "torch 2.5.1 has no code for V100 (capability 7.0): machine code for 7.5, 8.0, 8.6, "
            "9.0, 10.0, 12.0, no portable code"
        },
    ),
    (
        function_asked_without_a_call_in_an_expression,
        {
            "sources": "train.py:2: torch.cuda.is_available is not called there, and a function always counts as true"
        },
    ),
    (script_that_crashes, {"script": "check.py was killed by SIGABRT; its last line: before"}),
    *CONDA_SICK,
]


HINTS = {
    known_library_missing: 'libnvinfer.so.10: add "tensorrt" to [python] dependencies',
    cudnn_not_installed: 'libcudnn.so.8: add "nvidia-cudnn-cu12==8.9.*" to [python] dependencies',
    library_missing_at_import: 'add "libsm6" to [system] packages',
    compiled_for_numpy_1: 'it was compiled for another NumPy: add "numpy<2" to the dependencies, or take a newer '
    "release of it",
    another_package_than_the_module_is_from: '"whisper" on a package index is another package than the one most '
    'code means by import whisper: put "openai-whisper" into [python] dependencies in its place',
    cudnn_too_old: 'add "nvidia-cudnn-cu12>=8.9,<9" to [python] dependencies',
    unknown_library_missing: "find the Debian package that has libnobody-has-this.so.3 (apt-file search "
    "libnobody-has-this.so.3) and add it to [system] packages",
}
