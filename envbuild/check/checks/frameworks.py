"""Which GPU frameworks of an image are looked at: those that were asked for, and those with CUDA."""

from __future__ import annotations

from envbuild.check.answers import Static
from envbuild.check.evidence import Evidence, Verdict, skipped
from envbuild.data import lookup
from envbuild.data.tables import Framework, load_frameworks
from envbuild.records import replace

KERAS_BACKEND = "KERAS_BACKEND"


def frameworks_to_check(evidence: Evidence) -> tuple[Framework, ...]:
    """Return the expected framework, then others that were asked for or that are there with CUDA.

    An image of which nothing is known holds a CPU build beside another framework on purpose (Keras
    reads data with tensorflow-cpu); where it is the only one and something needs it, it is looked
    at.
    """
    found = evidence.installed
    expected = evidence.expected.framework
    wanted = [item for item in load_frameworks().framework if _is_installed(found, item)]
    chosen = [item for item in wanted if item == expected]
    if expected is not None and not chosen:
        chosen = [expected]
    for item in wanted:
        if item in chosen or item.probe is None:
            continue
        if _is_asked_for(evidence, item) or not computes_on_cpu(found, item):
            chosen.append(item)
    tried = [item for item in wanted if item.probe is not None]
    left = [item for item in (*tried, *wanted) if _is_needed(evidence, item)]
    return tuple(chosen or left[:1])


def _is_needed(evidence: Evidence, item: Framework) -> bool:
    """Tell whether anything needs a framework that computes on the CPU.

    PennyLane takes a JAX where there is one, and computes on the GPU without it.
    """
    if evidence.expected.alone:
        return True
    tops = {name.partition(".")[0] for name in evidence.uses.names}
    owners = evidence.installed.owners.get(item.module, ())
    return item.module in tops or any(owner.name in evidence.installed.reached for owner in owners)


def _is_installed(found: Static, item: Framework) -> bool:
    return any(
        lookup.matches(owner.name, item.dists) for owner in found.owners.get(item.module, ())
    )


def _is_asked_for(evidence: Evidence, item: Framework) -> bool:
    """Tell whether a direct requirement or Keras' own setting names a framework."""
    backend = evidence.installed.environment.get(KERAS_BACKEND)
    direct = evidence.expected.direct
    return backend == item.name or any(lookup.matches(name, item.dists) for name in direct)


def advise_on_keras(evidence: Evidence) -> str | None:
    """Say what Keras can be set to where its variable names a backend that is not in the image."""
    found = evidence.installed
    chosen = found.environment.get(KERAS_BACKEND)
    backends = [item for item in load_frameworks().framework if item.keras]
    possible = [item.name for item in backends if _is_installed(found, item)]
    if not chosen or chosen in possible or not possible:
        return None
    return (
        f'set {KERAS_BACKEND} = "{possible[0]}" in [run] environment: Keras is set to "{chosen}", '
        f"and the image has {possible[0]}"
    )


def computes_on_cpu(found: Static, item: Framework) -> bool:
    """Tell whether a framework is a build without CUDA, by its name, its files or its parts."""
    owners = found.owners.get(item.module, ())
    if owners and all(lookup.matches(owner.name, item.cpu) for owner in owners):
        return True
    if item.plugins:
        return not has_cuda_part(found, item)
    return found.builds.get(item.module) is not None and found.builds[item.module].is_cuda is False


def has_cuda_part(found: Static, item: Framework) -> bool:
    """Tell whether a framework has its plug-in, or a part with CUDA inside (jaxlib < 0.4.26)."""
    for dist in found.dists:
        if dist.shadowed:
            continue
        if lookup.matches(dist.name, item.plugins):
            return True
        if dist.name in item.parts and "+cuda" in dist.version:
            return True
    return False


def for_framework(evidence: Evidence, item: Framework) -> Evidence:
    """Return the same evidence with another framework in question."""
    expected = evidence.expected.for_framework(item)
    compute = evidence.computes.get(item.name)
    return replace(evidence, expected=expected, framework=item, compute=compute)


def join_verdicts(verdicts: list[Verdict]) -> Verdict:
    """Join what a check says about several frameworks: failures alone where there are any."""
    for outcome in ("failed", "passed"):
        same = [verdict for verdict in verdicts if verdict.outcome == outcome]
        if same:
            break
    else:
        return verdicts[0] if verdicts else skipped("there is no framework to look at")
    reasons = list(dict.fromkeys(verdict.reason for verdict in same))
    hints = list(dict.fromkeys(verdict.hint for verdict in same if verdict.hint))
    return replace(same[0], reason="; ".join(reasons), hint="\n".join(hints) or None)
