# ruff: noqa: PLR0917
"""Sick and healthy trees of real wheels: how each is made, what proves it, what check has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.sick.real.trees import Recipe


@dataclass(frozen=True, kw_only=True)
class Case:
    """One tree.

    ``proof`` is run in it, under a driver that shows one GPU if ``driver`` is set, and has to print ``says`` (regular
    expression): so the tree is sick, or healthy, whatever check thinks.  ``found`` are the check and the words (regular
    expression) that have to tell the fault; none for a healthy tree.  ``direct`` are the recipe's dependencies.
    ``mended`` is the tree after the hint was followed: its proof prints ``fine``.  ``project`` is the text of the
    project's train.py, where check is asked with one, ``beside`` are the project's further files.
    """

    name: str
    stack: str
    tree: Recipe
    proof: str
    says: str
    direct: tuple[str, ...]
    found: tuple[str, str] | None = None
    driver: bool = False
    hint: str = ""
    mended: Recipe | None = None
    fine: str = ""
    source: str = ""
    project: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)


CU124 = (
    "nvidia-cublas-cu12==12.4.5.8 nvidia-cuda-runtime-cu12==12.4.127 nvidia-cufft-cu12==11.2.1.3 "
    "nvidia-curand-cu12==10.3.5.147 nvidia-cuda-nvrtc-cu12==12.4.127 nvidia-cusolver-cu12==11.6.1.9 "
    "nvidia-cusparse-cu12==12.3.1.170 nvidia-nvjitlink-cu12==12.4.127 nvidia-nccl-cu12==2.21.5 "
    "nvidia-cuda-cupti-cu12==12.4.127"
)
CUDNN8 = "nvidia-cudnn-cu12==8.9.7.29"
CUDNN91 = "nvidia-cudnn-cu12==9.1.0.70"
CUDNN93 = "nvidia-cudnn-cu12==9.3.0.75"
NVCC = "nvidia-cuda-nvcc-cu12==12.6.85"
T251 = "torch==2.5.1 numpy"
JX = f"jax[cuda12]==0.4.38 numpy<2.3 {CU124} {CUDNN91} {NVCC}"
FOLDERS = (
    "cublas",
    "cuda_nvrtc",
    "cuda_runtime",
    "cudnn",
    "cufft",
    "curand",
    "cusolver",
    "cusparse",
    "nvjitlink",
)
PATH = ":".join(f"{{site}}/nvidia/{name}/lib" for name in FOLDERS)
LIBRARY_PATH = {"LD_LIBRARY_PATH": PATH}

TF = "import tensorflow as tf; print('GPUS', len(tf.config.list_physical_devices('GPU')))"
NO_GPU, ONE_GPU = r"GPUS 0", r"GPUS 1"
CUDNN = "import torch; print('CUDNN', torch.backends.cudnn.version())"
TORCH = "import torch; print('FINE', torch.ones(3).numpy().sum())"
PROVIDER = """
import onnxruntime as o, os, ctypes, subprocess
{first}
path = os.path.join(os.path.dirname(o.__file__), 'capi/libonnxruntime_providers_cuda.so')
text = subprocess.run(['ldd', path], stdout=subprocess.PIPE).stdout.decode()
for name in [line.split()[0] for line in text.splitlines() if 'not found' in line]:
    ctypes.CDLL(name)
