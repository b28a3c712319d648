"""Checks of what surrounds the programs in an image: variables, the caller's home, who may read the files."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from envbuild.check.checks.frameworks import advise_on_keras
from envbuild.check.checks.sources import VARIABLE
from envbuild.check.contaminated_home import PATH_MODULE, USER_MODULE
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed
from envbuild.data.tables import Variable, load_variables
from envbuild.runtime import DRIVER_LIBRARIES
from envbuild.store.units import listing

WRONG_VARIABLES = ("PYTHONHOME", "PYTHONUSERBASE")
"""Variables that move where Python finds its packages; no image needs them."""


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
        f"{name} names {path}, which is not in the image{_what_is_lost(name)}"
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
            "install its package without -e (uv sync --no-editable)"
            if any(name.endswith(".pth") for name in found.files_missing)
            else "take it out of the base's or the recipe's environment",
            faults=faults,
        )
    compat = [folder for folder in before_runtime(folders) if is_compat(folder)]
    note = (
        f"; {listing(compat)} comes before the host's driver, which only data-centre GPUs support"
        if compat
        else ""
    )
    return passed(f"nothing points outside the image{note}", library_path=folders)


def _what_is_lost(name: str) -> str:
    """Say what a name of a file that is gone means for programs."""
    if name.endswith(".pth"):
        return ": the package that was installed from there (pip install -e) has no code"
    return "" if name == "TZ" else ": programs find no certificates"


def before_runtime(folders: list[str]) -> list[str]:
    """Return the folders that come before those that --nv brings."""
    return folders[: [*folders, DRIVER_LIBRARIES].index(DRIVER_LIBRARIES)]


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
    return [
        folder
        for folder in before_runtime(folders)
        if folder.rstrip("/") in own and not is_compat(folder) and not _stubs(folder)
    ]


def is_compat(folder: str) -> bool:
    """Tell whether a folder is CUDA's for a libcuda that is newer than the node's driver."""
    return "compat" in PurePosixPath(folder).parts


def _stubs(folder: str) -> bool:
    return "stubs" in PurePosixPath(folder).parts


def gpus_left(evidence: Evidence) -> Verdict:
    """Check whether variables of the image leave the choice of GPUs to the job.

    Those of an image win over the scheduler's.  With a driver, the caller's choice is handed in,
    and the GPUs that are seen tell.
    """
    env = evidence.installed.environment
    does: dict[str, str] = {}
    chosen = env.get(VARIABLE)
    if chosen is not None and not evidence.gpu:
        # a first word that names no device, such as "all", hides them as -1 does
        hides = re.match(r"\s*(?:\d|GPU-|MIG-)", chosen) is None
        does[VARIABLE] = (
            "no program in it sees a GPU"
            if hides
            else "whatever GPUs the scheduler gives to the job"
        )
    known = _variables_that_count(evidence)
    does |= {row.name: row.what for row in known if not row.slow}
    if does:
        faults = [f'the image sets {name} to "{env[name]}": {what}' for name, what in does.items()]
        out = f"take {listing(list(does))} out of the base's or the recipe's environment"
        return failed(listing(faults, 3), advise_on_keras(evidence) or out, faults=faults)
    slow = [f"{row.name}={env[row.name]}: {row.what}" for row in known if row.slow]
    note = f"; slow: {listing(slow)}" if slow else ""
    return passed(f"no variable of the image hides a GPU{note}", slow=slow)


def _variables_that_count(evidence: Evidence) -> list[Variable]:
    """Return the known variables that the image sets to a value that does something to its packages."""
    installed = evidence.installed
    framework = evidence.framework.name if evidence.framework is not None else None
    found = []
    for row in load_variables().variable:
        words = installed.environment.get(row.name, "").lower().replace(",", " ").split()
        is_set = bool(words) and words[0] in row.values
        is_here = not row.packages or any(installed.dist(name) for name in row.packages)
        is_asked = row.framework in (None, framework)
        is_used = not row.compiles or bool(evidence.sources and evidence.sources.inductor)
        if is_set and is_here and is_asked and is_used:
            found.append(row)
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
