"""Say uv's conflicts in the user's words: who wants what, what the base holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts
from envbuild.errors import (
    HostError,
    IntegrityError,
    NetworkError,
    NoSolutionError,
    SpaceError,
    ToolFailedError,
)
from envbuild.names import Texts
from envbuild.net.redact import redact
from envbuild.net.web import CERTIFICATE_HINT, UNTRUSTED
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.records import frozen_record
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.requirements import Direct
from envbuild.resolve.stubs import Stub, Stubs, is_stub

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
EXTRAS = r"(?:\[[^\]]*\])?"
TERM = rf"{NAME}{EXTRAS}(?:[=<>!~]=?=?[^\s]*)?"
DEPENDS = re.compile(rf"({TERM}) depends? on (?:one of:\s+)?({TERM})")
PYTHON = re.compile(rf"does not satisfy Python(\S+) and ({TERM}) depends on Python")
MISSING = re.compile(rf"({NAME}) was not found in the package registry")
NO_RELEASE = re.compile(rf"there are no versions of ({NAME})(?![\w\[=<>!~.-])")
NO_VERSION = re.compile(rf"there is no version of ({TERM}) and ")
BROKEN = re.compile(rf"({TERM}) has (?:an invalid package format|invalid metadata)")
NO_PAGE = re.compile(
    r"unexpected (?:JSON|HTML)|(?:Unsupported|Missing|Invalid) `Content-Type`|Could not parse absolute URL|invalid URL",
    re.IGNORECASE,
)
ANOTHER = re.compile(r"Package metadata (?:name|version) `.*` does not match.*")
NO_WHEELS = re.compile(rf"({TERM}) ha(?:s|ve) no wheels with a matching ([A-Za-z ]+ tag)")
PINNED = re.compile(rf"({NAME}){EXTRAS}==([^\s,|]+)")
YANKED = re.compile(rf'`({NAME})==([^`]+)` is yanked(?: \(reason: "(.*)"\))?')
WITHDRAWN = re.compile(rf"({NAME}){EXTRAS}(?:[<>=!~]=?[^\s]*)? (?:was|were) yanked")
NO_EXTRA = re.compile(r"The package `([^`]+)` does not have an extra named `([^`]+)`")
FILTERED = re.compile(r"`([^`]+)` was filtered by `exclude-newer`")
AFTER_DATE = re.compile(
    rf"({NAME}){EXTRAS}[<>=!~]\S* (?:(?:was|were) published after the exclude newer|"
    r"has no publish) time"
)
"""What uv says of a release that a date hides, or of which the index tells no day."""
NETWORK = re.compile(
    r"failed to fetch|request failed|error sending request|timed out|dns error|connection|certificate|http status",
    re.IGNORECASE,
)
UNTRUSTED_ISSUER = re.compile(
    r"UnknownIssuer|invalid peer certificate|CERTIFICATE_VERIFY_FAILED|SelfSigned", re.IGNORECASE
)
URL = re.compile(r"https?://[^\s`)]+")
LONGEST_WORD = 300
"""Letters of a word in what uv says: names and versions have some ten, addresses a hundred."""
LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD},}}")
LONGEST_OUTPUT = 1 << 18
"""Letters of what uv says: of a conflict of a hundred packages some 20,000."""
LONGEST_REASON = 400
LONGEST_REASONING = 2000
HEADING = "the requirements have no solution on this base"
DASH = "- "


class ConflictError(Exception):
    """uv found no solution; ``text`` is its derivation, ``filtered`` the names that the date cut.

    ``couplings`` are rows about what is new that were constraints, beside those of the base;
    ``first_reasons`` are sentences that come before all others; ``traps`` are names of which an
    index has nothing that counts.
    """

    couplings: tuple[Coupling, ...] = ()
    first_reasons: Texts = ()
    traps: Texts = ()

    def __init__(self, output: str) -> None:
        # uv prints the derivation first, then hints, each at the beginning of a line
        body, *hints = re.split(r"^hint: ", output, flags=re.MULTILINE)
        cause = body.partition("cause:")[2] or body
        # without markers: NAME{python_version < '3.8'}
        self.text = re.sub(r"\{[^{}]*\}", "", " ".join(cause.split()))
        hinted = FILTERED.findall("\n".join(hints))
        self.filtered = tuple(dict.fromkeys([*hinted, *AFTER_DATE.findall(self.text)]))
        super().__init__(self.text)

    def joined(self, other: ConflictError) -> ConflictError:
        """Return one that tells both."""
        both = ConflictError(f"{self.text} {other.text}")
        both.first_reasons = tuple(dict.fromkeys((*self.first_reasons, *other.first_reasons)))
        both.traps = tuple(dict.fromkeys((*self.traps, *other.traps)))
        both.filtered = (
            *self.filtered,
            *(name for name in other.filtered if name not in self.filtered),
        )
        return both


@frozen_record
class Problem:
    """What an explanation may refer to; ``framework`` is the recipe's own requirement of one."""

    directs: tuple[Direct, ...]
    stubs: Stubs
    couplings: tuple[Coupling, ...]
    as_of: str | None
    facts: BaseFacts
    framework: str | None = None


