"""Resolve what is needed to build the chosen sdists inside the base."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.errors import NoSolutionError
from envbuild.names import Pairs
from envbuild.resolve.compose import found_file, pick_file
from envbuild.resolve.conflict.explain import ConflictError, plain_text
from envbuild.resolve.graph import requiring_names, walk_requirements
from envbuild.resolve.model import Found
from envbuild.resolve.platform import marker_environment, tag_order
from envbuild.resolve.pylock import Candidate, Chosen, new_versions
from envbuild.resolve.sources.artifacts import About, describe_files
from envbuild.resolve.sources.pep517 import archives_of, ask_backends
from envbuild.resolve.stubs import parse_requirements
from envbuild.resolve.uv.query import Question
from envbuild.resolve.uv.session import Session


def resolve_builds(
    session: Session,
    *,
    answer: Mapping[str, Chosen],
    files: Mapping[str, Candidate],
    abouts: Mapping[str, About],
    as_of: str | None,
) -> tuple[Found, ...]:
    """Return the build requirements of all sdists and theirs, sorted by name.

    The set is complete but for what the base protects (its torch is never replaced, also not for a
    build), and prefers the versions that the image will hold: an extension is compiled against the
    numpy it runs with.  Build requirements keep to the date, unless they have no solution then.
    Raises NoSolutionError.
    """
    archives = archives_of(files, session.context.store)
    if not archives:
        return ()
    wanted = _declared_requirements(session, files, abouts)
    seed = new_versions(answer)
    # an extension is compiled against the numpy that it will run with
    seed |= {
        n: stub.real for n, stub in session.stubs.by_name.items() if n not in seed and not stub.hard
    }
    found = _ask_builds(session, wanted, tuple(seed.items()), as_of)
    said_by = {name: abouts[files[name].sha256] for name in archives}
    more = _undeclared_requirements(
        session, ask_backends(session, archives, said_by, found), wanted
    )
    if more:
        wanted = (*wanted, *more)
        found = _ask_builds(session, wanted, tuple(seed.items()), as_of)
    order = tag_order(session.facts)
    chosen = {
        name: pick_file(package, order) for name, package in found.items() if not package.from_base
    }
    described = describe_files(chosen.values(), session.context)
    requires = {name: described[file.sha256].requires for name, file in chosen.items()}
    via = requiring_names(walk_requirements(wanted, requires, marker_environment(session.facts)))
    return tuple(
        Found(
            name=name,
            version=found[name].version,
            file=found_file(file, described[file.sha256]),
            via=via.get(name, ()),
            requires=described[file.sha256].requires,
            requires_python=described[file.sha256].requires_python,
        )
        for name, file in sorted(chosen.items())
    )


def _declared_requirements(
    session: Session, files: Mapping[str, Candidate], abouts: Mapping[str, About]
) -> Pairs:
    """Return (sdist, build requirement) of all sdists, without what the base protects."""
    found: list[tuple[str, str]] = []
    for name, file in sorted(files.items()):
        wanted = parse_requirements(abouts[file.sha256].build)
        own = [one for one in wanted if not session.stubs.hard(canonicalize_name(one.name))]
        found += [(name, str(one)) for one in own]
    return tuple(found)


def _undeclared_requirements(session: Session, told: Pairs, wanted: Pairs) -> Pairs:
    """Return what backends ask for and no archive declares, without what the base protects."""
    return tuple(
        pair
        for pair in told
        if pair not in wanted
        and not session.stubs.hard(canonicalize_name(Requirement(pair[1]).name))
    )


def _ask_builds(
    session: Session, wanted: Pairs, seed: Pairs, as_of: str | None
) -> dict[str, Chosen]:
    texts = tuple(dict.fromkeys(text for _, text in wanted))
    if not texts:
        return {}
    # a build tool may be younger than the date: better that than no answer
    for date in dict.fromkeys((as_of, None)):
        question = Question(requirements=texts, seed=seed, soft=False, as_of=date)
        try:
            return session.ask(question)
        except ConflictError as conflict:
            last = plain_text(conflict.text, session.stubs)
    names = ", ".join(dict.fromkeys(name for name, _ in wanted))
    raise NoSolutionError(
        f"the build requirements of {names} have no solution: {last}",
        hint="choose other versions of these packages, with wheels if there are any",
    )
