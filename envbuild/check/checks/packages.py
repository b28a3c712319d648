"""Checks of what is installed: the framework, its files, the locked versions, the imports."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from packaging.version import Version

from envbuild.check.answers import Owner
from envbuild.check.checks.gpu.toolkit import toolkit_of
from envbuild.check.checks.sources import VARIABLE
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed, skipped
from envbuild.check.expected import requirement_name
from envbuild.data import lookup
from envbuild.data.tables import load_frameworks
from envbuild.failures import killed_by
from envbuild.names import Pairs, Texts
from envbuild.store.units import count_noun, listing

REBUILD = "build the image again from its lock: envbuild make"


def framework_version(evidence: Evidence) -> Verdict:
    """Check whether the framework is there, in the locked version, and is what Python imports."""
    framework, expected = evidence.framework, evidence.expected
    if framework is None:
        return skipped("no known GPU framework is installed, and none was asked for")
    owners = evidence.installed.owners.get(framework.module, ())
    if not owners and evidence.installed.files.get(framework.module) is None:
        return failed(
            f"{framework.name} is not installed",
            f"add {framework.name} to the recipe's [base] framework or dependencies, lock and build again",
        )
    found = evidence.release or "of unknown version"
    shown = {"installed": [f"{o.name} {o.version}" for o in owners], "locked": expected.version}
    if expected.version and not any(
        same_version(owner.version, expected.version) for owner in owners
    ):
        return failed(
            f"{framework.name} {found} is installed; the lock says {expected.version}",
            REBUILD,
            **shown,
        )
    seen = _imported_version(evidence)
    wanted = expected.version or evidence.release
    if seen and wanted and lookup.numbers(seen)[:2] != lookup.numbers(wanted)[:2]:
        return failed(
            f"import {framework.module} gives {seen}, though {wanted} is what is registered as installed: "
            "another copy of it was written over the first",
            REBUILD,
            imported=seen,
            **shown,
        )
    names = " and ".join(f"{owner.name} {owner.version}" for owner in owners) or framework.name
    return passed(f"{names}{' as locked' if expected.version else ''}", imported=seen, **shown)


def one_framework(evidence: Evidence) -> Verdict:
    """Check whether exactly one distribution provides the framework's module."""
    framework = evidence.framework
    if framework is None:
        return skipped("no known GPU framework is installed, and none was asked for")
    owners = evidence.installed.owners.get(framework.module, ())
    if len(owners) < 2:
        return passed(
            f"only {owners[0].name} provides {framework.module}"
            if owners
            else "nothing provides it twice"
        )
    names = [f"{owner.name} {owner.version}" for owner in owners]
    if len({owner.name for owner in owners}) == 1:
        places = listing([owner.folder for owner in owners])
        return failed(
            f"{owners[0].name} is installed {len(owners)} times: {', '.join(names)} (in {places})",
            "keep one: the copy that comes first on sys.path hides the others",
            owners=names,
        )
    kept = _find_whole(evidence, [owner.name for owner in owners])
    if kept and (evidence.built_for.is_cuda or evidence.expected.wants_cpu):
        return passed(f"{' and '.join(names)} are of one release, and the files are {kept}'s")
    return failed(
        f"{len(owners)} distributions provide {framework.module}: {', '.join(names)}; the one installed last "
        "has written over the other's files",
        _which_to_keep(owners),
        owners=names,
    )


def _of_its_cuda(evidence: Evidence, dists: Collection[str]) -> str | None:
    """Name the one of several distributions that is for the framework's CUDA."""
    toolkit = toolkit_of(evidence)
    if not toolkit:
        return None
    ending = f"-cu{lookup.numbers(toolkit)[0]}"
    for name in dists:
        if name.endswith(ending):
            return f"{name}, which is for the framework's CUDA"
    return None


def check_exclusive(evidence: Evidence) -> Verdict:
    """Check whether distributions are installed together that write the same files."""
    installed = {dist.name for dist in evidence.installed.dists if not dist.shadowed}
    notes: list[str] = []
    for group in load_frameworks().exclusive:
        if any(group.module == framework.module for framework in evidence.frameworks):
            continue  # one_framework says it better
        together = sorted(name for name in installed if lookup.matches(name, group.dists))
        names = " and ".join(together)
        kept = _find_whole(evidence, together)
        fuller = [name for name in together if lookup.matches(name, group.fuller)]
        if len(together) < 2:
            continue
        if group.fuller == () or kept not in (fuller or together):
            return failed(
                f"{names} are both installed; they share the files of {group.module}",
                f"keep one of them: {_of_its_cuda(evidence, together) or group.keep}",
                dists=together,
            )
        installed -= {*together}
        notes.append(f"{names} are of one release, and the files are {kept}'s")
    for both in evidence.installed.overlaps:
        if not {*both.dists} <= installed or _is_told(evidence, both.dists):
            continue
        if both.different and 2 * both.files > both.of:
            own = _of_its_cuda(evidence, both.dists)
            wish = own or "ask for the one that your project is written for"
            return failed(
                f"{' and '.join(both.dists)} are both installed; they write the same files "
                f"({both.example})",
                f"keep one of them: {wish}",
                dists=list(both.dists),
            )
    twice = _twice_in_one_folder(evidence)
    if twice:
        return failed(
            f"two versions of one distribution are registered in one folder: {listing(twice)}",
            "an uninstall or upgrade was cut short; " + REBUILD,
            dists=twice,
        )
    return passed(notes[0] if notes else "no two packages write the same files", notes=notes)