def translate_failure(output: str) -> Exception:
    """Return the error for a failed call of uv: a ConflictError, or one for the user."""
    # an index has a say in it, and patterns take the square of a word's length
    output = LONG_WORD.sub(lambda found: f"{found[0][:LONGEST_WORD]}…", output[:LONGEST_OUTPUT])
    if "No solution found" in output:
        return ConflictError(output)
    said = [line for line in output.splitlines() if not line.startswith(("warning:", "Resolved "))]
    # where there are warnings alone, they are what is known
    stripped = map(str.strip, said if any(map(str.strip, said)) else output.splitlines())
    lines = [URL.sub(lambda found: redact(found[0]), line) for line in stripped if line]
    text = "\n".join(lines[:12])
    unwritten = f"uv could not write: {text}"
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return SpaceError(unwritten, hint="free space in uv's cache and in TMPDIR")
    if "Failed to initialize cache" in output or "Read-only file system" in output:
        return HostError(unwritten, hint="point UV_CACHE_DIR and TMPDIR to folders of your own")
    if "Failed to build" in output:
        return HostError(f"uv could not read a source package: {text}")
    return _index_failure(output, lines) or ToolFailedError(f"uv failed\n{text}", stderr=output)


def _index_failure(output: str, lines: list[str]) -> Exception | None:
    """Return the error for an index that does not answer, or not with an index page."""
    where = next((redact(found[0]) for found in URL.finditer(output)), None)
    other = ANOTHER.search("\n".join(lines))
    if other:
        what = f"the index offers another package under this name: {other[0]}"
        return IntegrityError(
            what, where=where, hint="a damaged or hostile index or mirror does this"
        )
    if UNTRUSTED_ISSUER.search(output):
        return NetworkError(UNTRUSTED, where=where, hint=CERTIFICATE_HINT)
    answer = next((line for line in lines if NO_PAGE.search(line)), None)
    if answer is not None:
        message = answer.removeprefix("error:").strip()
        return NetworkError(
            f"the index answers with what is no index page: {message}",
            where=where,
            hint="is it a package index? It may also be a proxy's login page",
        )
    if NETWORK.search(output):
        causes = [
            line.removeprefix("cause:").strip() for line in lines if line.startswith("cause:")
        ]
        reason = causes[-1] if causes else lines[0].removeprefix("error:").strip()
        return NetworkError(
            f"the package index did not answer: {reason}",
            where=where,
            hint=(
                "check the network and the proxy variables; the index's address is under [indexes] "
                "in the settings"
            ),
        )
    return None


@frozen_record
class Clash:
    """One requirement that the base's protected or preferred version does not satisfy."""

    subject: str
    wanted: str
    stub: Stub

    def __str__(self) -> str:
        return f"{self.subject} needs {self.wanted}; {self.stub.holder} {_held_version(self.stub)}"


def no_solution(
    conflict: ConflictError, problem: Problem, clashes: Iterable[Clash], hints: Iterable[str] = ()
) -> NoSolutionError:
    """Return the error that tells a conflict in the user's words; ``hints`` are what would help."""
    # of several clashes about one pair the first is told: filled backwards, the dict keeps that one
    once = {(name_of(clash.subject), clash.wanted): clash for clash in reversed(tuple(clashes))}
    reasons = dict.fromkeys(
        (
            *conflict.first_reasons,
            *map(str, reversed(once.values())),
            *_other_reasons(conflict, problem),
        )
    )
    lines = [HEADING, *(f"{DASH}{reason}" for reason in reasons)]
    reasoning = plain_text(conflict.text, problem.stubs)
    cut = (
        reasoning
        if len(reasoning) <= LONGEST_REASONING
        else f"{reasoning[:LONGEST_REASONING]} … (cut)"
    )
    lines.append(f"the resolver's reasoning: {cut}")
    return NoSolutionError("\n".join(lines), hint="\nor ".join(hints) or None)