print('FINE')
"""
ORT = PROVIDER.format(first="")
ORT_TORCH = PROVIDER.format(first="import torch")
ORT_PRELOAD = PROVIDER.format(first="o.preload_dlls()")
NVRTC = """
import subprocess, torch, os
path = os.path.join(os.path.dirname(torch.__file__), 'lib/libcaffe2_nvrtc.so')
assert b'libnvrtc.so.12 => not found' not in subprocess.run(['ldd', path], stdout=subprocess.PIPE).stdout
"""
CUPY = "from cupy_backends.cuda.libs import nvrtc, cublas, curand, cusolver, cusparse; nvrtc.getVersion(); print('FINE')"
JAX = (
    "from jax_cuda12_plugin import _versions as v; "
    "print('FINE' if v.cudnn_get_version() // 100 >= v.cudnn_build_version() // 100 else 'CUDNN TOO OLD')"
)


COMPILES = "import torch\nmodel = torch.compile(torch.nn.Linear(3, 3))\n"


def tf(release: str, cudnn: str, *more: str) -> tuple[str, ...]:
    return (f"tensorflow=={release} {CU124} {cudnn}", *more)


def sick(
    name: str,
    stack: str,
    tree: Recipe,
    proof: str,
    says: str,
    direct: str,
    check: str,
    words: str,
    **more: Any,
) -> Case:
    return Case(
        name=name,
        stack=stack,
        tree=tree,
        proof=proof,
        says=says,
        direct=tuple(direct.split()),
        found=(check, words),
        **more,
    )


def healthy(
    name: str, stack: str, tree: Recipe, proof: str, says: str, direct: str, **more: Any
) -> Case:
    return Case(
        name=name,
        stack=stack,
        tree=tree,
        proof=proof,
        says=says,
        direct=tuple(direct.split()),
        **more,
    )


def of(*install: str, **more: Any) -> Recipe:
    return Recipe(install=install, **more)


SICK = (
    # -- TensorFlow: what it opens at run time
    sick(
        "tensorflow 2.21, cuSOLVER where it does not look",
        "tf221",
        of("tensorflow[and-cuda]==2.21.0"),
        TF,
        NO_GPU,
        "tensorflow",
        "cuda-match",
        r"opens libcusolver\.so\.11, which is in nvidia/cusolver/lib",
        driver=True,
        hint="LD_LIBRARY_PATH",
        mended=of("tensorflow[and-cuda]==2.21.0", environment=LIBRARY_PATH),
        fine=ONE_GPU,
    ),
    sick(
        "tensorflow 2.21 without its CUDA extra",
        "tf221",
        of("tensorflow==2.21.0"),
        TF,
        NO_GPU,
        "tensorflow",
        "cuda-match",
        r"not in the image",
        driver=True,
        hint=r"tensorflow\[and-cuda\]",
    ),
    sick(
        "tensorflow 2.21, cuDNN taken away",
        "tf221",
        of("tensorflow[and-cuda]==2.21.0", remove=("nvidia-cudnn-cu12",), environment=LIBRARY_PATH),
        TF,
        NO_GPU,
        "tensorflow",
        "cuda-match",
        r"libcudnn\.so\.9, which is not in the image",
        driver=True,
        hint="nvidia-cudnn-cu12",
        mended=of("tensorflow[and-cuda]==2.21.0", environment=LIBRARY_PATH),
        fine=ONE_GPU,
    ),
    sick(
        "tensorflow 2.21 with cuDNN 9.1",
        "tf221",
        of("tensorflow[and-cuda]==2.21.0", f"--no-deps {CUDNN91}", environment=LIBRARY_PATH),
        "import ctypes, nvidia.cudnn as c; print('CUDNN', ctypes.CDLL(list(c.__path__)[0] + '/lib/libcudnn.so.9').cudnnGetVersion())",
        r"CUDNN 90100",
        "tensorflow",
        "cuda-match",
        r"compiled with cuDNN 9\.3; (?:it loads|the image has) 9\.1",
        hint=r"nvidia-cudnn-cu12>=9\.3",
    ),
    sick(
        "tensorflow 2.21, nvJitLink taken away",
        "tf221",
        of(
            "tensorflow[and-cuda]==2.21.0",
            remove=("nvidia-nvjitlink-cu12",),
            environment=LIBRARY_PATH,
        ),
        TF,
        NO_GPU,
        "tensorflow",
        "cuda-match",
        r"libnvJitLink\.so\.12",
        driver=True,
        hint="nvidia-nvjitlink-cu12",
        mended=of("tensorflow[and-cuda]==2.21.0", environment=LIBRARY_PATH),
        fine=ONE_GPU,
    ),
    sick(
        "tensorflow 2.21, CUDA_VISIBLE_DEVICES=-1",
        "tf221",
        of(
            "tensorflow[and-cuda]==2.21.0",
            environment={**LIBRARY_PATH, "CUDA_VISIBLE_DEVICES": "-1"},
        ),
        "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))",
        "'-1'",
        "tensorflow",
        "gpus-left",
        r"CUDA_VISIBLE_DEVICES",
    ),
    sick(
        "tensorflow 2.21 with TF_USE_LEGACY_KERAS and no tf-keras",
        "tf221",
        of(
            "tensorflow[and-cuda]==2.21.0", environment={**LIBRARY_PATH, "TF_USE_LEGACY_KERAS": "1"}
        ),
        "import tensorflow as tf; tf.keras.layers",
        r"ImportError",
        "tensorflow",
        "entry-points",
        r"Keras in TensorFlow",
        hint="tf-keras",
    ),
    sick(
        "tensorflow 2.21 beside jax for the CPU, which Keras is set to",
        "tf221",
        of(
            "tensorflow[and-cuda]==2.21.0",
            "jax==0.4.38 numpy<2.3",
            environment={**LIBRARY_PATH, "KERAS_BACKEND": "jax"},
        ),
        "import keras, jax; print(keras.backend.backend(), jax.devices())",
        r"jax \[CpuDevice",
        "tensorflow",
        "cuda-match",
        r"jax .*without its CUDA plug-in",
        hint="cuda12",
    ),
    sick(
        "tensorflow 2.16.1, which looks for the runtime only",
        "tf216",
        of(*tf("2.16.1", CUDNN8)),
        TF,
        NO_GPU,
        "tensorflow",
        "cuda-match",
        r"opens .*where its loader does not look",
        driver=True,
        hint="LD_LIBRARY_PATH",
        mended=of(*tf("2.16.1", CUDNN8), environment=LIBRARY_PATH),
        fine=ONE_GPU,
        source="tensorflow#63362",
    ),
    sick(
        "torch over tensorflow 2.16: cuDNN 9 for cuDNN 8",
        "tf216",
        of(*tf("2.16.2", CUDNN8), T251),
        TF,
        NO_GPU,
        "torch tensorflow",
        "cuda-match",
        r"tensorflow 2\.16\.2 .*libcudnn\.so\.8",
        driver=True,
        hint="one image for each",
    ),
    sick(
        "tensorflow 2.18 beside torch: cuDNN 9.1 where 9.3 is asked for",
        "tf218",
        of(f"tensorflow==2.18.1 {T251}"),
        "import ctypes, nvidia.cudnn as c; print('CUDNN', ctypes.CDLL(list(c.__path__)[0] + '/lib/libcudnn.so.9').cudnnGetVersion())",
        r"CUDNN 90100",
        "torch tensorflow",
        "cuda-match",
        r"compiled with cuDNN 9\.3; (?:it loads|the image has) 9\.1",
        hint="one image for each",
    ),
    # -- torch and what goes with it
    sick(
        "torchvision of another torch",
        "t251",
        of(T251, "--no-deps torchvision==0.19.1", "pillow"),
        "import torch, torchvision; torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)",
        r"torchvision::nms|custom C\+\+ ops|must be a CUDA tensor",
        "torch torchvision",
        "companions",
        r"torchvision 0\.19\.1",
    ),
    sick(
        "torch 2.5 with torchaudio 2.11",
        "t251",
        of(T251, "--no-deps torchaudio==2.11.0"),
        "import torchaudio",
        r"OSError|Error",
        "torch torchaudio",
        "companions",
        r"torchaudio 2\.11\.0",
        hint=r"torchaudio",
    ),
    sick(
        "torch 2.5 with triton 3.2",
        "t251",
        of(T251, "--no-deps triton==3.2.0"),
        "import importlib.metadata as m; print(m.version('triton'))",
        "3.2.0",
        "torch",
        "companions",
        r"triton==3\.1\.0",
        hint="triton|torch",
    ),
    sick(
        "torch 2.5 without triton",
        "t251",
        of(T251, remove=("triton",)),
        "import importlib.util as u; assert u.find_spec('triton')",
        "AssertionError",
        "torch",
        "companions",
        r"triton==3\.1\.0",
        hint=r"triton==3\.1\.0",
        mended=of(T251),
        fine="",
    ),
    sick(
        "torch 2.5 without the setuptools that its triton imports",
        "t251",
        of(T251),
        "import triton.runtime.build",
        r"No module named 'setuptools'",
        "torch",
        "entry-points",
        r"Triton's launchers.*setuptools",
        hint="setuptools",
        mended=of(T251, "setuptools"),
        project=COMPILES,
        source="triton-lang/triton#5090",
    ),
    sick(
        "torch.compile without a compiler",
        "t251",
        of(T251, "setuptools", environment={"PATH": "/nowhere"}),
        "from triton.runtime.build import _build; _build('x', 'x.c', '.', [], [], [])",
        r"Failed to find C compiler",
        "torch",
        "compiler-tools",
        r"lacks gcc",
        hint="gcc",
        project=COMPILES,
    ),
    sick(
        "torch 2.5, cuDNN 9.0 first in LD_LIBRARY_PATH",
        "t251",
        of(
            T251,
            "--no-deps nvidia-cudnn-cu12==9.0.0.312",
            copy={"nvidia/cudnn/lib/*": "cuda/lib64"},
            environment={"LD_LIBRARY_PATH": "{tree}/cuda/lib64"},
        ),
        CUDNN,
        r"cuDNN version incompatibility|CUDNN 90000",
        "torch",
        "cuda-match",
        r"cuDNN 9\.1; (?:it loads|the image has) 9\.0",
        hint="LD_LIBRARY_PATH|nvidia-cudnn-cu12>=9.1",
    ),
    sick(
        "torch 2.5, NVRTC taken away",
        "t251",
        of(T251, remove=("nvidia-cuda-nvrtc-cu12",)),
        NVRTC,
        r"AssertionError",
        "torch",
        "shared-libraries",
        r"libnvrtc\.so\.12",
        hint="nvidia-cuda-nvrtc-cu12",
        mended=of(T251),
        fine="",
    ),
    sick(
        "torch 2.5, cuSPARSE's nvJitLink taken away",
        "t251",
        of(T251, remove=("nvidia-nvjitlink-cu12",)),
        "import torch",
        r"libnvJitLink",
        "torch",
        "shared-libraries",
        r"libnvJitLink\.so\.12",
        hint="nvidia-nvjitlink-cu12",
        mended=of(T251),
        fine="",
    ),
    sick(
        "torch 2.5, files written over by NCCL for CUDA 13",
        "t251",
        of(T251, "--no-deps nvidia-nccl-cu13"),
        "import importlib.metadata as m; print(m.version('nvidia-nccl-cu13'))",
        r"\d",
        "torch",
        "base-files",
        r"nvidia-nccl-cu12",
    ),
    sick(
        "torch 2.5 for the CPU",
        "cpu",
        of("numpy", "/opt/wheels/torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"),
        "import torch; print(torch.version.cuda)",
        "None",
        "torch",
        "cuda-match",
        "build without CUDA",
    ),
    sick(
        "autoawq-kernels of another torch",
        "t251",
        of(T251, "--no-deps autoawq-kernels==0.0.6"),
        "import torch, awq_ext",
        r"undefined symbol|ImportError",
        "torch autoawq-kernels",
        "direct-imports",
        r"undefined symbol|awq",
    ),
    sick(
        "xformers of another torch",
        "t251",
        of(T251, "--no-deps xformers==0.0.26.post1"),
        "from xformers import _cpp_lib as c; print('CPP', c._cpp_library_load_exception)",
        r"CPP .*(can't|PyTorch|torch)",
        "torch xformers",
        "entry-points",
        "xFormers' extensions",
        hint="xformers",
        mended=of(T251, "--no-deps xformers==0.0.28.post3"),
        fine="CPP None",
    ),
    sick(
        "bitsandbytes without a library for CUDA 12.4",
        "t251",
        of(T251, "--no-deps bitsandbytes==0.42.0", "scipy"),
        "import os, importlib.util as u; print(sorted(os.listdir(u.find_spec('bitsandbytes').submodule_search_locations[0])))",
        r"cuda123",
        "torch bitsandbytes",
        "entry-points",
        "bitsandbytes",
        hint="newer bitsandbytes",
    ),
    sick(
        "transformers too new for torch 2.5",
        "t251",
        of(T251, "transformers==5.19.0"),
        "from transformers import BertModel, BertConfig; BertModel(BertConfig(hidden_size=8, num_attention_heads=1, num_hidden_layers=1))",
        r"Error",
        "torch transformers",
        "entry-points|companions",
        r"transformers",
    ),
    sick(
        "torchcodec of another torch",
        "t251",
        of(T251, "--no-deps torchcodec==0.8.0"),
        "import torchcodec",
        r"RuntimeError|Could not load",
        "torch torchcodec",
        "direct-imports|companions",
        r"torchcodec",
    ),
    sick(
        "opencv twice, the first uninstalled",
        "t251",
        of(T251, "opencv-python opencv-python-headless", remove=("opencv-python",)),
        "import cv2; print(cv2.__file__); cv2.imread",
        r"Error|None",
        "torch opencv-python-headless",
        "direct-imports",
        r"cv2",
    ),
    sick(
        "wheels for another Python",
        "t251",
        of(
            T251,
            "--no-deps --python-version 3.10 --python-platform x86_64-manylinux2014 --only-binary :all: pycocotools==2.0.8",
        ),
        "from pycocotools import _mask",
        r"ImportError|No module",
        "torch pycocotools",
        "shared-libraries|direct-imports",
        r"pycocotools",
    ),
    sick(
        "deepspeed without a compiler",
        "t251",
        of(T251, "deepspeed==0.16.2"),
        "import shutil; print(shutil.which('nvcc'), shutil.which('ninja'))",
        r"None",
        "torch deepspeed",
        "entry-points",
        "DeepSpeed",
    ),
    sick(
        "dgl for the CPU beside torch",
        "t251",
        of(T251, "--no-deps dgl==1.1.3", "networkx scipy requests tqdm psutil"),
        "import importlib.util as u; d = open(u.find_spec('dgl').submodule_search_locations[0] + '/libdgl.so', 'rb').read(); print('FATBIN', b'.nv_fatbin' in d)",
        r"FATBIN False",
        "torch dgl",
        "entry-points",
        "DGL",
    ),
    sick(
        "dgl without a library for this torch",
        "t251",
        of(T251, "dgl==2.1.0"),
        "import dgl",
        r"libgraphbolt_pytorch_2|ModuleNotFoundError|Error",
        "torch dgl",
        "direct-imports|entry-points",
        r"dgl",
    ),
    sick(
        "variables that choose the CPU",
        "t251",
        of(
            T251,
            environment={
                "ACCELERATE_USE_CPU": "true",
                "NUMBA_ENABLE_CUDASIM": "1",
                "USE_TORCH": "0",
            },
        ),
        "import os; print(os.environ['ACCELERATE_USE_CPU'])",
        "true",
        "torch",
        "gpus-left",
        r"ACCELERATE_USE_CPU",
    ),
    # -- ONNX Runtime and CuPy
    sick(
        "onnxruntime-gpu 1.20 without CUDA",
        "t251",
        of("onnxruntime-gpu==1.20.2 numpy<2"),
        ORT,
        r"cannot open shared object file",
        "onnxruntime-gpu",
        "entry-points",
        r"libcublas",
    ),
    sick(
        "onnxruntime-gpu 1.20 with CUDA's wheels, and no way to them",
        "t251",
        of(f"onnxruntime-gpu==1.20.2 numpy<2 {CU124} {CUDNN91}"),
        ORT,
        r"cannot open shared object file",
        "onnxruntime-gpu",
        "entry-points",
        r"libcublasLt\.so\.12",
        hint="LD_LIBRARY_PATH",
        mended=of(f"onnxruntime-gpu==1.20.2 numpy<2 {CU124} {CUDNN91}", environment=LIBRARY_PATH),
        fine="FINE",
    ),
    sick(
        "torch 2.5 with onnxruntime-gpu 1.20, which torch's import does not help",
        "t251",
        of(T251, "onnxruntime-gpu==1.20.2"),
        ORT_TORCH,
        r"cannot open shared object file",
        "torch onnxruntime-gpu",
        "entry-points",
        r"onnxruntime's CUDA provider",
        hint="LD_LIBRARY_PATH",
        mended=of(T251, "onnxruntime-gpu==1.20.2", environment=LIBRARY_PATH),
        fine="FINE",
    ),
    sick(
        "onnxruntime over onnxruntime-gpu, and uninstalled",
        "t251",
        of(f"{T251} onnxruntime-gpu==1.20.2", "onnxruntime==1.20.1", remove=("onnxruntime",)),
        "import onnxruntime; print(onnxruntime.__file__)",
        r"None",
        "torch onnxruntime-gpu",
        "base-files|direct-imports",
        "onnxruntime",
    ),
    sick(
        "onnxruntime beside onnxruntime-gpu",
        "t251",
        of(
            f"onnxruntime-gpu==1.20.2 numpy<2 {CU124} {CUDNN91}",
            "onnxruntime==1.20.1",
            environment=LIBRARY_PATH,
        ),
        "import onnxruntime as o; print(o.get_available_providers())",
        r"CPU",
        "onnxruntime-gpu",
        "exclusive|one-framework",
        "onnxruntime",
    ),
    sick(
        "cupy alone",
        "t251",
        of("cupy-cuda12x==13.3.0"),
        CUPY,
        r"libcublas|libnvrtc",
        "cupy-cuda12x",
        "cuda-match",
        "libcublas",
    ),
    sick(
        "cupy with CUDA's wheels, and no way to them",
        "t251",
        of(f"cupy-cuda12x==13.3.0 numpy<2.3 {CU124}"),
        CUPY,
        r"cannot open|failed to load",
        "cupy-cuda12x",
        "cuda-match|entry-points",
        r"libcublas|libnvrtc",
        hint="LD_LIBRARY_PATH",
        mended=of(f"cupy-cuda12x==13.3.0 numpy<2.3 {CU124}", environment=LIBRARY_PATH),
        fine="FINE",
    ),
    sick(
        "cupy with half of the path",
        "t251",
        of(
            f"cupy-cuda12x==13.3.0 numpy<2.3 {CU124}",
            environment={"LD_LIBRARY_PATH": "{site}/nvidia/cublas/lib:{site}/nvidia/cufft/lib"},
        ),
        CUPY,
        r"cannot open|failed to load",
        "cupy-cuda12x",
        "entry-points|shared-libraries",
        r"libcu|libnvrtc",
        hint="LD_LIBRARY_PATH",
        mended=of(f"cupy-cuda12x==13.3.0 numpy<2.3 {CU124}", environment=LIBRARY_PATH),
        fine="FINE",
    ),
    sick(
        "torch 2.5 with cupy, which finds no NVRTC",
        "t251",
        of(T251, "cupy-cuda12x==13.3.0"),
        "import torch\n" + CUPY,
        r"libnvrtc|libcu",
        "torch cupy-cuda12x",
        "entry-points|cuda-match",
        r"libnvrtc|libcu",
        hint="LD_LIBRARY_PATH",
        mended=of(T251, "cupy-cuda12x==13.3.0", environment=LIBRARY_PATH),
        fine="FINE",
    ),
    sick(
        "cupy for CUDA 11 beside torch for CUDA 12",
        "t251",
        of(T251, "cupy-cuda11x==13.3.0"),
        CUPY,
        r"libcublas\.so\.11|libnvrtc",
        "torch cupy-cuda11x",
        "companions",
        "cupy-cuda11x",
        hint="cupy-cuda12x",
    ),
    # -- JAX
    sick(
        "jax for the CPU",
        "jax",
        of("jax==0.4.38 numpy<2.3"),
        "import jax; print(jax.devices())",
        "CpuDevice",
        "jax",
        "cuda-match",
        "without its CUDA plug-in",
        hint="cuda12",
    ),
    sick(
        "jax without cuDNN",
        "jax",
        of(JX, remove=("nvidia-cudnn-cu12",)),
        JAX,
        r"Error|not found|Unable",
        "jax",
        "entry-points",
        r"cudnn",
        hint="cudnn|cuda12",
        mended=of(JX),
        fine="FINE",
    ),
    sick(
        "jax with cuDNN 8.9",
        "jax",
        of(JX, "--no-deps nvidia-cudnn-cu12==8.9.7.29"),
        JAX,
        r"Error|TOO OLD",
        "jax",
        "entry-points",
        r"cudnn",
        hint="cuda12|cudnn",
        mended=of(JX),
        fine="FINE",
        source="conda-forge/jaxlib-feedstock#277",
    ),
    sick(
        "jax with an old ptxas",
        "jax",
        of(JX, "--no-deps nvidia-cuda-nvcc-cu12==12.2.140"),
        "import importlib.metadata as m; print(m.version('nvidia-cuda-nvcc-cu12'))",
        r"12\.2",
        "jax",
        "companions",
        r"nvidia-cuda-nvcc-cu12",
        hint="nvidia-cuda-nvcc-cu12",
        source="jax#25344",
    ),
    sick(
        "jax with a plug-in of another release",
        "jax",
        of(JX, "--no-deps jax-cuda12-plugin==0.4.36 jax-cuda12-pjrt==0.4.36"),
        "import importlib.metadata as m; print(m.version('jax-cuda12-plugin'))",
        r"0\.4\.36",
        "jax",
        "companions|cuda-match",
        r"jax-cuda12|0\.4\.36",
        hint=r"0\.4\.38",
    ),
    sick(
        "jax with jaxlib of another release",
        "jax",
        of(JX, "--no-deps jaxlib==0.4.36"),
        "import jax",
        r"RuntimeError|jaxlib",
        "jax",
        "companions|direct-imports",
        r"jaxlib",
        hint=r"0\.4\.38",
    ),
    sick(
        "jax, XLA_FLAGS with a flag that is gone",
        "jax",
        of(JX, environment={"XLA_FLAGS": "--xla_gpu_enable_async_all_gather=true"}),
        "import jax; jax.devices('cpu')",
        r"[Uu]nknown flag|Aborted|XLA_FLAGS|^$",
        "jax",
        "entry-points",
        "XLA_FLAGS",
    ),
    sick(
        "jax, JAX_PLATFORMS=cpu",
        "jax",
        of(JX, environment={"JAX_PLATFORMS": "cpu"}),
        "import jax; print(jax.devices())",
        "CpuDevice",
        "jax",
        "gpus-left",
        "JAX_PLATFORMS",
    ),
    sick(
        "jax for a local CUDA that is not there",
        "jax",
        of("jax[cuda12_local]==0.4.38 numpy<2.3"),
        JAX,
        r"Error|Unable|not found",
        "jax",
        "entry-points",
        r"JAX's CUDA plug-in",
        hint="cuda12",
    ),
    sick(
        "jax: cuSOLVER taken away",
        "jax",
        of(JX, remove=("nvidia-cusolver-cu12",)),
        "from jax_cuda12_plugin import _versions as v; v.cusolver_get_version()",
        r"Error|Unable|not found|dlopen",
        "jax",
        "entry-points",
        r"cusolver",
        hint="cusolver|cuda12",
        mended=of(JX),
        fine="",
    ),
    # -- others
    sick(
        "pandas 1.5 under numpy 2",
        "small",
        of("--no-deps numpy==2.0.2", "--no-deps pandas==1.5.3 python-dateutil six pytz"),
        "import pandas",
        r"numpy\.dtype size changed",
        "pandas",
        "direct-imports",
        r"numpy\.dtype size changed",
        hint="numpy<2",
    ),
)

HEALTHY = (
    healthy(
        "tensorflow 2.21 with a path to its libraries",
        "tf221",
        of("tensorflow[and-cuda]==2.21.0", environment=LIBRARY_PATH),
        TF,
        ONE_GPU,
        "tensorflow",
        driver=True,
    ),
    healthy(
        "tensorflow 2.21 beside jax for the CPU",
        "tf221",
        of("tensorflow[and-cuda]==2.21.0", "jax==0.4.38 numpy<2.3", environment=LIBRARY_PATH),
        TF,
        ONE_GPU,
        "tensorflow",
        driver=True,
    ),
    healthy(
        "tensorflow 2.21 with legacy Keras",
        "tf221",
        of(
            "tensorflow[and-cuda]==2.21.0",
            "tf-keras==2.21.0",
            environment={**LIBRARY_PATH, "TF_USE_LEGACY_KERAS": "1"},
        ),
        TF,
        ONE_GPU,
        "tensorflow tf-keras",
        driver=True,
    ),
    healthy(
        "tensorflow 2.16.1 with a path",
        "tf216",
        of(*tf("2.16.1", CUDNN8), environment=LIBRARY_PATH),
        TF,
        ONE_GPU,
        "tensorflow",
        driver=True,
    ),
    healthy(
        "tensorflow 2.16.2 with a path",
        "tf216",
        of(*tf("2.16.2", CUDNN8), environment=LIBRARY_PATH),
        TF,
        ONE_GPU,
        "tensorflow",
        driver=True,
    ),
    healthy(
        "tensorflow 2.18 with cuDNN 9.3",
        "tf218",
        of(*tf("2.18.1", CUDNN93), environment=LIBRARY_PATH),
        TF,
        ONE_GPU,
        "tensorflow",
        driver=True,
    ),
    healthy("torch 2.5", "t251", of(T251), TORCH, "FINE", "torch"),
    healthy(
        "torch 2.5 with torchvision and torchaudio",
        "t251",
        of("torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1"),
        "import torchvision, torchaudio; print('FINE')",
        "FINE",
        "torch torchvision torchaudio",
    ),
    healthy(
        "torch 2.5 beside tensorflow-cpu",
        "t251",
        of(T251, "tensorflow-cpu==2.18.1"),
        TORCH,
        "FINE",
        "torch",
    ),
    healthy(
        "torch 2.5 with older CUDA in LD_LIBRARY_PATH that RPATH beats",
        "t251",
        of(T251, environment={"LD_LIBRARY_PATH": "/usr/local/nowhere/lib64"}),
        CUDNN,
        "CUDNN 90100",
        "torch",
    ),
    healthy(
        "torch 2.5 with xformers",
        "t251",
        of(T251, "--no-deps xformers==0.0.28.post3"),
        "from xformers import _cpp_lib as c; print('CPP', c._cpp_library_load_exception)",
        "CPP None",
        "torch xformers",
    ),
    healthy(
        "torch 2.5 with bitsandbytes",
        "t251",
        of(T251, "setuptools", "--no-deps bitsandbytes==0.45.0"),
        TORCH,
        "FINE",
        "torch bitsandbytes",
    ),
    healthy(
        "torch 2.5 with transformers and accelerate",
        "t251",
        of(T251, "transformers==4.46.3 accelerate==1.1.1"),
        "from transformers import BertModel; print('FINE')",
        "FINE",
        "torch transformers accelerate",
    ),
    healthy(
        "torch 2.5 with diffusers",
        "t251",
        of(T251, "transformers==4.46.3 accelerate==1.1.1 diffusers==0.31.0"),
        "from diffusers import DiffusionPipeline; print('FINE')",
        "FINE",
        "torch diffusers",
    ),
    healthy(
        "torch 2.5 with lightning",
        "t251",
        of(T251, "lightning==2.4.0 torchmetrics"),
        "import lightning; print('FINE')",
        "FINE",
        "torch lightning",
    ),
    healthy(
        "torch 2.5 with PyG",
        "t251",
        of(T251, "torch-geometric==2.6.1"),
        "import torch_geometric; print('FINE')",
        "FINE",
        "torch torch-geometric",
    ),
    healthy(
        "torch 2.5 with opencv",
        "t251",
        of(T251, "opencv-python-headless"),
        "import cv2; print('FINE')",
        "FINE",
        "torch opencv-python-headless",
    ),
    healthy(
        "torch 2.5 with nvcc's wheel taken away again",
        "t251",
        of(T251, NVCC, remove=("nvidia-cuda-nvcc-cu12",)),
        TORCH,
        "FINE",
        "torch",
    ),
    healthy(
        "torch 2.5 with onnxruntime-gpu that preloads",
        "t251",
        of(T251, "onnxruntime-gpu==1.21.1"),
        ORT_PRELOAD,
        "FINE",
        "torch onnxruntime-gpu",
    ),
    healthy(
        "onnxruntime-gpu with a path",
        "t251",
        of(f"onnxruntime-gpu==1.20.2 numpy<2 {CU124} {CUDNN91}", environment=LIBRARY_PATH),
        ORT,
        "FINE",
        "onnxruntime-gpu",
    ),
    healthy(
        "onnxruntime-gpu that preloads",
        "t251",
        of(f"onnxruntime-gpu==1.21.1 numpy<2.3 {CU124} {CUDNN91}"),
        ORT_PRELOAD,
        "FINE",
        "onnxruntime-gpu",
    ),
    healthy(
        "cupy 13 with a path",
        "t251",
        of(f"cupy-cuda12x==13.3.0 numpy<2.3 {CU124}", environment=LIBRARY_PATH),
        CUPY,
        "FINE",
        "cupy-cuda12x",
    ),
    healthy(
        "cupy 14 with its toolkit",
        "cupy14",
        of("cupy-cuda12x[ctk]==14.2.0"),
        "import cupy\n" + CUPY,
        "FINE",
        "cupy-cuda12x",
    ),
    healthy(
        "torch and cupy with a path",
        "t251",
        of(T251, "cupy-cuda12x==13.3.0", environment=LIBRARY_PATH),
        CUPY,
        "FINE",
        "torch cupy-cuda12x",
    ),
    healthy("jax 0.4.38", "jax", of(JX), JAX, "FINE", "jax"),
    healthy(
        "jax with flax and optax",
        "jax",
        of(JX + " flax==0.10.2 optax==0.2.4"),
        JAX,
        "FINE",
        "jax flax optax",
    ),
    healthy(
        "jax beside tensorflow-cpu, Keras on jax",
        "jax",
        of(JX, "tensorflow-cpu==2.18.1 keras==3.7.0", environment={"KERAS_BACKEND": "jax"}),
        "import keras; print(keras.backend.backend(), 'FINE')",
        "FINE",
        "jax keras",
    ),
    healthy(
        "torch beside jax",
        "t251",
        of(f"{T251} jax[cuda12]==0.4.38 {NVCC}"),
        "import jax\n" + JAX,
        "FINE",
        "torch jax",
    ),
    healthy(
        "torch beside jax for the CPU, which something pulled in",
        "t251",
        of(T251, "jax==0.4.38"),
        TORCH,
        "FINE",
        "torch",
    ),
    healthy(
        "xgboost and lightgbm",
        "small",
        of("xgboost==2.1.3 lightgbm==4.5.0 scikit-learn<1.8"),
        "import xgboost; print('FINE')",
        "FINE",
        "xgboost lightgbm",
    ),
    healthy(
        "scikit-learn, pandas, matplotlib",
        "small",
        of("scikit-learn pandas matplotlib"),
        "import sklearn, pandas, matplotlib; print('FINE')",
        "FINE",
        "scikit-learn pandas matplotlib",
    ),
    healthy("numba alone", "small", of("numba"), "import numba; print('FINE')", "FINE", "numba"),
    healthy("torch 2.15", "t215", of("torch==2.15.0 numpy"), TORCH, "FINE", "torch"),
    healthy(
        "torch 2.15 with transformers",
        "t215",
        of("torch==2.15.0 numpy transformers accelerate"),
        "from transformers import BertModel; print('FINE')",
        "FINE",
        "torch transformers",
    ),
    healthy(
        "torch 2.15 with torchvision and timm",
        "t215",
        of("torch==2.15.0 torchvision timm"),
        "import timm; print('FINE')",
        "FINE",
        "torch torchvision timm",
    ),
)
