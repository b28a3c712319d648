"""Healthy trees that look strange: none of them may be accused."""

from __future__ import annotations

from pathlib import Path

from envbuild.check.model import Report
from envbuild.check.target import read_target
from tests.check import fatbin
from tests.check.conda_tree import CONDA_HEALTHY
from tests.check.elf import shared_object
from tests.check.tree import (
    Tree,
    install_cuda,
    make_lock,
    make_recipe,
    tensorflow_files,
    tensorflow_tree,
)
from tests.sick.faults import (
    TORCH_PARTS,
    install_c_compilers,
    install_compilers,
    jax_tree,
    old_tensorflow_tree,
    own_driver,
    project,
    torch_files,
    torch_tree,
)


def tensorflow_with_its_cuda_wheels(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    script = root / "check.py"
    script.write_text("import inspect\ndef f(): pass\nprint(inspect.getsource(f).strip())\n")
    return tree.check(recipe, lock, script=script)


def torch_with_plugins_that_it_preloads(root: Path) -> Report:
    tree = Tree(root).install(
        "torch",
        "2.5.1",
        {
            "torch/__init__.py": "__version__ = '2.5.1+cu124'\n",
            "torch/version.py": "cuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n",
            "torch/lib/libc10.so": shared_object(["libc.so.6"], soname="libc10.so"),
            "torch/lib/libtorch_cuda.so": shared_object(
                ["libc10.so", "libcublas.so.12"], runpath=f"$ORIGIN:{TORCH_RUNPATH}"
            ),
            "torch/_C.so": shared_object(["libtorch_cuda.so"], rpath="$ORIGIN/lib"),
        },
    )
    install_cuda(tree)
    tree.install(
        "torchvision",
        "0.20.1",
        {"torchvision/__init__.py": "", "torchvision/_C.so": shared_object(["libc10.so"])},
    )
    return tree.check(
        make_recipe("torchvision", framework="torch==2.5.*"), make_lock({"torch": "2.5.1"})
    )


TORCH_RUNPATH = "$ORIGIN/../../nvidia/cublas/lib"


def libraries_of_the_driver_and_of_optional_parts(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    rdma = shared_object(["libmlx5.so.1", "librdmacm.so.1"])
    tree.install("nvidia-cufile-cu12", "1", {"nvidia/cufile/lib/libcufile_rdma.so.1": rdma})
    tree.install(
        "triton",
        "3",
        {"triton/__init__.py": "", "triton/nvidia.so": shared_object(["libcuda.so.1"])},
    )
    ffmpeg = {
        f"torio/lib/libtorio_ffmpeg{n}.so": shared_object([f"libavutil.so.{n + 52}"])
        for n in (4, 5, 6)
    }
    tree.install("torchaudio", "2.5.1", {"torchaudio/__init__.py": "", **ffmpeg})
    cudas = {
        f"bitsandbytes/libbitsandbytes_cuda{n}.so": shared_object([f"libcublas.so.{n // 10}"])
        for n in (118, 130)
    }
    tree.install("bitsandbytes", "0.45.0", {"bitsandbytes/__init__.py": "", **cudas})
    return tree.check(recipe, lock)


def objects_of_another_machine(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install(
        "fat",
        "1",
        {"fat/arm.so": shared_object(["libarm.so.1"], machine=183), "fat/script.so": "GROUP ( x )"},
    )
    return tree.check(recipe, lock)


def alias_of_metadata_only(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("tensorflow-gpu", "2.15.1")
    return tree.check(recipe, lock)


def packages_that_share_a_folder_of_tests(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("one", "1", {"tests/__init__.py": "1\n"}).install(
        "two", "2", {"tests/__init__.py": "2\n"}
    )
    return tree.check(recipe, lock)


def cpu_build_on_purpose(root: Path) -> Report:
    tree = Tree(root).install(
        "tensorflow-cpu", "2.15.1", {"tensorflow/__init__.py": "__version__ = '2.15.1'\n"}
    )
    return tree.check(make_recipe(framework="tensorflow-cpu==2.15.*"))


def jax_with_its_plugin(root: Path) -> Report:
    tree = Tree(root).install("jax", "0.4.30", {"jax/__init__.py": ""})
    tree.install("jax-cuda12-plugin", "0.4.30").install("jax-cuda12-pjrt", "0.4.30")
    install_compilers(tree)
    return tree.check(make_recipe("jax"))


def cupy_for_the_images_cuda(root: Path) -> Report:
    tree = Tree(root).install("cupy-cuda12x", "13.0.0", {"cupy/__init__.py": ""})
    install_cuda(tree)
    tree.env["LD_LIBRARY_PATH"] = str(tree.site / "nvidia/cublas/lib")
    return tree.check(make_recipe("cupy-cuda12x"))


def no_framework_at_all(root: Path) -> Report:
    tree = Tree(root).install("tqdm", "4", {"tqdm/__init__.py": ""})
    return tree.check(make_recipe("tqdm"), make_lock({}, {"tqdm": "4"}))


def needs_the_driver_to_be_imported(root: Path) -> Report:
    tree, _, lock = tensorflow_tree(root)
    message = "libcuda.so.1: cannot open shared object file: No such file or directory"
    tree.install("gpuonly", "1", {"gpuonly.py": f"raise ImportError({message!r})\n"})
    return tree.check(make_recipe("gpuonly", framework="tensorflow==2.15.*"), lock)


def wants_a_gpu_to_be_imported(root: Path) -> Report:
    tree, _, lock = tensorflow_tree(root)
    message = "Unsloth cannot find any torch accelerator? You need a GPU."
    tree.install("gpuonly", "1", {"gpuonly.py": f"raise NotImplementedError({message!r})\n"})
    return tree.check(make_recipe("gpuonly", framework="tensorflow==2.15.*"), lock)


def names_that_differ_from_modules(root: Path) -> Report:
    tree = Tree(root)
    tree.install("Pillow", "10", {"PIL/__init__.py": ""}).install(
        "protobuf", "5", {"google/protobuf/__init__.py": ""}
    )
    tree.install("PyYAML", "6", {"yaml/__init__.py": "", "_yaml/__init__.py": ""})
    tree.install("ruamel.yaml", "0.18", {"ruamel/yaml/__init__.py": ""})
    tree.write("dateutil/__init__.py")
    tree.install("python_dateutil", "2.9", record=False).write(
        "python_dateutil-2.9.dist-info/top_level.txt", "dateutil\n"
    )
    return tree.check(
        make_recipe(
            "pillow", "protobuf~=5.0", "pyyaml", "ruamel.yaml", "python-dateutil ; os_name!='nt'"
        )
    )


def version_written_in_another_way(root: Path) -> Report:
    tree = Tree(root).install("odd", "1.0-1", {"odd.py": ""})
    return tree.check(make_recipe("odd"), make_lock({}, {"odd": "1.0.post1"}))


def old_tensorflow_with_what_goes_with_it(root: Path) -> Report:
    tree = old_tensorflow_tree(root)
    tree.install("h5py", "2.10.0", {"h5py/__init__.py": ""}).install(
        "Keras", "2.3.1", {"keras/__init__.py": ""}
    )
    return tree.check(make_recipe("keras", "h5py"))


def keras_of_the_same_minor_version(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("keras", "2.15.0", {"keras/__init__.py": ""}).install(
        "tf-keras", "2.15.1", {"tf_keras.py": ""}
    )
    return tree.check(recipe, lock)


def torch_with_its_torchvision_and_torchaudio(root: Path) -> Report:
    tree = torch_tree(root).install("torchvision", "0.20.1", {"torchvision/__init__.py": ""})
    tree.install("torchaudio", "2.5.1+cu124", {"torchaudio/__init__.py": ""})
    return tree.check(make_recipe("torchvision", "torchaudio", framework="torch==2.5.*"))


def prerelease_of_the_makers_own_image(root: Path) -> Report:
    tree = Tree(root).install(
        "torch",
        "2.5.0a0+e000cf0ad9.nv24.10",
        {
            "torch/__init__.py": "__version__ = '2.5.0a0'\n",
            "torch/version.py": "cuda = '12.6'\nhip = None\n",
        },
    )
    return tree.install("torchvision", "0.20.0a0", {"torchvision/__init__.py": ""}).check(
        make_recipe("torchvision")
    )


def old_jax_with_cuda_in_its_jaxlib(root: Path) -> Report:
    tree = Tree(root).install("jax", "0.4.26", {"jax/__init__.py": ""})
    tree.install("jaxlib", "0.4.26+cuda12.cudnn89", {"jaxlib/__init__.py": ""})
    install_compilers(tree)
    return tree.check(make_recipe("jax"))


def small_onnxruntime_for_a_tokenizer(root: Path) -> Report:
    tree = torch_tree(root).install("onnxruntime", "1.20.0", {"onnxruntime/__init__.py": ""})
    return tree.check(make_recipe("onnxruntime", framework="torch==2.5.*"))


def onnxruntime_on_the_cpu_and_nothing_else(root: Path) -> Report:
    return Tree(root).install("onnxruntime", "1.20.0", {"onnxruntime/__init__.py": ""}).check()


def one_opencv(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    return tree.install(
        "opencv-contrib-python-headless", "4.10.0.84", {"cv2/__init__.py": ""}
    ).check(recipe, lock)


def two_opencvs_of_one_release(root: Path) -> Report:
    tree = torch_tree(root)
    tree.install("opencv-python", "4.10.0.84", {"cv2/__init__.py": "", "cv2/version.py": "a = 1\n"})
    tree.install(
        "opencv-contrib-python-headless",
        "4.10.0.82",
        {"cv2/__init__.py": "", "cv2/version.py": "a = 2\n"},
    )
    return tree.check(make_recipe("opencv-python", framework="torch==2.5.*"))


def tensorflow_over_its_cpu_build_of_one_release(root: Path) -> Report:
    files = tensorflow_files(build_info="is_cuda_build = False\n")
    tree = Tree(root).install("tensorflow-cpu", "2.15.1", files)
    tree.install("tensorflow", "2.15.1", tensorflow_files())
    install_cuda(tree)
    return tree.check(make_recipe("tensorflow-cpu", framework="tensorflow==2.15.*"))


def part_that_lies_over_its_package(root: Path) -> Report:
    tree = torch_tree(root)
    tree.install("md", "8", {"md/a.py": "a = 1\n"}, requires=['md-cuda; extra == "cuda"'])
    tree.install("md-cuda", "8", {"md/a.py": "a = 2\n"})
    return tree.check(make_recipe("torch", framework="torch==2.5.*"))


def programs_beside_the_packages(root: Path) -> Report:
    tree = torch_tree(root).install(
        "tool", "1", {"tool.py": "", "../../../bin/tool": "#!/bin/sh\n"}
    )
    return tree.check(make_recipe("tool", framework="torch==2.5.*"))


def project_installed_from_its_folder(root: Path) -> Report:
    tree = torch_tree(root)
    source = root / "opt/project"
    source.mkdir(parents=True)
    (source / "ours.py").write_text("")
    tree.install("ours", "0.1", {"__editable__.ours.pth": f"{source}\n"})
    return tree.check(make_recipe("ours", framework="torch==2.5.*", imports=["ours"]))


def packages_of_debian_without_lists(root: Path) -> Report:
    tree = torch_tree(root)
    tree.write("six.py")
    tree.write("six-1.16.0.egg-info", "Metadata-Version: 1.2\nName: six\nVersion: 1.16.0\n")
    tree.write("attr/__init__.py")
    tree.write(
        "attrs-22.2.0.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: attrs\nVersion: 22.2.0\n"
    )
    tree.write("attrs-22.2.0.egg-info/top_level.txt", "attr\n")
    return tree.check(make_recipe("six", "attrs", framework="torch==2.5.*"))


def framework_of_conda_without_hashes(root: Path) -> Report:
    tree = torch_tree(root)
    (tree.site / "torch-2.5.1.dist-info/RECORD").unlink()
    (tree.site / "torch-2.5.1.dist-info/INSTALLER").unlink()
    return tree.check(make_recipe(framework="torch==2.5.*"))


def requirement_for_another_system(root: Path) -> Report:
    tree = torch_tree(root)
    return tree.check(
        make_recipe("pywin32>=300; sys_platform == 'win32'", framework="torch==2.5.*")
    )


def requirement_by_address(root: Path) -> Report:
    tree = torch_tree(root).install("clip", "1.0", {"clip/__init__.py": ""})
    return tree.check(
        make_recipe("clip @ git+https://mirror.invalid/clip@0123", framework="torch==2.5.*")
    )


def import_that_prints_and_warns(root: Path) -> Report:
    text = "import sys, warnings\nprint('=====envbuild-answer-begin=====')\nwarnings.warn('old')\nsys.stderr.write('x' * 9999)\n"
    return (
        torch_tree(root)
        .install("loud", "1", {"loud.py": text})
        .check(make_recipe("loud", framework="torch==2.5.*"))
    )


def files_of_packages_that_programs_changed(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.write(
        "sklearn/__init__.py", "__version__ = '1.4.0'  # patched in place by the definition\n"
    )
    return tree.check(recipe, lock)


def package_that_does_not_fit_and_that_nobody_imports(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    tree.install("tensorflow-text", "2.16.1", {"tensorflow_text/__init__.py": ""})
    return tree.check(recipe, lock)


def newer_library_of_cuda_than_torch_pins(root: Path) -> Report:
    tree = Tree(root).install("torch", "2.5.1", torch_files(), requires=TORCH_PARTS)
    tree.install("nvidia-nccl-cu12", "2.27.3", {"nvidia/nccl/__init__.py": ""})
    return tree.check(
        make_recipe(framework="torch==2.5.*"), project=project(root, "import torch\n")
    )


def plugin_for_a_framework_that_is_not_there(root: Path) -> Report:
    tree = Tree(root).install(
        "open3d",
        "0.19.0",
        {
            "open3d/__init__.py": "",
            "open3d/ml/torch.py": "NAME = 'open3d_torch_ops.so'\n",
            "open3d/cuda/open3d_torch_ops.so": shared_object(["libtorch.so", "libcudart.so.12"]),
        },
    )
    return tree.check(make_recipe("open3d"))


def framework_whose_metadata_is_not_as_its_list_says(root: Path) -> Report:
    tree = torch_tree(root)
    (tree.site / "torch-2.5.1.dist-info/METADATA").write_text(
        "Name: torch\nVersion: 2.5.1\n\nOther.\n"
    )
    return tree.check(make_recipe(framework="torch"))


def jax_for_the_cpu_that_nobody_asks_for(root: Path) -> Report:
    tree = Tree(root).install("pennylane", "0.41.1", {"pennylane/__init__.py": ""})
    tree.install("jax", "0.4.38", {"jax/__init__.py": ""})
    tree.install("jaxlib", "0.4.38", {"jaxlib/__init__.py": ""})
    return tree.check(make_recipe("pennylane"))


def compat_folder_of_a_data_centre_image(root: Path) -> Report:
    tree = torch_tree(root)
    tree.env["LD_LIBRARY_PATH"] = (
        "/usr/local/cuda/compat/lib:/usr/local/nvidia/lib64:/.singularity.d/libs"
    )
    return tree.check(make_recipe(framework="torch==2.5.*"))


def xla_with_its_tools(root: Path) -> Report:
    tree, recipe, lock = tensorflow_tree(root)
    install_compilers(tree)
    return tree.check(
        recipe, lock, project=project(root, "step = tf.function(step, jit_compile=True)\n")
    )


def torch_compile_with_tritons_own_ptxas(root: Path) -> Report:
    tree = torch_tree(root)
    tree.install(
        "triton", "3.1.0", {"triton/__init__.py": "", "triton/backends/nvidia/bin/ptxas": ""}
    )
    install_c_compilers(tree, root)
    return tree.check(
        make_recipe(framework="torch"), project=project(root, "model = torch.compile(model)\n")
    )


def torch_compile_in_a_comment(root: Path) -> Report:
    tree = torch_tree(root)
    tree.env["PATH"] = str(root / "no-programs")
    text = "import re\n# model = torch.compile(model) was slower\nre.compile('x')\n"
    return tree.check(make_recipe(framework="torch"), project=project(root, text))


def project_that_asks_in_the_right_way(root: Path) -> Report:
    text = "import torch\nprint(torch.cuda.is_available(), torch.cuda.device_count())\nassert torch.cuda.is_available()\n"
    return torch_tree(root).check(make_recipe(framework="torch"), project=project(root, text))


def packages_that_share_small_files(root: Path) -> Report:
    """Tests at the top, a licence and a namespace are many packages'."""
    tree = Tree(root)
    for name in ("one", "two"):
        files = {
            f"{name}/__init__.py": "",
            "tests/test_all.py": f"# of {name}\n",
            "tests/__init__.py": f"# of {name}\n",
            "LICENSE": f"of {name}\n",
            "shared/__init__.py": f"# of {name}\n",
            f"shared/{name}.py": "",
        }
        tree.install(name, "1", files)
    return tree.check(make_recipe("one", "two"))


def attributes_that_the_project_asks_for_first(root: Path) -> Report:
    text = "import torch\ntorch.mine = 1\nif hasattr(torch, 'late'):\n    torch.late()\nprint(torch.mine)\n"
    return torch_tree(root).check(make_recipe(framework="torch"), project=project(root, text))


def project_of_python_2(root: Path) -> Report:
    return torch_tree(root).check(
        make_recipe(framework="torch"), project=project(root, "print tf.test.is_gpu_available\n")
    )


def node_with_an_older_gpu_of_the_same_major(root: Path) -> Report:
    return torch_tree(root).check(
        make_recipe(framework="torch"), target=read_target(gpu="RTX 4090", driver="525.60.13")
    )


def node_with_the_oldest_driver_of_the_family(root: Path) -> Report:
    return torch_tree(root).check(
        make_recipe(framework="torch"),
        target=read_target(gpu="V100", driver="525.60.13", glibc="2.17"),
    )


def portable_code_and_its_own_driver(root: Path) -> Report:
    tree = torch_tree(root, ("sass", 80), ("ptx", 80))
    return tree.check(
        make_recipe(framework="torch"), target=read_target(gpu="H100", driver="550.54.14")
    )


def single_kernels_for_one_gpu(root: Path) -> Report:
    tree = torch_tree(root)
    regions = [fatbin.region([("sass", 70), ("sass", 80)])] * 9 + [fatbin.region([("sass", 90)])]
    tree.install("attention", "1", {"attention/ops.so": fatbin.library(regions)})
    return tree.check(make_recipe(framework="torch"), target=read_target(gpu="A100"), level="full")


def tensorflow_for_the_old_driver_of_an_a100(root: Path) -> Report:
    tree = old_tensorflow_tree(root)
    return tree.check(target=read_target(driver="450.80.02"))


def gpus_chosen_by_the_scheduler(root: Path) -> Report:
    given = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "0"}
    return torch_tree(root).check(make_recipe(framework="torch"), environment=given)


def jax_with_the_cpu_as_its_second_choice(root: Path) -> Report:
    tree = jax_tree(root, "0.4.30", "0.4.30")
    tree.env |= {"JAX_PLATFORMS": "cuda,cpu", "XLA_FLAGS": "--xla_gpu_autotune_level=2"}
    return tree.check(make_recipe("jax"))


def torch_with_a_variable_for_jax(root: Path) -> Report:
    tree = torch_tree(root)
    tree.env["JAX_PLATFORMS"] = "cpu"
    return tree.check(make_recipe(framework="torch"))


def torch_with_transformers_that_leave_tensorflow_out(root: Path) -> Report:
    text = "class BertConfig:\n    def __init__(self, **sizes): pass\nclass BertModel:\n    def __init__(self, config): pass\n"
    tree = torch_tree(root).install("transformers", "4.46.3", {"transformers/__init__.py": text})
    tree.env["USE_TF"] = "0"
    return tree.check(make_recipe(framework="torch"))


def tensorboard_that_nobody_asked_for(root: Path) -> Report:
    files = {"tensorboard/__init__.py": "", "tensorboard/main.py": "import pkg_resources_of_old\n"}
    return (
        torch_tree(root)
        .install("tensorboard", "2.18.0", files)
        .check(make_recipe(framework="torch"))
    )


def driver_of_a_distribution_where_the_hosts_comes_first(root: Path) -> Report:
    tree = torch_tree(root)
    own_driver(root, "usr/lib/x86_64-linux-gnu")
    tree.env["LD_LIBRARY_PATH"] = f"/.singularity.d/libs:{root}/usr/lib/x86_64-linux-gnu"
    return tree.check(make_recipe(framework="torch"))


def compat_folder_with_its_driver(root: Path) -> Report:
    tree = torch_tree(root)
    tree.env["LD_LIBRARY_PATH"] = (
        f"{own_driver(root, 'usr/local/cuda/compat')}:/.singularity.d/libs"
    )
    return tree.check(make_recipe(framework="torch"))


def stub_that_is_only_there_for_linking(root: Path) -> Report:
    tree = torch_tree(root)
    own_driver(root, "usr/local/cuda/lib64/stubs")
    tree.env["LD_LIBRARY_PATH"] = f"{root}/usr/local/cuda/lib64:/.singularity.d/libs"
    return tree.check(make_recipe(framework="torch"))


def files_that_their_group_may_write(root: Path) -> Report:
    tree = torch_tree(root).install(
        "einops", "0.8.0", {"einops/__init__.py": "", "einops/data/cache.bin": ""}
    )
    (tree.site / "einops/__init__.py").chmod(0o664)
    (tree.site / "einops").chmod(0o2775)
    (tree.site / "einops/data/cache.bin").chmod(0o600)
    return tree.check(make_recipe("einops", framework="torch"))


def chainer_with_its_cupy(root: Path) -> Report:
    tree = Tree(root).install("cupy-cuda12x", "13.0.0", {"cupy/__init__.py": ""})
    install_cuda(tree)
    tree.env["LD_LIBRARY_PATH"] = str(tree.site / "nvidia/cublas/lib")
    return tree.install("chainer", "7.8.1", {"chainer/__init__.py": ""}).check(
        make_recipe("chainer")
    )


def chainer_beside_another_framework(root: Path) -> Report:
    return (
        torch_tree(root)
        .install("chainer", "7.8.1", {"chainer/__init__.py": ""})
        .check(make_recipe("chainer"))
    )


def scripts_with_ordinary_names(root: Path) -> Report:
    folder = project(root, "import torch\nfrom model import types\n")
    for name in (
        "test.py",
        "utils.py",
        "code.py",
        "site.py",
        "transformers.py",
        "model/__init__.py",
        "model/types.py",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    return torch_tree(root).check(make_recipe(framework="torch"), project=folder)


def package_whose_own_modules_are_called_so(root: Path) -> Report:
    folder = project(root, "from . import random\n")
    for name in ("__init__.py", "random.py", "types.py"):
        (folder / name).write_text("")
    return torch_tree(root).check(make_recipe(framework="torch"), project=folder)


def parts_as_torch_asks_for_them(root: Path) -> Report:
    tree = Tree(root).install("torch", "2.5.1", torch_files(), requires=TORCH_PARTS)
    tree.install("triton", "3.1.0", {"triton/__init__.py": ""}).install(
        "nvidia-nccl-cu12", "2.21.5"
    )
    tree.install("nvidia-cudnn-cu12", "9.1.0.70").install("typing-extensions", "4.5.0")
    return tree.check(make_recipe(framework="torch"))


def torch_without_its_wheels_over_a_toolkit(root: Path) -> Report:
    tree = Tree(root).install("torch", "2.5.1", torch_files(), requires=TORCH_PARTS)
    tree.install("triton", "3.1.0", {"triton/__init__.py": ""})
    return tree.check(make_recipe(framework="torch"))


HEALTHY = [
    *CONDA_HEALTHY,
    two_opencvs_of_one_release,
    part_that_lies_over_its_package,
    tensorflow_over_its_cpu_build_of_one_release,
    gpus_chosen_by_the_scheduler,
    jax_with_the_cpu_as_its_second_choice,
    torch_with_a_variable_for_jax,
    torch_with_transformers_that_leave_tensorflow_out,
    tensorboard_that_nobody_asked_for,
    driver_of_a_distribution_where_the_hosts_comes_first,
    compat_folder_with_its_driver,
    stub_that_is_only_there_for_linking,
    files_that_their_group_may_write,
    chainer_with_its_cupy,
    chainer_beside_another_framework,
    scripts_with_ordinary_names,
    package_whose_own_modules_are_called_so,
    parts_as_torch_asks_for_them,
    torch_without_its_wheels_over_a_toolkit,
    tensorflow_with_its_cuda_wheels,
    torch_with_plugins_that_it_preloads,
    libraries_of_the_driver_and_of_optional_parts,
    objects_of_another_machine,
    alias_of_metadata_only,
    packages_that_share_a_folder_of_tests,
    cpu_build_on_purpose,
    jax_with_its_plugin,
    cupy_for_the_images_cuda,
    no_framework_at_all,
    needs_the_driver_to_be_imported,
    wants_a_gpu_to_be_imported,
    names_that_differ_from_modules,
    version_written_in_another_way,
    old_tensorflow_with_what_goes_with_it,
    keras_of_the_same_minor_version,
    torch_with_its_torchvision_and_torchaudio,
    prerelease_of_the_makers_own_image,
    old_jax_with_cuda_in_its_jaxlib,
    small_onnxruntime_for_a_tokenizer,
    onnxruntime_on_the_cpu_and_nothing_else,
    one_opencv,
    programs_beside_the_packages,
    project_installed_from_its_folder,
    packages_of_debian_without_lists,
    framework_of_conda_without_hashes,
    requirement_for_another_system,
    requirement_by_address,
    import_that_prints_and_warns,
    files_of_packages_that_programs_changed,
    compat_folder_of_a_data_centre_image,
    package_that_does_not_fit_and_that_nobody_imports,
    newer_library_of_cuda_than_torch_pins,
    plugin_for_a_framework_that_is_not_there,
    jax_for_the_cpu_that_nobody_asks_for,
    framework_whose_metadata_is_not_as_its_list_says,
    xla_with_its_tools,
    torch_compile_with_tritons_own_ptxas,
    torch_compile_in_a_comment,
    project_that_asks_in_the_right_way,
    packages_that_share_small_files,
    attributes_that_the_project_asks_for_first,
    project_of_python_2,
    node_with_an_older_gpu_of_the_same_major,
    node_with_the_oldest_driver_of_the_family,
    portable_code_and_its_own_driver,
    single_kernels_for_one_gpu,
    tensorflow_for_the_old_driver_of_an_a100,
]