def _find_whole(evidence: Evidence, names: Collection[str]) -> str | None:
    """Return which of distributions of the same files is whole, if all are of one release."""
    dists = [dist for dist in evidence.installed.dists if dist.name in names]
    releases = {lookup.numbers(dist.version)[:3] for dist in dists}
    whole = {*names}
    for both in evidence.installed.overlaps:
        if {*both.dists} <= {*names}:
            whole -= {*both.lost}
    return min(whole, default=None) if len(releases) == 1 else None


def _is_told(evidence: Evidence, dists: Texts) -> bool:
    """Tell whether two are no fault, or another check says it better (a framework's two)."""
    for owners in evidence.installed.owners.values():
        if {*dists} <= {owner.name for owner in owners}:
            return True
    asks = evidence.installed.requires
    pairs = (dists, dists[::-1])
    # what one asks for itself, be it by an extra, is made to lie over it
    return any(one == two or two in map(requirement_name, asks.get(one, ())) for one, two in pairs)


def base_files(evidence: Evidence) -> Verdict:
    """Check whether a framework's files are as they were installed, and no other's are damaged."""
    verdict, verified = _framework_files(evidence), evidence.installed.verified
    others = {
        name: files for name, files in evidence.installed.damage.items() if name not in verified
    }
    if others and verdict.outcome != "failed":
        return _damaged_files(others)
    return verdict


def _framework_files(evidence: Evidence) -> Verdict:
    """Check whether the files of the framework and its CUDA wheels are as they were installed."""
    verified, lost = evidence.installed.verified, evidence.installed.lost_records
    if lost:
        return failed(
            f"{listing(lost)}: the list of its files (RECORD) is gone or empty",
            "nothing can tell whether its files are right; " + REBUILD,
            lost=lost,
        )
    if not verified:
        return skipped("no distribution of the framework has a RECORD to compare with")
    replaced = _replaced_records(evidence)
    if replaced:
        return failed(
            f"{listing(replaced)}: installed again since the base was read (its RECORD differs)",
            "something replaced a part of the base; lock again and look at what moved: envbuild lock --explain",
            replaced=replaced,
        )
    bad = {name: one for name, one in verified.items() if one.changed or one.missing}
    for both in evidence.installed.overlaps:
        if _find_whole(evidence, both.dists):  # the two checks above have judged that pair
            bad = {name: one for name, one in bad.items() if name not in both.lost}
    if bad:
        name, one = max(bad.items(), key=lambda item: item[1].changed_count + item[1].missing_count)
        example = (*one.changed, *one.missing)[0]
        counts = ", ".join(
            f"{count} {word}"
            for count, word in ((one.changed_count, "changed"), (one.missing_count, "missing"))
            if count
        )
        others = f"; also {listing(sorted(set(bad) - {name}))}" if len(bad) > 1 else ""
        return failed(
            f"{name}: {counts} of {one.files} files (for one, {example}){others}",
            _cure_of_files(evidence, name),
            distributions={
                key: {"changed": value.changed, "missing": value.missing}
                for key, value in bad.items()
            },
        )
    files = sum(one.files for one in verified.values())
    sized = sum(one.sized for one in verified.values())
    how = (
        f": {files - sized} by hash, {sized} by size (--level full hashes all)"
        if sized
        else ", all by hash"
    )
    return passed(
        f"{files} files of {len(verified)} distributions are as installed{how}", sized=sized
    )


def _damaged_files(damage: Mapping[str, Pairs]) -> Verdict:
    """Tell of files of any distribution that are empty, cut or gone."""
    name, files = max(damage.items(), key=lambda item: len(item[1]))
    told = [f"{path} is {how}" for path, how in files]
    others = f"; also {listing(sorted(set(damage) - {name}))}" if len(damage) > 1 else ""
    return failed(
        f"{name}: {listing(told, 3)}{others}",
        f"install {name} again: {REBUILD}",
        distributions={key: [path for path, _ in value] for key, value in damage.items()},
    )


