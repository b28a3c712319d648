"""Checks of what surrounds the programs in an image: variables, the caller's home, who may read the files."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from envbuild.check.checks.frameworks import advise_on_keras
from envbuild.check.checks.sources import VARIABLE
from envbuild.check.contaminated_home import PATH_MODULE, USER_MODULE
from envbuild.check.evidence import Evidence, Verdict, failed, given, listing, passed

LIBRARIES_OF_RUNTIME = "/.singularity.d/libs"
"""Where --nv puts the host's driver; appended to LD_LIBRARY_PATH."""
WRONG_VARIABLES = ("PYTHONHOME", "PYTHONUSERBASE")
"""Variables that move where Python finds its packages; no image needs them."""
JAX_CHOICES = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")
YES = ("1", "true", "yes", "on", "y", "t")
NO = ("0", "false", "no", "off", "n", "f")
SWITCHES: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "ACCELERATE_USE_CPU": (
        YES,
        ("accelerate", "transformers", "torch"),
        "Accelerate computes on the CPU",
    ),
    "NUMBA_ENABLE_CUDASIM": (
        ("1",),
        ("numba", "numba-cuda", "torch"),
        "Numba simulates CUDA on the CPU",
    ),
    "NUMBA_DISABLE_CUDA": (("1",), ("numba", "numba-cuda"), "Numba sees no GPU"),
    "TRITON_INTERPRET": (
        YES,
        ("triton", "pytorch-triton"),
        "Triton's kernels run in NumPy on the CPU",
    ),
    "KERAS_BACKEND": (
        ("numpy",),
        ("keras",),
        "Keras computes in NumPy on the CPU, and trains nothing",
    ),
    "DS_ACCELERATOR": (("cpu",), ("deepspeed",), "DeepSpeed computes on the CPU"),
    "PJRT_DEVICE": (("cpu",), ("torch-xla",), "PyTorch/XLA computes on the CPU"),
    "XLA_PYTHON_CLIENT_PLATFORM": (("cpu",), ("jax",), "JAX computes on the CPU"),
    "JAX_SKIP_CUDA_PLUGIN": (YES, ("jax",), "JAX leaves its CUDA plug-in out"),
    "CUPY_ACCELERATORS_DISABLE": (YES, ("cupy",), "CuPy leaves its accelerators out"),
}
"""Variables that keep a package from the GPU: values (in lower case), packages that read them, what
they do.

Sources: accelerate/state.py; Numba's documentation, environment variables; triton-lang.org,
debugging; keras.io, backends. """
LEFT_OUT = {"USE_TORCH": "torch", "USE_TF": "tensorflow", "USE_FLAX": "jax"}
"""Variables that make transformers leave a framework out, which is a fault where that one is asked
for (transformers/utils/import_utils.py)."""
SLOW: dict[str, tuple[str, str]] = {
    "CUDA_LAUNCH_BLOCKING": ("1", "every kernel is waited for"),
    "CUDA_FORCE_PTX_JIT": (
        "1",
        "all GPU code is compiled anew, and what has no portable code fails",
    ),
    "NVIDIA_TF32_OVERRIDE": ("0", "tensor cores are not used for float32"),
}
"""Variables of debugging that make programs slow (CUDA C++ programming guide, environment
variables)."""


def user_site_off(evidence: Evidence) -> Verdict:
    """Check whether packages of a user's ~/.local stay out."""
    user = evidence.installed.user_site
    if user.enabled and evidence.expected.alone:
        return passed(
            f"a note, for an image that envbuild has not built: Python reads packages of the user's own folder "
            f"({user.path}) under a plain exec; envbuild exec keeps them out",
            path=user.path,
        )
    if user.enabled:
        return failed(
            f"Python would read packages from the user's own folder ({user.path}); under a plain exec, HOME is the "
            "host's and shadows the image's packages",
            'set PYTHONNOUSERSITE = "1" in [run] environment (images of envbuild have it)',
            path=user.path,
        )
    for folder, names in evidence.installed.for_user.items():
        if names:
            return failed(
                f"{listing(names)} was installed into {folder} of the image, where no user's Python looks",
                "take --user out of the pip line of the definition",
                packages=names,
            )
    return passed("Python does not look into the user's own folder of packages")


def plain_exec(evidence: Evidence) -> Verdict:
    """Check whether a user's own packages come in under a plain exec.

    It was done with a poisoned home folder.
    """
    found = given(evidence.plain)
    shown = {"modules": list(found.modules), "variables": list(found.variables), "home": found.home}
    if USER_MODULE in found.modules and evidence.expected.alone:
        return passed(
            "a note, for an image that envbuild has not built: under a plain apptainer exec, packages of the user's "
            "~/.local are imported; envbuild exec keeps them out",
            **shown,
        )
    if USER_MODULE in found.modules:
        return failed(
            "under a plain apptainer exec, packages of the user's ~/.local are imported (tried with a made-up home)",
            'set PYTHONNOUSERSITE = "1" in [run] environment, or start it with envbuild exec',
            **shown,
        )
    come = [
        name for name in found.variables if name != "PYTHONPATH" or PATH_MODULE in found.modules
    ]
    note = f"; {listing(come)} of the caller do, which envbuild exec keeps out" if come else ""
    return passed(
        f"under a plain exec, packages of the user's ~/.local do not come in{note}", **shown
    )


