"""Checks of the tools that frameworks compile with when they run."""

from __future__ import annotations

from envbuild.check.checks.frameworks import computes_on_cpu
from envbuild.check.checks.gpu.toolkit import toolkit_of
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed, skipped
from envbuild.data import lookup
from envbuild.store.units import listing

COMPILERS = ("gcc", "g++", "Python.h")
"""What Triton builds its launchers with (triton/runtime/build.py), and Inductor its code for the
CPU."""


def compiler_tools(evidence: Evidence) -> Verdict:
    """Check whether ptxas and libdevice are there for a project whose framework compiles for the GPU.

    XLA and triton call ptxas; XLA links libdevice (tensorflow#58859, jax#6323).
    """
    framework, tools = evidence.framework, given(evidence.libraries).tools
    project_compiles = evidence.sources is not None and evidence.sources.compiles
    if framework is None or not (framework.always_compiles or project_compiles):
        return skipped(
            "nothing here is known to compile for the GPU (XLA, torch.compile)", tools=tools
        )
    inductor = framework.name == "torch" and evidence.sources and evidence.sources.inductor
    if inductor and tools.get("CC") == ():
        return failed(
            "the project uses torch.compile or Triton, and the image sets CC to a compiler that it "
            "does not have",
            "take CC out of the base's or the recipe's environment, or set it to gcc",
            tools=tools,
        )
    without = [name for name in COMPILERS if not tools.get(name)]
    if inductor and without:
        return failed(
            "the project uses torch.compile or Triton, which build code when it runs (with gcc, g++ and Python.h); the "
            f"image lacks {listing(without)}",
            'add to the recipe: [system] packages = ["gcc", "g++", "python3-dev"]',
            tools=tools,
        )
    if computes_on_cpu(evidence.installed, framework):
        return skipped(f"{framework.name} has no CUDA part that could compile", tools=tools)
    needed = framework.compiles
    lost = [name for name in needed if not tools.get(name)]
    if lost:
        major = lookup.numbers(toolkit_of(evidence) or "12")[0]
        return failed(
            f"the project lets {framework.name} compile for the GPU, which needs {' and '.join(lost)}, and the image "
            f"has {'none' if len(lost) == 1 else 'neither'}",
            f'add "nvidia-cuda-nvcc-cu{major}" to [python] dependencies',
            tools=tools,
        )
    return passed(
        f"{' and '.join(needed)} {'is' if len(needed) == 1 else 'are'} there", tools=tools
    )
