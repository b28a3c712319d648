"""Virtual packages: what conda's packages may rely on, from base and target, never from here."""

from __future__ import annotations

from envbuild.conda.model import CondaRequest, GpuTarget
from envbuild.data.lookup import cuda_of_driver, numbers
from envbuild.data.tables import load_cuda
from envbuild.names import Numbers, Pairs
from envbuild.store.units import join_numbers

LINUX = "4.18"
"""The kernel of the oldest nodes that are served (RHEL 8)."""


def virtual_packages(request: CondaRequest) -> tuple[tuple[str, str, str], ...]:
    """Return name, version and build of every virtual package (CEP 30; CEP 46: __cuda_arch).

    ``__archspec`` is the machine's plain architecture: nodes differ, and the image runs on all.
    """
    found = [
        ("__unix", "0", "0"),
        ("__linux", LINUX, "0"),
        ("__glibc", request.glibc, "0"),
        ("__archspec", "1", request.machine),
    ]
    cuda = cuda_of_target(request.target)
    if cuda is not None and not request.cpu:
        found.append(("__cuda", cuda, "0"))
        if request.target.capabilities:
            capability = min(request.target.capabilities)
            found.append(("__cuda_arch", f"{capability // 10}.{capability % 10}", "0"))
    return tuple(found)


def cuda_of_target(target: GpuTarget) -> str | None:
    """Return the CUDA version that a target's driver came with; None where no driver is named."""
    return cuda_of_driver(_whole_driver(target.driver)) if target.driver else None


def toolkit_ranges(target: GpuTarget) -> Pairs:
    """Return what CUDA toolkits run on all cards of a target, as ranges [from, below), best first.

    Newest major version first; of each first what the driver came with or after, which runs
    portable code too, then all that minor version compatibility allows (NVIDIA, CUDA compatibility
    guide).  Empty where the driver is not told, or older than a card.
    """
    cuda = cuda_of_target(target)
    if cuda is None or driver_too_old(target):
        return ()
    driver = numbers(_whole_driver(target.driver or ""))
    major, minor, *_ = numbers(cuda)
    found: list[tuple[Numbers, Numbers]] = []
    for family, oldest in load_cuda().families.items():
        if driver < numbers(oldest):
            continue
        since, until = _toolkits_of_cards(target.capabilities, int(family))
        found.append((since, until))
        if major == int(family):
            found.append((since, min((major, minor + 1), until)))
    fitting = [(since, until) for since, until in dict.fromkeys(found) if since < until]
    return tuple((join_numbers(since), join_numbers(until)) for since, until in reversed(fitting))


def driver_too_old(target: GpuTarget) -> str | None:
    """Return the driver that a card of the target needs and does not have; None where it has."""
    driver = numbers(_whole_driver(target.driver or ""))
    for row in load_cuda().gpu:
        needed = load_cuda().drivers.get(row.since or "")
        if row.capability in target.capabilities and needed and driver < numbers(needed):
            return needed
    return None


def _toolkits_of_cards(capabilities: Numbers, major: int) -> tuple[Numbers, Numbers]:
    """Return the first toolkit of a family that compiles for all cards, and the first after it."""
    rows = [row for row in load_cuda().gpu if row.capability in capabilities]
    sinces = [numbers(row.since) for row in rows if row.since]
    untils = [numbers(row.until) for row in rows if row.until]
    return max([(major, 0), *sinces]), min([(major + 1, 0), *untils])


def _whole_driver(driver: str) -> str:
    """Return a driver's version; a branch alone ("550") stands for the last of its branch."""
    return driver if "." in driver else f"{driver}.999"
