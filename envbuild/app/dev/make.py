"""Make a development layer: resolve over the image as base, pack what is new, write a squashfs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from msgspec import structs

from envbuild.app.dev.layer import (
    DevRecord,
    EditableFolder,
    MountedLayer,
    editable_binds,
    layer_files,
    read_own_record,
    read_record,
    record_path,
    require_name,
    write_record,
)
from envbuild.app.image import FoundImage, find_image, lock_inside
from envbuild.app.make import MakeRequest, make_locked
from envbuild.base.digests import known_digest, known_sha256
from envbuild.build.over_image import LayerSpec, write_layer
from envbuild.build.packages.editable import (
    EditableProject,
    has_modules,
    read_project,
    write_editable_wheel,
)
from envbuild.build.pinned_compressor import running_codec
from envbuild.context import Context
from envbuild.errors import HostError, UsageError
from envbuild.lock.decide.decide import decide_lock
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.model import Lock
from envbuild.lock.packer import packer_here
from envbuild.names import Paths, Texts
from envbuild.recipe.edit import requirement_name
from envbuild.recipe.find import LOCKS, RECIPES, recipe_files
from envbuild.recipe.model import AboutSection, BaseSection, PythonSection, Recipe, Source
from envbuild.recipe.trees import read_tree_line
from envbuild.records import frozen_record, replace
from envbuild.runtime import ExecOptions
from envbuild.store.atomic import commit_file, is_older, os_errors_as
from envbuild.store.gc import mark_used
from envbuild.store.hashing import hash_text
from envbuild.store.layout import DEV_RECORD
from envbuild.store.own_records import is_own

OLD_SECONDS = 8 * 86400
"""How long a layer that another one has replaced stays for the jobs that name it."""
TRIAL_SECONDS = 120.0


@frozen_record
class LayerContent:
    """What a layer is to hold: requirements as written, and the folders of editable projects."""

    packages: Texts = ()
    editable: Paths = ()


@frozen_record
class LayerPlace:
    """Which image a layer is for, and where its record is; ``over``: the image lies elsewhere."""

    found: FoundImage
    record: Path
    over: bool = False

    @property
    def name(self) -> str:
        """The name by which layer and image are called."""
        return self.record.name.removesuffix(DEV_RECORD)


@frozen_record
class LayerResult:
    """What was made: the record, where its file lies, and how long it took."""

    record: DevRecord
    path: Path
    seconds: float


def find_place(name: str, over: Path | None, context: Context) -> LayerPlace:
    """Return the place of a name's layer; ``over`` is an image that lies elsewhere and stays there.

    Raises UsageError for a name that something else has, and where there is no image.
    """
    folder = context.settings.cwd
    if over is None:
        found = find_image(name, context)
        if found.layer is None:
            stem = found.path.stem
            hint = f"by its name: envbuild add --dev {stem} …\n"
            hint += f"for an image elsewhere: envbuild add --dev {stem} --over {name} …"
            raise UsageError("a layer belongs to a name", where=name, hint=hint)
        require_name(found.path.stem)
        return LayerPlace(
            found=found, record=found.layer, over=found.path.parent.resolve() != folder.resolve()
        )
    if name in recipe_files(context.settings) or (folder / f"{name}.sif").exists():
        raise UsageError(
            f"--over gives an image elsewhere a name here, and {name} is taken",
            where=name,
            hint="take another name",
        )
    require_name(name)
    found = find_image(str(folder / over), context)
    found = replace(found, path=found.path.resolve())
    return LayerPlace(found=found, record=record_path(folder, name), over=True)


def add_to_layer(place: LayerPlace, content: LayerContent, context: Context) -> LayerResult:
    """Add packages and projects to the layer of an image, and make it again.

    What it holds already stays; without anything to add it is made for the image as it is now.
    Raises what resolving and packing raise; then the layer that was there is untouched.
    """
    started = time.monotonic()
    old = _take_record(place, context)
    whole = _join_content(old, content)
    if not (whole.packages or whole.editable):
        hint = f"envbuild add --dev {place.name} PKG"
        raise UsageError("which package? the layer is empty", hint=hint)
    plan = _plan_layer(place.found, whole, old.lock if old else None, context)
    for project in plan.projects:
        if not has_modules(project):
            nothing = f"there is no module in {project.root}, so nothing of it can be imported"
            context.report.say(f"note: -e {project.folder}: {nothing}")
    record = _publish_layer(plan, place, context)
    _remove_old_layers(place, record)
    path, seconds = place.record.with_name(record.layer), time.monotonic() - started
    return LayerResult(record=record, path=path, seconds=seconds)


def _take_record(place: LayerPlace, context: Context) -> DevRecord | None:
    """Return what the layer holds already; of a stranger's record its packages alone are taken."""
    record = read_record(place.record)
    if record is None or is_own(place.record.read_bytes(), context.store):
        return record
    folders = [one.folder for one in record.editable]
    if folders:
        left_out = f"not taken over from {place.record.name}: -e {', -e '.join(folders)}"
        context.report.say(left_out)
    return structs.replace(record, editable=())


