"""The conda part of a lock: what [conda] asks for, and what it is to the Python part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.base.facts import is_version
from envbuild.base.gpu import conda_cuda
from envbuild.base.model import BaseFacts, Dist, InstalledConda
from envbuild.conda.limited import choose_limited, newest_limited
from envbuild.conda.model import CondaFound, CondaOptions, CondaRequest, CondaSolution
from envbuild.context import Context
from envbuild.data.package_tables import load_conda, load_conda_names
from envbuild.errors import IntegrityError, NoSolutionError, UsageError
from envbuild.lock.decide.base_description import BaseDescription
from envbuild.lock.decide.conda_base import (
    bounds_of_wheels,
    extended_facts,
    movable_packages,
    protected_names,
)
from envbuild.lock.model import CONDA_PREFIX, LINKER, CondaPackage, Lock
from envbuild.names import BY_MACHINE, BY_PLATFORM, DIRECT
from envbuild.recipe.conda import spec_name
from envbuild.recipe.model import Recipe
from envbuild.records import replace
from envbuild.resolve.model import Found
from envbuild.resolve.sources.pinned_wheel import pinned_wheel
from envbuild.store.units import minor_version
from envbuild.tools import installed_version


def refuse_conda(recipe: Recipe) -> None:
    """Raise UsageError for a [conda] that contradicts the rest of its recipe."""
    if not recipe.conda.dependencies:
        return
    if not recipe.conda.channels:
        raise UsageError(
            "[conda] dependencies need a channel to come from",
            where=recipe.name,
            hint='write channels = ["conda-forge"] below [conda]',
        )
    asked = [spec_name(line) for line in recipe.conda.dependencies]
    if recipe.base.framework is not None and "python" in asked:
        raise UsageError(
            "[base] framework is installed for the base's Python, and [conda] brings another",
            where=recipe.name,
            hint="name the framework in [conda] dependencies or [python] dependencies",
        )


def find_in_channels(recipe: Recipe, names: Sequence[str], context: Context) -> Mapping[str, str]:
    """Return the newest version of each name that a channel of the recipe has.

    Raises NetworkError for a channel that cannot be read.
    """
    request = CondaRequest(
        specs=(),
        channels=recipe.conda.channels,
        machine=BY_PLATFORM[recipe.base.platform].machine,
        glibc="0",
    )
    return newest_limited(request, names, context)


def require_channels(recipe: Recipe, context: Context) -> None:
    """Raise NetworkError where a channel cannot be read: before a base is made, which takes minutes."""
    if not recipe.conda.dependencies:
        return
    with context.report.stage("reach conda's channels"):
        find_in_channels(recipe, [spec_name(line) for line in recipe.conda.dependencies], context)


def with_conda(
    base: BaseDescription, recipe: Recipe, options: CondaOptions, context: Context
) -> tuple[BaseDescription, CondaSolution]:
    """Return the base with conda's Python in the place of its own, and conda's packages.

    A base that is conda itself is extended.  Raises NoSolutionError, NetworkError, UsageError.
    """
    prefix = base.facts.conda_prefix
    if prefix is not None and options.given and recipe.conda.dependencies:
        raise UsageError(
            f"the base is a conda environment ({prefix}), and --from gives a whole one",
            where=recipe.name,
            hint='take it on a base without conda: bootstrap = "debian:bookworm"',
        )
    solution = _solve_recipe(recipe, base.facts, options, context)
    if prefix is not None and solution.packages:
        brought = _conda_distributions(solution)
        facts = extended_facts(base.facts, solution, brought)
        if solution.python is not None and not facts.python:
            facts = structs.replace(facts, **_place_of_python(solution.python, prefix))
        protect = protected_names(base.facts, brought)
        return replace(base, facts=facts, own=base.facts, protect=protect), solution
    if solution.python is None:
        return base, solution
    facts = _python_facts(base.facts, solution, solution.python)
    protect = tuple(dist.name for dist in facts.dists)
    return replace(base, facts=facts, own=base.facts, protect=protect), solution


def find_linker(base: BaseDescription, recipe: Recipe, context: Context) -> tuple[Found, ...]:
    """Return the wheel that installs conda packages in a build from the definition.

    None where the base has no Python, or one too old for it; such a definition says so.
    """
    facts = base.own or base.facts
    if not (recipe.conda.dependencies and facts.python):
        return ()
    found = pinned_wheel(LINKER, installed_version(LINKER), facts, context)
    return () if found is None else (found,)


def put_conda(lock: Lock, recipe: Recipe, solution: CondaSolution) -> Lock:
    """Return the lock with its conda part; without one it stays as it is."""
    if not recipe.conda.dependencies:
        return lock
    return structs.replace(
        lock,
        channels=recipe.conda.channels,
        conda_direct=recipe.conda.dependencies,
        conda_virtual=solution.virtual,
        conda=locked_packages(
            solution,
            recipe.conda.dependencies,
            lock.base.python if lock.base.conda_prefix else None,
        ),
        tools={**lock.tools, LINKER: installed_version(LINKER)},
        notes=(*lock.notes, *solution.notes, *_replaced_notes(solution)),
    )


def _replaced_notes(solution: CondaSolution) -> Iterator[str]:
    versions = {package.name: package for package in solution.packages}
    for old in solution.replaced:
        new = versions[old.name]
        yield (
            f"{old.name} {old.version} {old.build} of the base makes room for {new.version} "
            f"{new.build}: what [conda] asks for needs it"
        )


def _solve_recipe(
    recipe: Recipe, facts: BaseFacts, options: CondaOptions, context: Context
) -> CondaSolution:
    """Return the conda packages of a recipe, none where it asks for none.

    Raises NoSolutionError, NetworkError, UsageError.
    """
    if not recipe.conda.dependencies:
        return CondaSolution()
    as_of = options.as_of or recipe.conda.as_of
    request = CondaRequest(
        specs=recipe.conda.dependencies,
        channels=recipe.conda.channels,
        machine=BY_MACHINE[facts.machine].machine,
        glibc=facts.glibc,
        target=options.target,
        cpu=recipe.base.cpu,
        as_of=None if as_of == "none" else as_of,
        keep=options.keep,
        given=options.given,
        installed=facts.conda,
        movable=movable_packages(facts),
        bounds=bounds_of_wheels(facts) if facts.conda_prefix else (),
    )
    when = f" as of {request.as_of}" if request.as_of else ""
    with context.report.stage(f"choose conda's packages{when}"):
        return choose_limited(request, context)


def _python_facts(facts: BaseFacts, solution: CondaSolution, python: str) -> BaseFacts:
    """Return the facts that Python packages are resolved against: conda's Python and packages."""
    return structs.replace(
        facts,
        **_place_of_python(python, CONDA_PREFIX),
        abi=None,
        externally_managed=False,
        dists=_conda_distributions(solution),
        constraints=None,
        framework=None,
        built_for={},
        cuda=conda_cuda({item.name: item.version for item in solution.packages}),
        cudnn=None,
        nccl=None,
        created=None,
    )


