"""Trees after the hint was followed, and what their proof prints then; for cases that name none themselves."""

from __future__ import annotations

from tests.sick.real.cases import JX, T251, of
from tests.sick.real.trees import Recipe

WHOLE = of(T251)
ON_NUMPY_1 = {
    "scikit-learn==1.3.2": "scikit-learn==1.3.2 scipy==1.11.4",
    "h5py==3.10.0": "h5py==3.10.0",
    "matplotlib==3.7.5": "matplotlib==3.7.5",
    "numba==0.58.1": "numba==0.58.1",
    "statsmodels==0.14.1": "statsmodels==0.14.1 pandas==2.2.2 scipy==1.11.4",
    "pyarrow==14.0.2": "pyarrow==14.0.2",
}
MENDS: dict[str, tuple[Recipe, str]] = {
    **{
        f"{name} under numpy 2": (of(f"numpy<2 {all_of}"), "")
        for name, all_of in ON_NUMPY_1.items()
    },
    "pandas 1.5 under numpy 2": (of("numpy<2 pandas==1.5.3"), ""),
    "old generated code under protobuf 4": (of("tensorboardX==2.2 protobuf<3.21 numpy<2 six"), ""),
    "torchvision of another torch": (
        of("torch==2.5.1 torchvision==0.20.1"),
        "^$|Couldn't|CUDA|tensor",
    ),
    "torch 2.5 with torchaudio 2.11": (of("torch==2.5.1 numpy torchaudio==2.5.1"), ""),
    "torch 2.5 with triton 3.2": (WHOLE, r"3\.1\.0"),
    "torch 2.5, cuDNN 9.0 first in LD_LIBRARY_PATH": (WHOLE, "CUDNN 90100"),
    "torch 2.5, files written over by NCCL for CUDA 13": (WHOLE, "PackageNotFound"),
    "torch 2.5, nvJitLink 12.1 first in LD_LIBRARY_PATH": (WHOLE, ""),
    "torch 2.5 with a preloaded library that is not there": (WHOLE, "KeyError"),
    "torch 2.5 with the path of another machine": (WHOLE, "False"),
    "variables that choose the CPU": (WHOLE, "KeyError"),
    "bitsandbytes without a library for CUDA 12.4": (
        of(T251, "setuptools", "--no-deps bitsandbytes==0.45.0"),
        "cuda124",
    ),
    "transformers too new for torch 2.5": (of(T251, "transformers==5.15.1"), ""),
    "huggingface-hub too new for transformers": (of(T251, "transformers==4.46.3"), ""),
    "torchao of another torch": (of(T251, "torchao==0.7.0"), r"0\.7"),
    "opencv twice, the first uninstalled": (of(T251, "opencv-python-headless"), ""),
    "onnxruntime over onnxruntime-gpu, and uninstalled": (
        of(T251, "onnxruntime-gpu==1.21.1"),
        "__init__",
    ),
    "jax for the CPU": (of(JX), "CpuDevice"),
    "jax with an old ptxas": (of(JX), r"12\.6"),
    "jax with a plug-in of another release": (of(JX), r"0\.4\.38"),
    "jax with jaxlib of another release": (of(JX), ""),
    "jax, JAX_PLATFORMS=cpu": (of(JX), ""),
    "jax, JAX_PLATFORM_NAME=cpu": (of(JX), ""),
    "jax, XLA_FLAGS with a flag that is gone": (of(JX), ""),
    "jax for a local CUDA that is not there": (of(JX), "FINE"),
}