def reasons_of(refusal: NoSolutionError) -> list[str]:
    """Return the reasons that `no_solution` wrote into an error, each without its dash."""
    rows = refusal.what.splitlines()
    return [row.removeprefix(DASH) for row in rows if row.startswith(DASH)]


def put_reason_first(refusal: NoSolutionError, reason: str) -> str:
    """Return the text of an error of `no_solution` with one more reason before the others."""
    return refusal.what.replace(HEADING, f"{HEADING}\n{DASH}{reason}", 1)


def held_reason(conflict: ConflictError, problem: Problem) -> str:
    """Return in one sentence why a newer release cannot be had."""
    reasons = (
        *map(str, clashes_of(conflict, problem)),
        *_other_reasons(conflict, problem),
        *_newer_rivals(conflict.text, problem),
        *_disputed_bounds(conflict.text, problem),
    )
    return reasons[0] if reasons else plain_text(conflict.text, problem.stubs)[:LONGEST_REASON]


def _disputed_bounds(text: str, problem: Problem) -> Iterable[str]:
    """Yield two packages that want the same third one; a range says less than a bound."""
    first: dict[str, tuple[str, str]] = {}
    for package, wanted in DEPENDS.findall(text):
        target = name_of(wanted)
        other = first.setdefault(target, (package, wanted))
        if name_of(other[0]) != name_of(package) and other[1] != wanted:
            one = f"{plain_text(other[0], problem.stubs)} needs {other[1].rstrip(',.')}"
            two = f"{plain_text(package, problem.stubs)} needs {wanted.rstrip(',.')}"
            yield f"{one}, and {two}"


def _newer_rivals(text: str, problem: Problem) -> Iterable[str]:
    """Yield what is possible only with an older release of something the user asks for."""
    asked = {direct.name for direct in problem.directs}
    for package, wanted in DEPENDS.findall(text):
        other = name_of(wanted)
        if other in asked and other != name_of(package):
            yield (
                f"{plain_text(package, problem.stubs)} needs {wanted.rstrip(',.')}, and you ask "
                f"for {other}, which is there in a newer release"
            )


def mentioned_names(text: str) -> set[str]:
    """Return the canonical names that a derivation speaks of."""
    return {name_of(found[0]) for found in re.finditer(TERM, text)}


def plain_warning(warning: str, stubs: Stubs, *, quiet: Collection[str] = ()) -> str | None:
    """Return a warning of uv in the user's words; None for one that is not about the answer.

    ``quiet`` are extras (``name[extra]``) that nobody asked for.
    """
    yanked = YANKED.fullmatch(warning)
    if yanked:
        reason = "".join(char for char in yanked[3] or "" if char.isprintable())[:200]
        return f"{yanked[1]} {yanked[2]} was withdrawn by its authors" + (
            f": {reason}" if reason else ""
        )
    extra = NO_EXTRA.fullmatch(warning)
    if extra and f"{name_of(extra[1])}[{extra[2]}]" not in quiet:
        return (
            f"{plain_text(extra[1], stubs)} has no extra named {extra[2]}: nothing is added for it"
        )
    return None


def plain_text(text: str, stubs: Stubs) -> str:
    """Write stub versions as what the base holds."""

    def named(found: re.Match[str]) -> str:
        stub = stubs.by_name.get(found[1].lower())
        return (
            f"{_held_version(stub)} (in the base)"
            if stub is not None and is_stub(found[2])
            else found[0]
        )

    return re.sub(r"\+(?:[a-z0-9]+\.)*base(?![a-z0-9.])", "", PINNED.sub(named, text))


def _held_version(stub: Stub) -> str:
    alias = f" as {stub.name}" if stub.alias_of else ""
    taken = f", taken as {stub.public}" if stub.public != stub.real else ""
    return f"{stub.alias_of or stub.name} {stub.real}{alias}{taken}"