def with_packages(found: FoundImage, packages: Texts, context: Context) -> FoundImage:
    """Return an image with a layer of packages for one run, kept in the store.

    What the image's development layer holds is in it too.
    """
    record = read_own_record(found.layer, context.store) if found.layer else None
    whole = _join_content(record, LayerContent(packages=packages))
    plan = _plan_layer(found, whole, record.lock if record else None, context)
    folder = context.store.folder("dev")
    with context.store.lock(f"dev-{plan.key}", context.report):
        made = (folder / f"{plan.key}{ending}" for ending in (".sqfs", ".sif"))
        kept = next((path for path in made if path.is_file()), None)
        kept = kept or _provide_file(plan, folder / plan.key, context)
    mark_used(kept)
    binds = editable_binds(plan.folders, plan.lock.name)
    return replace(found, mounted=MountedLayer(path=kept, binds=binds))


def _join_content(record: DevRecord | None, content: LayerContent) -> LayerContent:
    """Return what a layer holds with what is added: a line replaces that of the same package."""
    before = record.packages if record else ()
    names = {requirement_name(line) for line in content.packages}
    kept = [line for line in before if requirement_name(line) not in names]
    folders = [Path(one.folder) for one in record.editable] if record else []
    real = [folder.resolve() for folder in content.editable]
    return LayerContent(
        packages=tuple(dict.fromkeys((*kept, *content.packages))),
        editable=tuple(dict.fromkeys((*folders, *real))),
    )


@frozen_record
class _LayerPlan:
    """A layer that is resolved and not yet written; ``key`` is over all that decides it."""

    found: FoundImage
    source: Source
    content: LayerContent
    projects: tuple[EditableProject, ...]
    lock: Lock
    below: Lock | None
    digest: str
    key: str

    @property
    def folders(self) -> tuple[EditableFolder, ...]:
        return tuple(EditableFolder(name=one.name, folder=str(one.folder)) for one in self.projects)


def _plan_layer(
    found: FoundImage, content: LayerContent, before: Lock | None, context: Context
) -> _LayerPlan:
    """Resolve a layer over its image: the image is the base, and its framework is protected."""
    if found.path.is_dir():
        raise UsageError("a sandbox is changed in itself", where=found.path)
    projects = tuple(read_project(folder) for folder in content.editable)
    below = lock_inside(found.path)
    source = _layer_source(found, content, projects, below, context)
    old = before or below
    if old is not None:  # what packs is this machine's own: a layer is not to be made again
        old = structs.replace(old, packer=packer_here(), packers=(), name=old.name)
    today = datetime.now(timezone.utc).date()
    lock = decide_lock(source, LockOptions(old=old), context, today)
    digest = known_digest(found.path, context.store)
    codec = running_codec(lock.packer, context)
    inputs = [digest, codec.name, *(p.sha256 for p in lock.installed)]
    inputs += [_project_key(project) for project in projects]
    key = hash_text("\n".join(inputs))
    return _LayerPlan(
        found=found,
        source=source,
        content=content,
        projects=projects,
        lock=lock,
        below=below,
        digest=digest,
        key=key,
    )


def _project_key(project: EditableProject) -> str:
    # plain values: no name in the code is in the key
    texts = [project.name, project.version, str(project.folder), str(project.root)]
    return msgspec.json.encode([texts, project.requires, project.scripts]).decode()


