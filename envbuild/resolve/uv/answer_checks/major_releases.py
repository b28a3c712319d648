"""Find what is older than a release that broke it: most such packages declare no upper bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.data.package_tables import MajorRelease, load_majors, load_names
from envbuild.errors import EnvbuildError
from envbuild.names import DIRECT
from envbuild.resolve.compose import pick_file
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.graph import requiring_names, walk_requirements
from envbuild.resolve.platform import marker_environment, tag_order
from envbuild.resolve.pylock import Candidate, Chosen
from envbuild.resolve.sources.artifacts import About, describe_files
from envbuild.resolve.versions import is_within


def broken_rows(
    major: MajorRelease,
    answer: Mapping[str, Chosen],
    requirements: Sequence[str],
    facts: BaseFacts,
    context: Context,
) -> tuple[Coupling, ...]:
    """Return a row for each older package that a breaking release breaks; none if not brought.

    What an older package requires for an extra counts where ``requirements`` ask for that extra.
    """
    partner = answer.get(major.package)
    if partner is None or partner.from_base or Version(partner.version) < Version(major.before):
        return ()
    order = tag_order(facts)
    new = [one for one in answer.values() if not one.from_base and one.name != major.package]
    files = {one.name: pick_file(one, order) for one in new}
    old = {name: file for name, file in files.items() if _may_break(file, major)}
    abouts = describe_files(old.values(), context) if old else {}
    requires = {name: abouts[file.sha256].requires for name, file in old.items()}
    starts = [(DIRECT, text) for text in (*requirements, *old)]
    edges = walk_requirements(starts, requires, marker_environment(facts))
    asking = requiring_names(edges).get(major.package, ())
    return tuple(
        Coupling(
            package=major.package,
            constraint=major.bound,
            reason=f"{name} {answer[name].version}, {major.what}",
        )
        for name in asking
        if name in old
    )


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


def outdated_rows(
    answer: Mapping[str, Chosen], facts: BaseFacts, context: Context
) -> tuple[Coupling, ...]:
    """Return rows for source archives whose code uses what the answer's releases have no more.

    ``turned`` asks for a newer release of what the archive is of.
    """
    order = tag_order(facts)
    files = {one.name: pick_file(one, order) for one in answer.values() if not one.from_base}
    sources = {name: file for name, file in files.items() if not file.file.endswith(".whl")}
    abouts = describe_files(sources.values(), context) if sources else {}
    found = []
    for name, file in sorted(sources.items()):
        for package, bounds, what in _old_uses(file, abouts[file.sha256]):
            if package == name or package not in answer:
                continue
            if is_within(answer[package].version, bounds):
                continue
            version = answer[name].version
            row = Coupling(
                package=package,
                constraint=f"{package}{bounds}",
                reason=f"{name} {version}, {what}",
                turned=f"{name}>{Version(version).public}",
            )
            found.append(row)
    return tuple(found)


def _old_uses(file: Candidate, about: About) -> Iterator[tuple[str, str, str]]:
    """Yield (package, its bounds, why) of what an archive's code needs."""
    for major in load_majors().major if about.old else ():
        young = file.uploaded is None or file.uploaded >= major.since.isoformat()
        if major.bound in about.old and not young:
            yield major.package, f"<{major.before}", major.what
    for row in load_names().old if about.old else ():
        if row.bound in about.old:
            yield row.package, row.bounds, f"whose code is older: {row.what}"
