"""Check on paper what ``pip check`` would say about the base with the new packages put over it."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts
from envbuild.names import Pairs
from envbuild.resolve.platform import marker_environment
from envbuild.resolve.stubs import Stubs, base_distributions, parse_requirements


def broken_requirements(facts: BaseFacts, stubs: Stubs, new: Mapping[str, str]) -> Pairs:
    """Return (name, sentence) for each distribution of the base that ``new`` would break.

    Only what held before counts: a base that was broken already stays as it is.
    """
    environment = marker_environment(facts)
    found: list[tuple[str, str]] = []
    for name, dist in base_distributions(facts).items():
        # what is replaced brings its own requirements
        if name in new:
            continue
        for requirement in parse_requirements(dist.requires):
            wanted = canonicalize_name(requirement.name)
            if (
                wanted not in new
                or wanted not in stubs.by_name
                or requirement.specifier.contains(new[wanted], prereleases=True)
            ):
                continue
            if requirement.marker is not None and not requirement.marker.evaluate(environment):
                continue
            if requirement.specifier.contains(stubs.by_name[wanted].version, prereleases=True):
                sentence = (
                    f"{dist.name} {dist.version} of the base needs {wanted}{requirement.specifier}"
                )
                found.append((name, sentence))
    return tuple(found)