def check_leaks(evidence: Evidence) -> Verdict:
    """Check whether the sealed environment points Python or the loader outside or to stubs."""
    found = evidence.installed
    env = found.environment
    faults = [f"{name} is set ({env[name]})" for name in WRONG_VARIABLES if env.get(name)]
    faults += [
        f"PYTHONPATH names {path}, which is not in the image" for path in found.missing_folders
    ]
    faults += [
        f"LD_PRELOAD names {path}, which is not in the image" for path in found.preload_missing
    ]
    faults += [
        f"{name} names {path}, which is not in the image: programs find no certificates"
        for name, path in found.files_missing.items()
    ]
    folders = [folder for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder]
    faults += [
        f"LD_LIBRARY_PATH has {folder}, whose libraries are only for linking"
        for folder in folders
        if _stubs(folder)
    ]
    faults += [
        f"LD_LIBRARY_PATH has {folder}, whose libcuda comes before the host's driver"
        for folder in _drivers(evidence, folders)
    ]
    homes = tuple(
        f"{home}/" for home in {env.get("HOME", "").rstrip("/"), "/root", "/home"} if home
    )
    own = tuple(f"{prefix}/" for prefix in found.prefixes)  # some images have their Python in /root
    strange = [
        folder for folder in found.path if folder.startswith(homes) and not folder.startswith(own)
    ]
    faults += [f"sys.path has {folder}, below a home folder" for folder in strange]
    if faults:
        return failed(
            listing(faults, 3),
            "take it out of the base's or the recipe's environment",
            faults=faults,
        )
    before = (
        folders[: folders.index(LIBRARIES_OF_RUNTIME)]
        if LIBRARIES_OF_RUNTIME in folders
        else folders
    )
    compat = [folder for folder in before if "compat" in PurePosixPath(folder).parts]
    note = (
        f"; {listing(compat)} comes before the host's driver, which only data-centre GPUs support"
        if compat
        else ""
    )
    return passed(f"nothing points outside the image{note}", library_path=folders)


def _drivers(evidence: Evidence, folders: list[str]) -> list[str]:
    """Return folders before the host's driver that hold one of their own; compat folders may.

    With a driver, the one that was loaded tells.
    """
    if evidence.gpu:
        return []
    copies = (
        evidence.libraries.data.copies if evidence.libraries and evidence.libraries.data else {}
    )
    own = {str(PurePosixPath(path).parent) for path in copies.get("libcuda.so*", ())}
    before = (
        folders[: folders.index(LIBRARIES_OF_RUNTIME)]
        if LIBRARIES_OF_RUNTIME in folders
        else folders
    )
    return [
        folder
        for folder in before
        if folder.rstrip("/") in own
        and "compat" not in PurePosixPath(folder).parts
        and not _stubs(folder)
    ]


def _stubs(folder: str) -> bool:
    return "stubs" in PurePosixPath(folder).parts


def gpus_left(evidence: Evidence) -> Verdict:
    """Check whether variables of the image leave the choice of GPUs to the job.

    Those of an image win over the scheduler's.  With a driver, the caller's choice is handed in,
    and the GPUs that are seen tell.
    """
    env = evidence.installed.environment
    faults = []
    chosen = env.get(VARIABLE)
    if chosen is not None and not evidence.gpu:
        # a first word that names no device, such as "all", hides them as -1 does
        hides = re.match(r"\s*(?:\d|GPU-|MIG-)", chosen) is None
        what = (
            "no program in it sees a GPU"
            if hides
            else "whatever GPUs the scheduler gives to the job"
        )
        faults.append(f'the image sets {VARIABLE} to "{chosen}": {what}')
    if evidence.installed.dist("jax") is not None:
        for name in JAX_CHOICES:
            platforms = [
                word.strip().lower() for word in env.get(name, "").split(",") if word.strip()
            ]
            if platforms and platforms[0] == "cpu":
                faults.append(f'the image sets {name} to "{env[name]}": JAX computes on the CPU')
    faults += _switched_off(evidence)
    if faults:
        return failed(
            listing(faults, 3),
            advise_on_keras(evidence) or "take it out of the base's or the recipe's environment",
            faults=faults,
        )
    slow = [
        f"{name}={value}: {what}" for name, (value, what) in SLOW.items() if env.get(name) == value
    ]
    note = f"; slow: {listing(slow)}" if slow else ""
    return passed(f"no variable of the image hides a GPU{note}", slow=slow)


def _switched_off(evidence: Evidence) -> list[str]:
    """Return variables of the image that keep a package which it holds from the GPU."""
    env, found = evidence.installed.environment, []
    for name, (values, packages, what) in SWITCHES.items():
        here = any(evidence.installed.dist(package) for package in packages)
        if env.get(name, "").strip().lower() in values and env.get(name) and here:
            found.append(f'the image sets {name} to "{env[name]}": {what}')
    for name, framework in LEFT_OUT.items():
        asked = evidence.framework is not None and evidence.framework.name == framework
        word = env.get(name, "")
        if asked and word.lower() in NO and evidence.installed.dist("transformers"):
            what = f"transformers leaves {framework} out"
            found.append(f'the image sets {name} to "{word}": {what}')
    return found


def check_readable(evidence: Evidence) -> Verdict:
    """Check whether every user may read the packages.

    An image made under umask 077 works for root only.
    """
    closed = evidence.installed.closed
    if closed:
        return failed(
            f"{listing(closed)} may only be read by the owner of the files, and other users cannot import it",
            "begin the definition with umask 022, or end it with chmod -R a+rX on that folder; then build it again",
            distributions=list(closed),
        )
    return passed("all users may read the packages")
