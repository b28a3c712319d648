"""Trees with a conda environment, healthy or with one fault; its records are written as linking writes them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from envbuild.check.model import Report
from envbuild.check.target import read_target
from envbuild.lock.model import CondaPackage
from tests.check import fatbin
from tests.check.elf import library_probe, shared_object
from tests.check.tree import Tree, make_lock, make_recipe
from tests.conda.archives import Archive

SITE = "lib/python3.11/site-packages"
NUMPY = {
    f"{SITE}/numpy/__init__.py": b"__version__ = '1.26.4'\n",
    f"{SITE}/numpy-1.26.4.dist-info/METADATA": b"Name: numpy\nVersion: 1.26.4\n",
    f"{SITE}/numpy-1.26.4.dist-info/INSTALLER": b"conda\n",
}


class CondaTree:
    """A tree of check and an environment below its opt/env."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.prefix = root / "opt/env"
        self.locked: list[CondaPackage] = []
        self.add("numpy", "1.26.4", "py311_0", NUMPY)
        self.add("llvm-openmp", "18.1.8", "h1_0", {"lib/libomp.so": b"openmp"})
        (self.prefix / "lib/libiomp5.so").symlink_to("libomp.so")
        for name in ("libblas", "libcblas"):
            self.add(name, "3.9.0", "26_linux64_openblas", {f"lib/{name}.so.3": b"blas"})

    def add(
        self,
        name: str,
        version: str,
        build: str,
        files: Mapping[str, bytes],
        flags: tuple[str, ...] = (),
    ) -> None:
        """Install a package: its files and its record, with the flags of CEP 45."""
        paths = []
        for path, data in files.items():
            self.write(path, data)
            sha256 = hashlib.sha256(data).hexdigest()
            paths.append({"_path": path, "path_type": "hardlink", "sha256": sha256})
        record: dict[str, object] = {
            "name": name,
            "version": version,
            "build": build,
            "channel": None,
        }
        if flags:
            record["flags"] = [*flags]
        text = json.dumps({**record, "files": [*files], "paths_data": {"paths": paths}})
        self.write(f"conda-meta/{name}-{version}-{build}.json", text.encode())
        self.locked.append(Archive(name=name, version=version, build=build).locked(b""))

    def add_wheel(self, name: str, version: str, files: Mapping[str, bytes]) -> None:
        """Install a distribution as pip does."""
        info = f"{name}-{version}.dist-info"
        rows = []
        for path, data in files.items():
            self.write(f"{SITE}/{path}", data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(data)}")
        self.write(f"{SITE}/{info}/METADATA", f"Name: {name}\nVersion: {version}\n".encode())
        self.write(f"{SITE}/{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,", ""]).encode())

    def write(self, path: str, data: bytes) -> None:
        """Write a file of the environment."""
        target = self.prefix / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def add_cuda(self, version: str) -> None:
        """Install CUDA's libraries, as an environment without a known framework has them."""
        self.add("cuda-version", version, "h1_3", {"share/cuda": b""})
        self.add("libcublas", f"{version}.1", "h1_0", {"lib/libcublas.so": b""})

    def check(self, **node: str) -> Report:
        """Check the tree against a lock of what was added; ``node`` is what it is meant for."""
        lock = make_lock()
        base = msgspec.structs.replace(lock.base, conda_prefix=str(self.prefix))
        lock = msgspec.structs.replace(lock, base=base, conda=tuple(self.locked))
        return self.tree.check(make_recipe(), lock, target=read_target(**node))

    def check_alone(self, **node: str) -> Report:
        """Check the tree as an image of others, of which neither recipe nor lock are here."""
        self.tree.env["CONDA_PREFIX"] = str(self.prefix)
        return self.tree.check(None, None, target=read_target(**node) if node else None)


