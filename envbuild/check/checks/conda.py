"""Checks of a conda environment: its packages and files, and libraries that exclude each other."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from envbuild.check.answers import CondaSurvey, FoundConda
from envbuild.check.checks.gpu.target import describe_target
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed
from envbuild.data.package_tables import load_conda
from envbuild.store.units import count_noun, listing

LINEAR_ALGEBRA = ("libblas", "libcblas", "liblapack", "liblapacke")
"""Packages that all stand for one implementation (conda-forge's blas-feedstock)."""
IMPLEMENTATION = re.compile(r"_(?:h[0-9a-f]+_)?(openblas|mkl|blis|netlib|(?:new)?accelerate)\Z")


def conda_packages(evidence: Evidence) -> Verdict:
    """Check whether the environment holds what the lock says, all files, and GPU builds."""
    found = given(evidence.conda)
    locked = evidence.expected.conda
    there = {package.name: f"{package.version} {package.build}" for package in found.packages}
    wrong = [
        f"{name} {there[name]} instead of {build}" if name in there else f"{name} missing"
        for name, build in locked.items()
        if there.get(name) != build
    ]
    if wrong:
        return failed(
            f"conda's packages are not what the lock says: {listing(wrong)}",
            "build the image again from its lock: envbuild make",
            wrong=wrong,
        )
    if found.lost:
        package, path = found.lost[0]
        return failed(
            f"files of conda packages are gone: {path} of {package}, {found.lost_count} in all",
            "something removed them after the installation ([system] post?); then: envbuild make",
            lost=found.lost,
        )
    for package, path, minor in found.other_python:
        return failed(
            f"{package} is for another Python than the environment's {minor}: {path}",
            f"ask for a build for it: python {minor}.* in [conda] dependencies, then envbuild lock",
            other_python=found.other_python,
        )
    return _refuse_cpu_builds(evidence, found) or passed(
        f"{count_noun(len(there), 'package')}, all files there", packages=len(there)
    )


def _refuse_cpu_builds(evidence: Evidence, found: CondaSurvey) -> Verdict | None:
    """Fail on a framework for the CPU beside CUDA's libraries, or for a node with a GPU."""
    table, expected = load_conda(), evidence.expected
    cuda = sorted(table.libraries.intersection(package.name for package in found.packages))
    # what is locked for the CPU is wanted so: lock refuses all else
    node = expected.target if expected.alone else None
    if expected.wants_cpu or not (cuda or node):
        return None
    why = f"though CUDA's libraries are there ({listing(cuda, 2)})"
    if node is not None and not cuda:
        why = f"and is to run on {describe_target(node)}"
    for package in found.packages:
        if package.name in table.frameworks and is_cpu_build(package):
            return failed(
                f"{package.name} {package.version} {package.build} is a build for the CPU, {why}",
                "lock again with a target: envbuild lock NAME --for SITE:PARTITION",
                package=package.name,
                build=package.build,
            )
    return None


def is_cpu_build(package: FoundConda) -> bool:
    """Tell whether build string or flags (CEP 45) say that a package is for the CPU."""
    if set(package.flags) & load_conda().flags:
        return False
    return "cpu" in package.flags or re.match(r"(.*_)?cpu(_|\Z)", package.build) is not None


def conda_owners(evidence: Evidence) -> Verdict:
    """Check whether pip and conda keep out of each other's files."""
    found, expected = given(evidence.conda), evidence.expected
    for both in found.overlaps:
        # what a base has done to itself is told of an image on its own
        ours = both.package in expected.conda or canonicalize_name(both.dist) in expected.wheels
        if not (ours or expected.alone):
            continue
        pip = f"{both.dist} {both.version}"
        files = f"{count_noun(both.files, 'file')}, for one {both.example}"
        owners = [f"pip's {pip}", f"conda's {both.package}"]
        above, below = owners if both.changed else reversed(owners)
        return failed(
            f"{above} was written over {below}: {files}",
            f"take one of them out of the recipe: [python] or [conda] {both.package}",
            overlaps=[item.package for item in found.overlaps],
        )
    return passed("no file has two owners")


def conda_libraries(evidence: Evidence) -> Verdict:
    """Check for libraries of which one process can only have one."""
    found = given(evidence.conda)
    if len(found.runtimes) > 1:
        return failed(
            f"two OpenMP libraries of one kind: {listing(found.runtimes, 3)}; "
            "a process that loads both ends with OMP: Error #15",
            "take one: of intel-openmp and llvm-openmp conda-forge uses the second; "
            "a wheel that brings its own may be there as a conda package too",
            runtimes=found.runtimes,
        )
    kinds = {
        package.name: kind[1]
        for package in found.packages
        if package.name in LINEAR_ALGEBRA and (kind := IMPLEMENTATION.search(package.build))
    }
    if len(set(kinds.values())) > 1:
        sources = listing([f"{name} of {kind}" for name, kind in sorted(kinds.items())])
        return failed(
            f"two implementations of BLAS and LAPACK: {sources}",
            'choose one in [conda] dependencies: "libblas * *openblas" or "libblas * *mkl"',
            implementations=kinds,
        )
    for folder, names in found.before.items():
        return failed(
            f"{listing(names, 3)} of {folder} is loaded in the place of conda's",
            "take the folder out of LD_LIBRARY_PATH ([run] environment, a module of the host, or "
            "the base's own); where it is not there, a library has lost its RPATH",
            before=found.before,
        )
    if found.missing:
        soname, path = found.missing[0]
        return failed(
            f"{path} needs {soname}, which is nowhere ({len(found.missing)} in all)",
            "a package that it requires was removed, or installed without what it requires",
            missing=found.missing,
        )
    system = f"; of the system: {listing(found.outside, 3)}" if found.outside else ""
    return passed(f"one OpenMP, one BLAS, nothing before them{system}", outside=found.outside)