def _cure_of_files(evidence: Evidence, name: str) -> str:
    """Say what mends files that are not as installed: perhaps another package has them too."""
    for overlap in evidence.installed.overlaps:
        others = [one for one in overlap.dists if one != name]
        if len(others) == 1 and overlap.different:
            return (
                f"take {others[0]} out, and build the image again: it has written over files of "
                f"{name} ({overlap.example})"
            )
    return (
        f"something removed or wrote over files of {name} after they were installed; "
        f"see the two checks above, then {REBUILD}"
    )


def locked_versions(evidence: Evidence) -> Verdict:
    """Check whether every package of the lock is in the image at its version."""
    absent, other = [], {}
    for name, version in evidence.expected.locked.items():
        dist = evidence.installed.dist(name)
        if dist is None:
            absent.append(name)
        elif not same_version(dist.version, version):
            other[name] = f"{dist.version} instead of {version}"
    if absent or other:
        parts = [f"{listing(absent)} missing"] if absent else []
        parts += [listing([f"{name} {what}" for name, what in other.items()])] if other else []
        return failed(
            f"the image is not what the lock says: {'; '.join(parts)}",
            REBUILD,
            missing=absent,
            different=other,
        )
    count = len(evidence.expected.locked)
    return passed(f"{count_noun(count, 'locked package')}: all there, with the locked versions")


def own_script(evidence: Evidence) -> Verdict:
    """Check whether the recipe's own check script passes."""
    run = given(evidence.script)
    name = evidence.expected.script.name if evidence.expected.script else "script"
    if run.code:
        killed = killed_by(run.code)
        ended = f"was killed by {killed}" if killed else f"ended with code {run.code}"
        return failed(
            f"{name} {ended}; its last line: {run.last_line}",
            "the lines before it are in the evidence: envbuild check --json",
            code=run.code,
            output=list(run.last_lines),
        )
    return passed(f"{name} ended well; its last line: {run.last_line}", output=list(run.last_lines))


def own_sources(evidence: Evidence) -> Verdict:
    """Check whether the project's own Python proves something about the GPU and leaves it alone."""
    found = evidence.sources
    assert found is not None  # noqa: S101  (asked only where a project is known)
    shown = {
        "suspects": [msgspec.to_builtins(one) for one in found.suspects],
        "unread": list(found.unread),
    }
    if not found.files:
        return skipped("there is no Python in the project's folder")
    if not found.suspects:
        return passed(
            f"{count_noun(found.files, 'script')} of the project: no wrong test or choice of GPUs",
            **shown,
        )
    first = found.suspects[0]
    more = f" (and {len(found.suspects) - 1} more)" if len(found.suspects) > 1 else ""
    if first.kind == "hides":
        return failed(
            f"{first.path} hides the module {first.text} from the scripts beside it{more}",
            f"call the file otherwise: my_{first.path}",
            **shown,
        )
    if first.kind == "uncalled":
        return failed(
            f"{first.path}:{first.line}: {first.text} is not called there, and a function always counts as true{more}",
            f"write {first.text}()",
            **shown,
        )
    return failed(
        f"{first.path}:{first.line}: {first.text}: takes the choice of GPUs from the scheduler{more}",
        f"leave {VARIABLE} to the scheduler; on a machine of your own: {VARIABLE}=0 envbuild run NAME",
        **shown,
    )


def same_version(one: str, other: str) -> bool:
    """Tell whether two version texts are the same version (PEP 440), or the same text."""
    try:
        return Version(one) == Version(other)
    except ValueError:
        return one == other


def _imported_version(evidence: Evidence) -> str | None:
    answer = evidence.imports.data if evidence.imports else None
    module = (
        answer.modules.get(evidence.framework.module) if answer and evidence.framework else None
    )
    return module.version if module and module.ok else None


def _which_to_keep(owners: tuple[Owner, ...]) -> str:
    """Say which of two distributions to ask for; the one of another folder is the base's own."""
    if len({owner.folder for owner in owners}) == 1:
        return "ask for one of them only, the one for the image's CUDA"
    first = min(owners, key=lambda owner: owner.folder).name
    return f"ask for one of them only; the base's own is usually the one to keep ({first})"


def _twice_in_one_folder(evidence: Evidence) -> list[str]:
    seen: dict[tuple[str, str], list[str]] = {}
    for dist in evidence.installed.dists:
        seen.setdefault((dist.folder, dist.name), []).append(dist.version)
    return [
        f"{name} {' and '.join(sorted(versions))}"
        for (_, name), versions in sorted(seen.items())
        if len(versions) > 1
    ]


def _replaced_records(evidence: Evidence) -> list[str]:
    known = evidence.expected.records
    return [
        dist.name
        for dist in evidence.installed.dists
        if dist.name in known
        and dist.name in evidence.installed.verified
        and dist.record not in (None, known[dist.name])
    ]
