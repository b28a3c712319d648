"""Make small images on disk: an interpreter's folder with packages in it, and the "container" that runs there."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from envbuild.check.expected import CheckBasis
from envbuild.check.model import Report
from envbuild.check.perform import CheckHost, ImageFile, check_image
from envbuild.context import Context
from envbuild.lock.model import Lock, LockedBase, Packer, PythonPackage
from envbuild.progress import SilentStage
from envbuild.recipe.model import AboutSection, BaseSection, CheckSection, PythonSection, Recipe
from envbuild.run import Command
from envbuild.runtime import ExecOptions
from envbuild.settings import load_settings
from tests.check.elf import shared_object
from tests.support import quiet_context

Content = str | bytes
BASE_PYTHON = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
DIGEST = "sha256:" + "0" * 64


@dataclass
class Tree:
    """A virtual environment made by hand, so that only what a test puts there is installed."""

    root: Path
    env: dict[str, str] = field(
        default_factory=lambda: {"PYTHONNOUSERSITE": "1", "PATH": "/usr/bin:/bin"}
    )
    python: Path = BASE_PYTHON
    version: str = f"{sys.version_info[0]}.{sys.version_info[1]}"

    def __post_init__(self) -> None:
        (self.root / "bin").mkdir(parents=True)
        (self.root / "bin/python3").symlink_to(self.python)
        (self.root / "pyvenv.cfg").write_text(
            f"home = {self.python.parent}\ninclude-system-site-packages = false\n"
        )
        self.site.mkdir(parents=True)
        self.home.mkdir()

    @property
    def home(self) -> Path:
        return self.root.with_name(f"{self.root.name}-home")

    @property
    def site(self) -> Path:
        return self.root / f"lib/python{self.version}/site-packages"

    def write(self, path: str, content: Content = "") -> Path:
        target = self.site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def install(
        self,
        name: str,
        version: str,
        files: Mapping[str, Content] | None = None,
        *,
        record: bool = True,
        requires: Sequence[str] = (),
    ) -> Tree:
        """Install a distribution as pip does: its files, METADATA, INSTALLER and a RECORD of them all."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        wishes = "".join(f"Requires-Dist: {line}\n" for line in requires)
        content = {
            **(files or {}),
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wishes}\nText.\n",
            f"{info}/INSTALLER": "test\n",
        }
        rows = []
        for path, data in content.items():
            written = self.write(path, data).read_bytes()
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(written).digest()).rstrip(b"=").decode()
            )
            rows.append(f"{path},sha256={digest},{len(written)}")
        if record:
            self.write(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
        return self

    # -- the part of envbuild.runtime.Runtime that a check uses

    def exec_command(
        self, image: Path, argv: tuple[str, ...], options: ExecOptions | None = None
    ) -> Command:
        options = options or ExecOptions()
        program = str(self.root / "bin/python3") if argv[0] == "python3" else argv[0]
        return Command(
            argv=(program, *argv[1:]),
            env={"HOME": str(self.home), "TMPDIR": str(self.home), **self.env, **options.env},
            stdin=options.stdin,
            timeout=options.timeout,
            cwd=self.root,
        )

    def check(self, recipe: Recipe | None = None, lock: Lock | None = None, **more: Any) -> Report:
        """Check this tree as if it were an image; ``more`` are fields of check_image's records."""

        def take(record: type) -> dict[str, Any]:
            names = {one.name for one in fields(record)} & more.keys()
            return {name: more.pop(name) for name in names}

        image = ImageFile(**{"path": self.root, "digest": DIGEST, **take(ImageFile)})
        basis = CheckBasis(recipe=recipe, lock=lock, **take(CheckBasis))
        host = CheckHost(**{"runtime": self, "gpu": False, **take(CheckHost)})
        stage = more.pop("stage", SilentStage())
        assert not more
        return check_image(image, basis, host, silent_context(self.root.parent), stage)


def silent_context(folder: Path) -> Context:
    """Return a context whose store and temporary folders stand in this one; it says nothing."""
    settings = load_settings(
        {"HOME": str(folder), "ENVBUILD_STORE": str(folder / "store"), "TMPDIR": str(folder)},
        folder,
    )
    return quiet_context(settings)


def failures(report: Report) -> dict[str, str]:
    """Return the failed findings: check and reason."""
    return {
        finding.check: finding.reason for finding in report.findings if finding.outcome == "failed"
    }


def make_recipe(
    *dependencies: str, framework: str | None = None, imports: Sequence[str] = ()
) -> Recipe:
    return Recipe(
        recipe=AboutSection(name="test"),
        base=BaseSection(bootstrap="debian:bookworm", framework=framework),
        python=PythonSection(dependencies=dependencies),
        check=CheckSection(imports=tuple(imports)),
    )


def make_lock(
    framework: Mapping[str, str] | None = None, project: Mapping[str, str] | None = None
) -> Lock:
    """Lock some versions; ``framework`` and ``project`` map names to versions."""
    groups: list[tuple[Literal["framework", "project"], Mapping[str, str]]] = [
        ("framework", framework or {}),
        ("project", project or {}),
    ]
    packages = [
        PythonPackage(
            name=name, version=version, group=group, file=f"{name}.whl", size=1, sha256="0" * 64
        )
        for group, versions in groups
        for name, version in versions.items()
    ]
    base = LockedBase(
        reference="debian:bookworm",
        digest=DIGEST,
        facts=DIGEST,
        python="3.11.2",
        machine="x86_64",
        glibc="2.36",
        created="2024-01-01",
        epoch=1704067200,
        framework=next((f"{n} {v}" for n, v in (framework or {}).items()), None),
    )
    return Lock(
        schema=1,
        name="test",
        platform="linux/amd64",
        recipe_digest=DIGEST,
        proof="imported",
        direct=(),
        base=base,
        packer=Packer(name="mksquashfs", version="4.7.5", compressor="zstd", level=3),
        python=tuple(packages),
    )


# -- packages as their wheels lay them out

BUILD_INFO = """\
# Generated by gen_build_info.py
import collections
build_info = collections.OrderedDict([('cpu_compiler', '/usr/lib/llvm-17/bin/clang'), ('cuda_compute_capabilities', \
['sm_50', 'sm_60', 'sm_70', 'sm_75', 'compute_80']), ('cuda_version', '12.2'), ('cudnn_version', '8'), \
('is_cuda_build', True), ('is_rocm_build', False), ('is_tensorrt_build', True)])
"""
"""build_info.py of TensorFlow 2.15.1, its second half as recorded from the wheel."""
CUDA_WHEELS = {
    "nvidia-cuda-runtime-cu12": ("12.2.140", "cuda_runtime", ("libcudart.so.12",)),
    "nvidia-cublas-cu12": ("12.2.5.6", "cublas", ("libcublas.so.12", "libcublasLt.so.12")),
    "nvidia-cufft-cu12": ("11.0.8.103", "cufft", ("libcufft.so.11",)),
    "nvidia-cusolver-cu12": ("11.5.2.141", "cusolver", ("libcusolver.so.11",)),
    "nvidia-cusparse-cu12": ("12.1.2.141", "cusparse", ("libcusparse.so.12",)),
    "nvidia-cudnn-cu12": ("8.9.4.25", "cudnn", ("libcudnn.so.8",)),
}
RUNPATH = ":".join(f"$ORIGIN/../nvidia/{folder}/lib" for _, folder, _ in CUDA_WHEELS.values())


def tensorflow_files(version: str = "2.15.1", build_info: str = BUILD_INFO) -> dict[str, Content]:
    return {
        "tensorflow/__init__.py": f"__version__ = {version!r}\n",
        "tensorflow/python/platform/build_info.py": build_info,
        "tensorflow/libtensorflow_cc.so.2": shared_object(
            ["libtensorflow_framework.so.2", "libc.so.6"],
            soname="libtensorflow_cc.so.2",
            runpath=f"$ORIGIN:{RUNPATH}",
        ),
        "tensorflow/libtensorflow_framework.so.2": shared_object(
            ["libm.so.6"], soname="libtensorflow_framework.so.2", runpath=RUNPATH
        ),
    }


def install_cuda(tree: Tree, *, without: Sequence[str] = ()) -> dict[str, str]:
    """Install NVIDIA's wheels; returns their versions."""
    versions = {}
    for name, (version, folder, libraries) in CUDA_WHEELS.items():
        if name not in without:
            files: dict[str, Content] = {
                "nvidia/__init__.py": "",
                f"nvidia/{folder}/__init__.py": "",
            }
            files |= {
                f"nvidia/{folder}/lib/{one}": shared_object(["libc.so.6"], soname=one)
                for one in libraries
            }
            tree.install(name, version, files)
            versions[name] = version
    return versions


def tensorflow_tree(root: Path, *, without: Sequence[str] = ()) -> tuple[Tree, Recipe, Lock]:
    """Make a healthy project on TensorFlow 2.15 with its CUDA wheels, its recipe and its lock."""
    tree = Tree(root)
    tree.install("tensorflow", "2.15.1", tensorflow_files())
    framework = {"tensorflow": "2.15.1", **install_cuda(tree, without=without)}
    tree.install("scikit-learn", "1.4.0", {"sklearn/__init__.py": "__version__ = '1.4.0'\n"})
    tree.install("keras-bert", "0.89.0", {"keras_bert/__init__.py": "import tensorflow\n"})
    recipe = make_recipe("keras-bert", "scikit-learn>=1", framework="tensorflow[and-cuda]==2.15.*")
    return tree, recipe, make_lock(framework, {"keras-bert": "0.89.0", "scikit-learn": "1.4.0"})
