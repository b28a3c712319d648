"""The check of packages that must fit to the framework though no metadata says so."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.check.checks.gpu.toolkit import toolkit_of
from envbuild.check.evidence import Evidence, Verdict, failed, passed, skipped
from envbuild.check.expected import requirement_name
from envbuild.data import lookup
from envbuild.recipe.requirement import NO_REQUIREMENT, allows, marker_values
from envbuild.resolve.couplings import rows_for
from envbuild.store.units import count_noun, listing

if TYPE_CHECKING:
    from envbuild.resolve.couplings import Coupling


def check_companions(evidence: Evidence) -> Verdict:
    """Check whether packages are of the releases that go with the framework (companions.toml)."""
    versions = _versions(evidence)
    rows = _rows(versions)
    parts = _judge_parts(evidence, versions)
    if parts is not None:
        return parts
    unfit = [
        row
        for row in rows
        if row.package in versions
        and not row.partner_only
        and row.program_of in (None, *evidence.expected.direct)
        and not allows(Requirement(row.constraint), versions[row.package])
    ]
    broken = [row for row in unfit if _counts(evidence, row)]
    if broken:
        return _report_broken(evidence, broken, versions)
    lost = _lost_partners([row for row in rows if _counts(evidence, row)], versions)
    if lost:
        package, partner, reason = lost[0]
        return failed(
            f"{package} {versions[package]} needs {partner} beside {reason.partition(' (')[0]}, and it is not installed",
            f'add "{partner}" to [python] dependencies',
            lost=[list(one) for one in lost],
        )
    count = len({row.package for row in rows} & set(versions))
    if evidence.framework is None and not count:
        return skipped("no package here has a rule about another one")
    name = evidence.framework.name if evidence.framework else "another package"
    idle = sorted({f"{row.package} {versions[row.package]}: {row.constraint}" for row in unfit})
    note = f", but for what nothing here imports ({listing(idle)})" if idle else ""
    return passed(f"{count_noun(count, 'package')} with a rule about {name}: all fit it{note}")


def _counts(evidence: Evidence, row: Coupling) -> bool:
    """Tell whether both packages of a rule are used."""
    pair = (row.package, row.reason.partition(" ")[0])
    return all(_is_used(evidence, name) for name in pair if evidence.installed.dist(name))


def _is_used(evidence: Evidence, package: str) -> bool:
    """Tell whether a package is asked for, by the recipe or a framework, or loaded by what is.

    A rule is no proof: of a package that nobody imports it says nothing.
    """
    answer = evidence.imports.data if evidence.imports else None
    if answer is None or not answer.loaded or evidence.expected.alone:
        return True
    if package in (*answer.loaded, *evidence.expected.direct):
        return True
    for name, lines in evidence.installed.requires.items():
        if lookup.framework_of(name) and package in map(requirement_name, lines):
            return True
    return False


def _judge_parts(evidence: Evidence, versions: dict[str, str]) -> Verdict | None:
    """Return the failure for parts of the framework that are gone or of another release."""
    if evidence.framework is None:
        return None
    parts = _wrong_parts(evidence, versions)
    gone = [wish for name, wish in parts if name not in versions]
    if gone:
        return failed(
            f"{evidence.framework.name} {evidence.release} asks for {listing(gone)}, which is not installed",
            f'add "{gone[0]}" to [python] dependencies',
            missing=gone,
        )
    if parts:
        return failed(
            f"{evidence.framework.name} {evidence.release} asks for "
            f"{listing([wish for _, wish in parts])}; "
            f"there is {listing([f'{name} {versions[name]}' for name, _ in parts])}",
            f'something replaced a part of the framework: put "{parts[0][1]}" into [python] '
            "dependencies, and nothing that moves its parts",
            wanted=dict(parts),
        )
    return None


def _report_broken(evidence: Evidence, broken: list[Coupling], versions: dict[str, str]) -> Verdict:
    """Return the failure for packages that a rule refuses."""
    framework = evidence.framework.name if evidence.framework else ""
    # what does not go with the framework is told first: the rest may be a matter of that
    first = min(broken, key=lambda row: not row.reason.startswith(f"{framework} "))
    with_whom = first.reason.partition(" (")[0]
    same = [row.package for row in broken if row.reason.partition(" (")[0] == with_whom]
    what = f"{listing([f'{name} {versions[name]}' for name in same])} does not go with {with_whom}"
    shown = {row.package: {"constraint": row.constraint, "source": row.reason} for row in broken}
    wanted = _wanted(first.constraint)
    if not wanted:
        hint = f"take {first.package} out: nothing mends it beside {with_whom}"
        if first.note:
            hint += f" ({first.note})"
        return failed(what, hint, broken=shown)
    older = _older_partner(evidence, first, with_whom)
    hint = older or f'put "{first.constraint}" into [python] dependencies'
    return failed(f"{what}: it wants {wanted}", hint, broken=shown)


def _older_partner(evidence: Evidence, row: Coupling, with_whom: str) -> str | None:
    """Say to take the other package older, where one that was asked for refuses the newer one."""
    partner, _, version = with_whom.partition(" ")
    newer = [one.version for one in Requirement(row.constraint).specifier if one.operator == ">="]
    for holder in evidence.expected.direct:
        for line in evidence.installed.requires.get(holder, ()) if newer else ():
            with contextlib.suppress(*NO_REQUIREMENT):
                wish = Requirement(line)
                named = canonicalize_name(wish.name) == row.package and wish.marker is None
                if named and not allows(wish, newer[0]):
                    return (
                        f'put "{partner}<{version.partition(".")[0]}" into [python] dependencies: '
                        f'{holder} asks for "{wish}", which leaves out {row.constraint}'
                    )
    return None


def _versions(evidence: Evidence) -> dict[str, str]:
    """Return public versions by name; that of the framework under its own name.

    Its distribution may have another one.
    """
    found = {
        dist.name: dist.version.split("+")[0]
        for dist in evidence.installed.dists
        if not dist.shadowed
    }
    if evidence.framework is None:
        return found
    owners = evidence.installed.owners.get(evidence.framework.module, ())
    if owners:
        found[evidence.framework.name] = owners[0].version.split("+")[0]
    toolkit = toolkit_of(evidence)
    # a rule about CUDA chooses CuPy by it, and CuPy's own CUDA is not what it must fit to
    return {**found, "cuda": toolkit} if toolkit and evidence.framework.name != "cupy" else found


def _wrong_parts(evidence: Evidence, versions: dict[str, str]) -> list[tuple[str, str]]:
    """Return the framework's own parts (CUDA wheels, triton) of another release than it asks for.

    Of its other requirements a vendor's image may have moved some on purpose.
    """
    framework, installed = evidence.framework, evidence.installed
    assert framework is not None  # noqa: S101  (its caller asks)
    env = marker_values(installed.python)
    wrong: list[tuple[str, str]] = []
    holders = {owner.name: env for owner in installed.owners.get(framework.module, ())}
    # a plug-in's extra names the CUDA wheels that it was built with
    plugins = [name for name in installed.requires if lookup.matches(name, framework.plugins)]
    holders |= {name: {**env, "extra": "with-cuda"} for name in plugins}
    for holder, env in holders.items():
        for line in installed.requires.get(holder, ()):
            with contextlib.suppress(*NO_REQUIREMENT):
                wish = Requirement(line)
                name = canonicalize_name(wish.name)
                asked = wish.marker is None or wish.marker.evaluate(env)
                if not asked or not lookup.matches(name, framework.protected):
                    continue
                # the libraries of a missing CUDA wheel may come from the base;
                # nothing else brings triton
                if name not in versions and name != "triton":
                    continue
                if name == "triton" and not _compiles(evidence):
                    continue
                if name in versions and _is_newer_library(wish, name, versions[name]):
                    continue
                if name not in versions or not allows(wish, versions[name]):
                    wrong.append((name, f"{name}{wish.specifier}"))
    return wrong


def _compiles(evidence: Evidence) -> bool:
    """Tell whether anything uses triton, which the framework itself loads only to compile."""
    loaded = evidence.imports.data.loaded if evidence.imports and evidence.imports.data else ()
    return evidence.sources is None or evidence.sources.inductor or "triton" in loaded


def _is_newer_library(wish: Requirement, name: str, version: str) -> bool:
    """Tell whether a CUDA wheel is a newer one of the same major release, which does the same work.

    Its libraries keep their sonames; symbols that are gone are told by another check.  PyTorch
    itself says to take a cuDNN over its own pin (pytorch#166643).
    """
    pinned = [one.version for one in wish.specifier if one.operator == "=="]
    if not name.startswith("nvidia-") or not pinned:
        return False
    old, new = lookup.numbers(pinned[0]), lookup.numbers(version)
    return old[:1] == new[:1] and new >= old


def _lost_partners(rows: list[Coupling], versions: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return packages whose rule asks for another one beside them that is not installed."""
    return [
        (row.package, row.also, row.reason)
        for row in rows
        if row.also and row.lacks_partner(versions)
    ]


def _rows(versions: dict[str, str]) -> list[Coupling]:

    rows = []
    for name in versions:
        with contextlib.suppress(
            ValueError, KeyError
        ):  # a rule about what is not installed has nothing to fill in
            rows += [row for row in rows_for([name], versions) if row.binding]
    return rows


def _wanted(constraint: str) -> str | None:
    """Return a constraint for people; None for one that rules the package out."""
    return None if constraint.endswith("<0") else constraint