def _layer_source(
    found: FoundImage,
    content: LayerContent,
    projects: Sequence[EditableProject],
    below: Lock | None,
    context: Context,
) -> Source:
    """Return the recipe of a layer: its base is the image, whose own requirements hold on."""
    own = found.source.recipe if found.source else None
    # what the image asks for and the layer does not replace, and what projects require
    asked = below.direct if below else ()
    replaced = {requirement_name(line) for line in content.packages}
    held = [line for line in asked if read_tree_line(line) is None]
    held = [line for line in held if requirement_name(line) not in replaced]
    for project in projects:
        held += [line for line in project.requires if "extra ==" not in line]
    dependencies = tuple(dict.fromkeys((*held, *content.packages)))
    indexes = own.python.indexes if own else ()
    as_of = (below.as_of or "none") if below else None
    python = PythonSection(dependencies=dependencies, indexes=indexes, as_of=as_of)
    base = BaseSection(image=str(found.path), cpu=own.base.cpu if own else False)
    name = found.path.stem
    recipe = Recipe(recipe=AboutSection(name=name), base=base, python=python)
    folder = context.settings.cwd
    path = found.source.path if found.source else folder / RECIPES / f"{name}.toml"
    return Source(recipe=recipe, path=path, text="", lock=folder / LOCKS / f"{name}.lock")


def _publish_layer(plan: _LayerPlan, place: LayerPlace, context: Context) -> DevRecord:
    """Write the layer, then its record: what was there stands until both are whole."""
    stem = place.record.with_name(f"{place.name}.dev-{plan.key[:12]}")
    path = _provide_file(plan, stem, context)
    record = DevRecord(
        image=plan.digest,
        layer=path.name,
        size=path.stat().st_size,
        sha256=known_sha256(path, context.store),
        lock=plan.lock,
        packages=plan.content.packages,
        editable=plan.folders,
        over=str(plan.found.path) if place.over else "",
    )
    write_record(record, place.record, context.store)
    return record


def _provide_file(plan: _LayerPlan, stem: Path, context: Context) -> Path:
    """Write the layer under a name without its ending, and return its path.

    Where this machine lays nothing over an image, it says so and makes a whole image instead.
    """
    target = stem.with_name(f"{stem.name}.sqfs")
    with context.store.beside(target) as partial:
        with context.store.work("editable") as work:
            spec = LayerSpec(
                image=plan.found.path,
                lock=plan.lock,
                below=plan.below,
                wheels=tuple(write_editable_wheel(project, work) for project in plan.projects),
                replaced=tuple(move.name for move in plan.lock.moved),
            )
            mark = write_layer(spec, partial, context)
        with os_errors_as(partial):
            partial.chmod(0o644)
        refusal = _why_not_seen(plan, partial, mark, context)
        if refusal is None:
            commit_file(partial, target, mode=0o644)
            return target
    context.report.say(f"nothing can be laid over an image here: {refusal}")
    if plan.projects:
        hint = "a machine with FUSE can: /dev/fuse and squashfuse"
        raise HostError("a project is not used from its folder here", where="-e", hint=hint)
    context.report.say("a whole image is made instead; recipe, lock and image stay as they are")
    return _make_whole(plan, stem.with_name(f"{stem.name}.sif"), context)


def _why_not_seen(plan: _LayerPlan, layer: Path, mark: str, context: Context) -> str | None:
    """Start the image with its layer; return why the layer is not there, None where it is.

    Raises what the image says where it does not start without a layer either.
    """
    runtime = replace(context.runtime, overlays=(layer,))
    test = f'import os, sys; sys.exit(not os.path.exists("{mark}"))'
    argv = (plan.lock.base.python_path, "-S", "-c", test)
    image, limit = plan.found.path, TRIAL_SECONDS
    tried = context.runner(
        runtime.exec_command(image, argv, ExecOptions(timeout=limit, network=False)), check=False
    )
    if tried.code == 0:
        return None
    bare = (plan.lock.base.python_path, "-S", "-c", "")
    context.runner(
        context.runtime.exec_command(image, bare, ExecOptions(timeout=limit, network=False))
    )
    return tried.last_lines(1)


def _make_whole(plan: _LayerPlan, target: Path, context: Context) -> Path:
    """Make an image with all that a layer would hold, from the image itself: that needs no root."""
    request = MakeRequest(output=target, check=False)
    return make_locked(plan.source, plan.lock, request, context).spec.target


def _remove_old_layers(place: LayerPlace, record: DevRecord) -> None:
    """Remove layers that others have replaced for so long that no job can still need them."""
    for path in layer_files(place.record.parent, place.name):
        if path.name != record.layer and is_older(path, OLD_SECONDS):
            path.unlink(missing_ok=True)
