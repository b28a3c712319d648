"""Write down what was decided for a recipe as its lock."""

from __future__ import annotations

from typing import Any, Literal

from envbuild import __version__
from envbuild.base.gpu import framework_of_dists as gpu_framework
from envbuild.base.model import BaseFacts, facts_digest
from envbuild.lock.decide.base_description import BaseDescription, framework_packages
from envbuild.lock.digest import recipe_digest
from envbuild.lock.model import (
    SCHEMA,
    Lock,
    LockedBase,
    Packer,
    PackerFile,
    PythonPackage,
)
from envbuild.names import BY_MACHINE
from envbuild.recipe.model import Recipe, Source
from envbuild.resolve.model import Found, Resolution
from envbuild.resolve.uv.installer import INSTALLER
from envbuild.tools import installed_version


def assemble_lock(
    source: Source,
    base: BaseDescription,
    resolution: Resolution,
    installer: tuple[Found, ...],
    packing: tuple[Packer, tuple[PackerFile, ...]],
) -> Lock:
    """Write down as a lock what was decided.

    ``packing`` is the packer and the files it comes in.
    """
    recipe = source.recipe
    framework = framework_packages(base, resolution)
    own = {p.name for p in framework}
    # the last one wins: the installer is pinned, whatever else asks for uv
    build = {
        p.name: p
        for p in (*(base.framework.build if base.framework else ()), *resolution.build, *installer)
    }
    python = [_locked_package(p, "framework") for p in framework]
    python += [_locked_package(p, "project") for p in resolution.packages if p.name not in own]
    python += [_locked_package(p, "build") for p in build.values()]
    earlier = base.framework.notes if base.framework else ()
    python.sort(key=lambda package: (package.group, package.name))
    return Lock(
        schema=SCHEMA,
        name=recipe.name,
        # facts that the user gives may be of another platform than the recipe, and win
        platform=BY_MACHINE[base.facts.machine].platform,
        recipe_digest=recipe_digest(recipe),
        proof="not run",
        direct=recipe.python.dependencies,
        system=(*recipe.system.packages, *recipe.system.build_packages),
        as_of=resolution.as_of,
        base=_locked_base(recipe, base),
        tools={"envbuild": __version__, "uv": installed_version(INSTALLER)},
        packer=packing[0],
        packers=packing[1],
        notes=tuple(dict.fromkeys((*earlier, *resolution.notes))),
        debian=base.debian,
        python=tuple(python),
        # the framework's wheels are locked by file: what remains is the base's own
        provided=tuple(one for one in resolution.provided if one.name not in own),
        moved=resolution.moved,
        held_back=resolution.held_back,
    )


def _locked_base(recipe: Recipe, base: BaseDescription) -> LockedBase:
    facts = base.own or base.facts
    reference = recipe.base.image or recipe.base.bootstrap or ""
    framework = facts.framework or gpu_framework(facts.dists)
    of_image = _of_image(facts) if recipe.base.image is not None else {}
    return LockedBase(
        reference=reference,
        digest=base.digest,
        facts=facts_digest(facts),
        python=facts.python,
        machine=BY_MACHINE[facts.machine].machine,
        glibc=facts.glibc,
        created=facts.created or "1980-01-01",
        epoch=base.epoch,
        distro=facts.distro or "",
        framework=framework,
        cuda=facts.cuda,
        **of_image,
    )


def _of_image(facts: BaseFacts) -> dict[str, Any]:
    """Return what a build has to know of an image that a bootstrap always has the same."""
    path = {} if facts.python_path is None else {"python_path": facts.python_path}
    managed = {"externally_managed": facts.externally_managed, "size": facts.size or 0}
    conda = {"conda_prefix": facts.conda_prefix, "off_path": facts.off_path}
    return {**path, **managed, **conda}


def _locked_package(found: Found, group: Literal["framework", "project", "build"]) -> PythonPackage:
    return PythonPackage(
        name=found.name,
        version=found.version,
        group=group,
        file=found.file.file,
        size=found.file.size,
        sha256=found.file.sha256,
        index=found.file.index,
        via=found.via,
    )
