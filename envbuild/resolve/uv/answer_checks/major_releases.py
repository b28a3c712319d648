"""Find what is older than a release that broke it: most such packages declare no upper bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.data.package_tables import MajorRelease, load_majors
from envbuild.errors import EnvbuildError
from envbuild.resolve.compose import pick_file
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.platform import tag_order
from envbuild.resolve.pylock import Candidate, Chosen
from envbuild.resolve.sources.artifacts import About, describe_files
from envbuild.resolve.stubs import parse_requirements


def broken_by_majors(
    answer: Mapping[str, Chosen], facts: BaseFacts, context: Context
) -> Iterator[tuple[MajorRelease, tuple[Coupling, ...]]]:
    """Yield each breaking release that the answer brings, with a row for each older package."""
    order = tag_order(facts)
    for major in load_majors().major:
        partner = answer.get(major.package)
        if partner is None or partner.from_base or Version(partner.version) < Version(major.before):
            continue
        new = [one for one in answer.values() if not one.from_base and one.name != major.package]
        files = {one.name: pick_file(one, order) for one in new}
        old = {name: file for name, file in files.items() if _may_break(file, major)}
        abouts = describe_files(old.values(), context) if old else {}
        asking = [
            name for name in sorted(old) if _requires(abouts[old[name].sha256], major.package)
        ]
        bound = f"{major.package}<{major.before}"
        rows = tuple(
            Coupling(
                package=major.package,
                constraint=bound,
                reason=f"{name} {answer[name].version}, {major.what}",
            )
            for name in asking
        )
        if rows:
            yield major, rows


def _requires(about: About, name: str) -> bool:
    return any(one.name == name for one in parse_requirements(about.requires))


def _may_break(file: Candidate, major: MajorRelease) -> bool:
    """Whether a file is from before a release, and of the kind that it breaks."""
    if file.uploaded is None or file.uploaded >= major.since.isoformat():
        return False
    if not major.compiled:
        return True
    if not file.file.endswith(".whl"):
        return False
    try:
        tags = parse_wheel_filename(file.file)[3]
    except (ValueError, EnvbuildError):
        return False
    return all(tag.abi != "none" for tag in tags)