def conda_with_pip_on_top(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add_wheel("six", "1.16.0", {"six.py": b""})
    return tree.check()


def gpu_build_of_conda(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add("pytorch", "2.5.1", "cuda126_py311_h1_0", {"share/pytorch": b""})
    tree.add("libcublas", "12.6.1.4", "h1_0", {"lib/libcublas.so.12": b""})
    return tree.check()


def conda_package_of_another_build(root: Path) -> Report:
    tree = CondaTree(root)
    tree.locked[0] = Archive(name="numpy", version="1.26.4", build="py311_1").locked(b"")
    return tree.check()


def file_of_conda_removed(root: Path) -> Report:
    tree = CondaTree(root)
    (tree.prefix / "lib/libblas.so.3").unlink()
    return tree.check()


def cpu_build_of_conda_beside_cuda(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add("pytorch", "2.5.1", "cpu_generic_py311_h1_0", {"share/pytorch": b""})
    tree.add("libcublas", "12.6.1.4", "h1_0", {"lib/libcublas.so.12": b""})
    return tree.check()


def cpu_build_of_conda_by_its_flag(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add("pytorch", "2.5.1", "py311_h1_0", {"share/pytorch": b""}, flags=("cpu",))
    tree.add_cuda("12.6")
    return tree.check()


def with_cpu_build(root: Path) -> CondaTree:
    """A framework for the CPU, without anything of CUDA."""
    tree = CondaTree(root)
    tree.add("pytorch", "2.5.1", "cpu_generic_py311_h1_0", {"share/pytorch": b""})
    return tree


def cpu_build_of_others_for_a_node_with_a_gpu(root: Path) -> Report:
    return with_cpu_build(root).check_alone(driver="550.54.14", gpu="A100")


def cpu_build_of_others_for_any_node(root: Path) -> Report:
    return with_cpu_build(root).check_alone()


def cpu_build_that_is_locked(root: Path) -> Report:
    # the recipe chose it: lock takes none without being asked, and has a note
    return with_cpu_build(root).check(driver="550.54.14", gpu="A100")


def gpu_build_of_conda_by_its_flag(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add("pytorch", "2.5.1", "py311_h1_0", {"share/pytorch": b""}, flags=("cuda",))
    tree.add_cuda("12.6")
    return tree.check()


def cuda_of_conda_newer_than_the_driver(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add_cuda("13.0")
    return tree.check(driver="550.54.14")


def cuda_of_conda_without_code_for_the_card(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add_cuda("13.0")
    return tree.check(driver="580.65.06", gpu="V100")


def cuda_of_conda_for_the_node(root: Path) -> Report:
    # newer than the driver's own 12.4: minor version compatibility
    tree = CondaTree(root)
    tree.add_cuda("12.9")
    return tree.check(driver="550.54.14", gpu="V100")


def pip_over_conda(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add_wheel("numpy", "2.1.0", {"numpy/__init__.py": b"__version__ = '2.1.0'\n"})
    return tree.check()


def conda_over_pip(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add_wheel("numpy", "2.1.0", {"numpy/__init__.py": b"__version__ = '2.1.0'\n"})
    tree.write(f"{SITE}/numpy/__init__.py", NUMPY[f"{SITE}/numpy/__init__.py"])
    return tree.check()


def two_openmp_in_conda(root: Path) -> Report:
    tree = CondaTree(root)
    (tree.prefix / "lib/libiomp5.so").unlink()
    tree.add("intel-openmp", "2024.2.0", "h1_0", {"lib/libiomp5.so": b"another"})
    return tree.check()


def two_blas_in_conda(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add("liblapack", "3.9.0", "26_linux64_mkl", {"lib/liblapack.so.3": b""})
    return tree.check()


def with_old_library(root: Path, *, rpath: str = "", runpath: str = "") -> CondaTree:
    """A library with these search paths, and an older one that it needs in LD_LIBRARY_PATH."""
    tree, needed = CondaTree(root), shared_object(soname="libstdc++.so.6")
    tree.add("libstdcxx", "14.2.0", "h1_0", {"lib/libstdc++.so.6": needed})
    user = shared_object(
        ["libstdc++.so.6", "libc.so.6"], soname="libuser.so.1", rpath=rpath, runpath=runpath
    )
    tree.add("user", "1.0", "h1_0", {"lib/libuser.so.1": user})
    old = root / "usr/local/old"
    old.mkdir(parents=True)
    (old / "libstdc++.so.6").write_bytes(needed)
    tree.tree.env["LD_LIBRARY_PATH"] = str(old)
    return tree


def rpath_out_of_the_environment(root: Path) -> Report:
    tree = with_old_library(root, rpath=f"{root}/usr/local/old:$ORIGIN")
    del tree.tree.env["LD_LIBRARY_PATH"]
    return tree.check()


def with_lost_rpath(root: Path, path: str, *, python: bool = True) -> Report:
    """A file that needs libstdc++, which the system has too, and says nowhere where conda's lies."""
    tree, name = CondaTree(root), "libstdc++.so.6"
    tree.add("libstdcxx", "14.2.0", "h1_0", {f"lib/{name}": shared_object(soname=name)})
    if python:
        program = shared_object(["libc.so.6"], rpath="$ORIGIN/../lib")
        tree.add("python", "3.11.9", "h1_0", {"bin/python": program})
    tree.add("user", "1.0", "h1_0", {path: shared_object([name, "libc.so.6"])})
    return tree.check()


def program_without_its_rpath(root: Path) -> Report:
    return with_lost_rpath(root, "bin/user")


def library_without_its_rpath(root: Path) -> Report:
    return with_lost_rpath(root, "lib/libuser.so.1", python=False)


def library_by_the_rpath_of_its_python(root: Path) -> Report:
    # DT_RPATH of who loads a library holds for it too
    return with_lost_rpath(root, "lib/libuser.so.1")


def library_that_only_the_system_has(root: Path) -> Report:
    tree = CondaTree(root)
    system = root / "usr/local/lib"
    system.mkdir(parents=True)
    (system / "libsystem.so.1").write_bytes(shared_object(soname="libsystem.so.1"))
    user = shared_object(["libsystem.so.1"], soname="libuser.so.1", rpath=str(system))
    tree.add("user", "1.0", "h1_0", {"lib/libuser.so.1": user})
    return tree.check()


def library_path_over_conda(root: Path) -> Report:
    # DT_RUNPATH comes after LD_LIBRARY_PATH
    return with_old_library(root, runpath="$ORIGIN").check()


def library_path_after_rpath(root: Path) -> Report:
    return with_old_library(root, rpath="$ORIGIN").check()


def library_of_conda_missing(root: Path) -> Report:
    tree = CondaTree(root)
    inner = shared_object(["libgone.so.3"], soname="libinner.so.1", rpath="$ORIGIN")
    outer = shared_object(["libinner.so.1"], soname="libouter.so.1", rpath="$ORIGIN")
    tree.add("user", "1.0", "h1_0", {"lib/libinner.so.1": inner, "lib/libouter.so.1": outer})
    return tree.check()


def plug_in_without_its_library(root: Path) -> Report:
    tree = CondaTree(root)
    plug_in = shared_object(["libgone.so.3"], soname="libplugin.so.1", rpath="$ORIGIN")
    tree.add("user", "1.0", "h1_0", {"lib/libplugin.so.1": plug_in})
    return tree.check()


def made_smaller_by_others(root: Path) -> Report:
    tree = CondaTree(root)
    (tree.prefix / "lib/libstatic.a").parent.mkdir(parents=True, exist_ok=True)
    tree.add("static", "1.0", "h1_0", {"lib/libstatic.a": b"", "share/js.map": b""})
    (tree.prefix / "lib/libstatic.a").unlink()
    return tree.check_alone()


def library_of_others_removed(root: Path) -> Report:
    tree = CondaTree(root)
    (tree.prefix / "lib/libblas.so.3").unlink()
    return tree.check_alone()


def pip_over_conda_of_others(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add_wheel("numpy", "2.1.0", {"numpy/__init__.py": b"__version__ = '2.1.0'\n"})
    return tree.check_alone()


SYSTEMS = library_probe().Search().find("libstdc++.so.6") or "none/libstdc++.so.6"
OF_SYSTEM = f"libstdc++.so.6 of {Path(SYSTEMS).parent} is loaded in the place of conda's"
OWNER = "1 file, for one lib/python3.11/site-packages/numpy/__init__.py"


def conda_package_for_another_python(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add("python", "3.11.9", "h1_0", {"bin/python3.11": b""})
    tree.add("pandas", "2.2.3", "py39_0", {"lib/python3.9/site-packages/pandas/__init__.py": b""})
    return tree.check()


def kernels_tree(root: Path, *capabilities: int) -> CondaTree:
    """Return an environment without a known framework: one package has GPU code for these cards."""
    tree = CondaTree(root)
    code = [fatbin.region([("sass", one)]) for one in capabilities]
    tree.add("kernels", "1.0", "cuda12_0", {"lib/libkernels.so.1": fatbin.library(code)})
    return tree


def code_of_conda_for_another_card(root: Path) -> Report:
    return kernels_tree(root, 70).check(gpu="H100")


def code_of_own_extension_for_another_card(root: Path) -> Report:
    tree = CondaTree(root)
    tree.tree.write("kernels/ops.so", fatbin.library([fatbin.region([("sass", 70)])]))
    return tree.check(gpu="H100")


def code_of_conda_for_several_cards(root: Path) -> Report:
    """One of its libraries is for another card alone, and CUDA's own is judged by its version."""
    tree = kernels_tree(root, 80, 90)
    other = fatbin.library([fatbin.region([("sass", 80)])])
    tree.add("libcublas", "12.6.1", "h1_0", {"lib/libcublas.so": other})
    tree.add("cuda-version", "12.6", "h1_3", {"share/cuda": b""})
    return tree.check(gpu="H100")


def conda_module_built_for_another_python(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add("python", "3.11.9", "h1_0", {"bin/python3.11": b""})
    tree.add("lxml", "5.0", "h1_0", {f"{SITE}/lxml/etree.cpython-39-x86_64-linux-gnu.so": b""})
    return tree.check()


def conda_modules_for_its_python(root: Path) -> Report:
    tree = CondaTree(root)
    tree.add("python", "3.11.9", "h1_0", {"bin/python3.11": b""})
    module = {f"{SITE}/lxml/etree.cpython-311-x86_64-linux-gnu.so": b"", f"{SITE}/a.abi3.so": b""}
    tree.add("lxml", "5.0", "h1_0", module)
    return tree.check()


CONDA_SICK = [
    (
        conda_package_for_another_python,
        {
            "conda-packages": "pandas is for another Python than the environment's 3.11: "
            "lib/python3.9/site-packages/pandas/__init__.py"
        },
    ),
    (
        conda_module_built_for_another_python,
        {
            "conda-packages": "lxml is for another Python than the environment's 3.11: "
            "lib/python3.11/site-packages/lxml/etree.cpython-39-x86_64-linux-gnu.so"
        },
    ),
    (
        conda_package_of_another_build,
        {
            "conda-packages": "conda's packages are not what the lock says: numpy 1.26.4 py311_0 instead of "
            "1.26.4 py311_1"
        },
    ),
    (
        file_of_conda_removed,
        {
            "conda-packages": "files of conda packages are gone: lib/libblas.so.3 of libblas, 1 in all"
        },
    ),
    (
        cpu_build_of_conda_beside_cuda,
        {
            "conda-packages": "pytorch 2.5.1 cpu_generic_py311_h1_0 is a build for the CPU, though CUDA's "
            "libraries are there (libcublas)"
        },
    ),
    (
        cpu_build_of_conda_by_its_flag,
        {
            "conda-packages": "pytorch 2.5.1 py311_h1_0 is a build for the CPU, though CUDA's libraries are "
            "there (libcublas)"
        },
    ),
    (
        cpu_build_of_others_for_a_node_with_a_gpu,
        {
            "conda-packages": "pytorch 2.5.1 cpu_generic_py311_h1_0 is a build for the CPU, and is to run on "
            "A100 (capability 8.0)"
        },
    ),
    (
        cuda_of_conda_newer_than_the_driver,
        {
            "target-driver": "driver 550.54.14 is too old for CUDA 13.0 of conda's packages, which needs "
            "580.65.06 or newer"
        },
    ),
    (
        cuda_of_conda_without_code_for_the_card,
        {
            "target-architecture": "CUDA 13.0 of conda's packages has no code for V100 (capability 7.0)"
        },
    ),
    (
        code_of_conda_for_another_card,
        {"target-architecture": "kernels: no code for H100 (capability 9.0)"},
    ),
    (
        code_of_own_extension_for_another_card,
        {"target-architecture": "kernels/ops.so: no code for H100 (capability 9.0)"},
    ),
    (
        rpath_out_of_the_environment,
        {
            "conda-libraries": "libstdc++.so.6 of ROOT/usr/local/old is loaded in the place of conda's"
        },
    ),
    (program_without_its_rpath, {"conda-libraries": OF_SYSTEM}),
    (library_without_its_rpath, {"conda-libraries": OF_SYSTEM}),
    (
        pip_over_conda,
        {"conda-owners": f"pip's numpy 2.1.0 was written over conda's numpy: {OWNER}"},
    ),
    (
        conda_over_pip,
        {"conda-owners": f"conda's numpy was written over pip's numpy 2.1.0: {OWNER}"},
    ),
    (
        two_openmp_in_conda,
        {
            "conda-libraries": "two OpenMP libraries of one kind: ROOT/opt/env/lib/libiomp5.so, "
            "ROOT/opt/env/lib/libomp.so; a process that loads both ends with OMP: Error #15"
        },
    ),
    (
        two_blas_in_conda,
        {
            "conda-libraries": "two implementations of BLAS and LAPACK: libblas of openblas, libcblas of openblas, "
            "liblapack of mkl"
        },
    ),
    (
        library_path_over_conda,
        {
            "conda-libraries": "libstdc++.so.6 of ROOT/usr/local/old is loaded in the place of conda's"
        },
    ),
    (
        library_of_conda_missing,
        {
            "conda-libraries": "ROOT/opt/env/lib/libinner.so.1 needs libgone.so.3, which is nowhere (1 in all)"
        },
    ),
    (
        library_of_others_removed,
        {
            "conda-packages": "files of conda packages are gone: lib/libblas.so.3 of libblas, 1 in all"
        },
    ),
    (
        pip_over_conda_of_others,
        {"conda-owners": f"pip's numpy 2.1.0 was written over conda's numpy: {OWNER}"},
    ),
]
CONDA_HEALTHY = [
    conda_modules_for_its_python,
    conda_with_pip_on_top,
    gpu_build_of_conda,
    gpu_build_of_conda_by_its_flag,
    cpu_build_of_others_for_any_node,
    cpu_build_that_is_locked,
    cuda_of_conda_for_the_node,
    code_of_conda_for_several_cards,
    library_by_the_rpath_of_its_python,
    library_that_only_the_system_has,
    library_path_after_rpath,
    plug_in_without_its_library,
    made_smaller_by_others,
]