def _place_of_python(python: str, prefix: str) -> dict[str, Any]:
    """Return the facts of a Python that conda brings into a prefix."""
    minor = minor_version(python)
    return {
        "python": python,
        "python_path": f"{prefix}/bin/python{minor}",
        "prefix": prefix,
        "site": (f"{prefix}/lib/python{minor}/site-packages",),
        "off_path": False,
    }


def _conda_distributions(solution: CondaSolution) -> tuple[Dist, ...]:
    """Return the Python distributions that conda's packages bring, by their names on the index."""
    names = load_conda_names().distributions
    found: dict[str, Dist] = {}
    for package in solution.packages:
        is_python = package.noarch == "python" or {"python", "python_abi"} & set(package.requires)
        if package.name == "python" or not (is_python or package.name in names):
            continue
        for name in names.get(package.name, (package.name,)):
            canonical = canonicalize_name(name)
            # the package that has the name itself knows its version best
            if is_version(package.version) and (canonical not in found or package.name == name):
                found[canonical] = Dist(name=canonical, version=package.version, installer="conda")
    return tuple(found[name] for name in sorted(found))


def refuse_double_cuda(
    solution: CondaSolution, facts: BaseFacts, packages: Sequence[Found]
) -> None:
    """Raise NoSolutionError for nvidia-* wheels beside CUDA's libraries of conda."""
    there: tuple[CondaFound | InstalledConda, ...] = (*solution.packages, *facts.conda)
    held = [item for item in there if item.name in load_conda().libraries]
    if not held:
        return
    for found in packages:
        if found.name.startswith("nvidia-") and found.name != "nvidia-ml-py":
            asking = ", ".join(name for name in found.via if name != DIRECT) or "[python]"
            raise NoSolutionError(
                f"{asking} asks for the wheel {found.name} {found.version}, and conda brings "
                f"{held[0].name} {held[0].version}: two CUDA libraries of one name in one process",
                where="[python] dependencies",
                hint=f"take {asking} from conda too ([conda] dependencies), or all of CUDA from "
                "wheels",
            )


def _checked_package(**fields: Any) -> CondaPackage:
    """Return a row of a lock whose fields are what a reader of it takes."""
    package = CondaPackage(**fields)
    try:
        return msgspec.convert(msgspec.to_builtins(package), CondaPackage)
    except msgspec.ValidationError as error:
        raise IntegrityError(
            f"the channel {package.channel} describes it in a way that no lock may hold: {error}",
            where=ascii(package.file)[1:-1][:200],
        ) from error


AS_FOUND = (
    *("name", "version", "build", "subdir", "channel", "file"),
    *("size", "sha256", "md5", "noarch", "license"),
)
"""What a lock says of a package in the words of its channel."""


def locked_packages(
    solution: CondaSolution, direct: Sequence[str], held_python: str | None = None
) -> tuple[CondaPackage, ...]:
    """Return the rows of a lock; ``held_python`` is the version of a Python that the base has."""
    python = solution.python or held_python
    minor = minor_version(python) if python else None
    asked = {spec_name(line) for line in direct}
    via: dict[str, list[str]] = {}
    for item in solution.packages:
        for name in dict.fromkeys(item.requires):
            via.setdefault(name, []).append(item.name)
    rows = []
    for item in solution.packages:
        asking = sorted(via.get(item.name, ()))
        as_found = {name: getattr(item, name) for name in AS_FOUND}
        rows.append(
            _checked_package(
                **as_found,
                python=minor if item.noarch == "python" else None,
                via=tuple([DIRECT, *asking] if item.name in asked else asking),
            )
        )
    return tuple(rows)
