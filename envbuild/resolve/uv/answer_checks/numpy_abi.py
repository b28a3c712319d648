"""Find what was compiled before numpy 2 beside it: most such releases declare no upper bound."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.resolve.compose import pick_file
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.platform import tag_order
from envbuild.resolve.pylock import Candidate, Chosen
from envbuild.resolve.sources.artifacts import About, describe_files
from envbuild.resolve.stubs import parse_requirements

FIRST_BETA = "2024-03-12"
"""The day of numpy 2.0.0b1: before it nothing could be compiled for numpy 2 (numpy/numpy#25902)."""


def compiled_for_numpy_1(
    answer: Mapping[str, Chosen], facts: BaseFacts, context: Context
) -> tuple[Coupling, ...]:
    """Return a row for each new wheel compiled for numpy 1, where the answer brings numpy 2.

    Such a wheel has extensions for Python and requires numpy: it mostly uses numpy's C interface.
    """
    numpy = answer.get("numpy")
    if numpy is None or numpy.from_base or Version(numpy.version).major < 2:
        return ()
    order = tag_order(facts)
    new = [one for one in answer.values() if one.wheels and not one.from_base]
    files = {one.name: pick_file(one, order) for one in new if one.name != "numpy"}
    old = {name: file for name, file in files.items() if _is_compiled_before(file)}
    abouts = describe_files(old.values(), context) if old else {}
    asking = [name for name in sorted(old) if _requires_numpy(abouts[old[name].sha256])]
    reasons = (
        f"{name} {answer[name].version}, compiled before numpy 2 came out" for name in asking
    )
    return tuple(Coupling(package="numpy", constraint="numpy<2", reason=one) for one in reasons)


def _requires_numpy(about: About) -> bool:
    return any(one.name == "numpy" for one in parse_requirements(about.requires))


def _is_compiled_before(file: Candidate) -> bool:
    """Whether a wheel has extensions for Python and is from before numpy 2."""
    if file.uploaded is None or file.uploaded >= FIRST_BETA or not file.file.endswith(".whl"):
        return False
    try:
        tags = parse_wheel_filename(file.file)[3]
    except (ValueError, EnvbuildError):
        return False
    return all(tag.abi != "none" for tag in tags)