def clashes_of(conflict: ConflictError, problem: Problem) -> Iterable[Clash]:
    """Yield the clauses about what the base holds and the user has not asked to replace."""
    stubs = problem.stubs.by_name
    # a direct requirement may replace what the base merely prefers: that is no clash
    given_up = {
        d.name
        for d in problem.directs
        if d.name in stubs and not is_satisfied(d.text, stubs[d.name])
    }
    given_up = {name for name in given_up if not stubs[name].hard}
    for package, wanted in DEPENDS.findall(conflict.text):
        stub = problem.stubs.by_name.get(name_of(wanted))
        if stub is not None and stub.name not in given_up and not is_satisfied(wanted, stub):
            yield Clash(
                subject=plain_text(package, problem.stubs), wanted=wanted.rstrip(",."), stub=stub
            )


def _other_reasons(conflict: ConflictError, problem: Problem) -> Iterable[str]:
    """Yield the other clauses that a person can act on, the strongest first."""
    text = conflict.text
    yield from (f"{name} is not on the index" for name in MISSING.findall(text))
    yield from (f"the index offers no release of {name} at all" for name in empty_pages(conflict))
    yield from _withdrawn_releases(text)
    yield from (f"what the index offers as {one} is no package" for one in BROKEN.findall(text))
    # of the base's own the clashes tell, of younger ones the date
    known = {*problem.stubs.by_name, *conflict.filtered}
    lacking = (term for term in NO_VERSION.findall(text) if name_of(term) not in known)
    yield from (f"the index has no {term}" for term in lacking)
    for wanted, package in PYTHON.findall(text):
        yield (
            f"{plain_text(package, problem.stubs)} needs Python {wanted.rstrip(',')}; the base has "
            f"{problem.facts.python}"
        )
    for direct in held_directs(problem):
        stub = problem.stubs.by_name[direct.name]
        yield f"you ask for {direct.written}; {stub.holder} {_held_version(stub)}"
    yield from _direct_conflicts(text, problem)
    names = mentioned_names(text)
    for coupling in problem.couplings:
        if coupling.binding and coupling.package in names and coupling.constraint in text:
            yield coupling.sentence
    for name in conflict.filtered:
        yield f"newer releases of {name} are left out: the resolution is as of {problem.as_of}"


def held_directs(problem: Problem) -> Iterable[Direct]:
    """Yield the direct requirements that what the base protects does not satisfy."""
    for direct in problem.directs:
        stub = problem.stubs.by_name.get(direct.name)
        if stub is not None and stub.hard and not is_satisfied(direct.text, stub):
            yield direct


def _withdrawn_releases(text: str) -> Iterable[str]:
    for name in dict.fromkeys(WITHDRAWN.findall(text)):
        if f"all versions of {name} cannot be used" in text:
            yield f"{name} has no release that its authors have not withdrawn"


def empty_pages(conflict: ConflictError) -> Texts:
    """Return the names that an index knows and has nothing for, whatever the date."""
    return tuple(
        name for name in NO_RELEASE.findall(conflict.text) if name not in conflict.filtered
    )


def _direct_conflicts(text: str, problem: Problem) -> Iterable[str]:
    """Yield what the direct requirements want of each other, and what has no file for the base."""
    bounded = {d.name: d for d in problem.directs if d.specifier and not problem.stubs.hard(d.name)}
    for package, wanted in DEPENDS.findall(text):
        direct = bounded.get(name_of(wanted))
        if direct is not None and direct.text not in wanted and direct.name != name_of(package):
            yield (
                f"{plain_text(package, problem.stubs)} needs {wanted.rstrip(',.')}; you ask for "
                f"{direct.written}"
            )
    facts = problem.facts
    for package, tag in NO_WHEELS.findall(text):
        where = (
            f"{facts.machine} with glibc {facts.glibc}"
            if "platform" in tag
            else f"Python {facts.python}"
        )
        yield f"{plain_text(package, problem.stubs)} has no wheels for {where}, and no source"


def is_satisfied(wanted: str, stub: Stub) -> bool:
    """Whether what the base holds satisfies a requirement as uv writes it."""
    try:
        requirement = Requirement(wanted.rstrip(",."))
    except NO_REQUIREMENT:
        return True
    return requirement.specifier.contains(stub.version, prereleases=True)


def name_of(term: str) -> str:
    """Return the canonical name at the beginning of a term such as ``foo[bar]==1.0``."""
    found = re.match(NAME, re.split(r"[\[=<>!~,\s]", term, maxsplit=1)[0])
    return canonicalize_name(found[0]) if found else term
