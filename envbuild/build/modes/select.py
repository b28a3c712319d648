"""Which way to build this machine can go.

What each needs, what is there, and what to do where none works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from envbuild.base.debian.bootstrap import WITHOUT_IDS, require_root_maker
from envbuild.build.fetch import locked_bootstrap
from envbuild.build.modes import MODES, ROWS
from envbuild.build.modes.perform import with_build_cage
from envbuild.context import Context
from envbuild.errors import HostError
from envbuild.host import Host, read_host, root_is_mapped, user_namespaces_work
from envbuild.lock.model import Lock
from envbuild.names import Pairs
from envbuild.recipe.model import Recipe
from envbuild.records import frozen_record
from envbuild.runtime_search import find_squashfuse, is_setuid
from envbuild.store.layout import Store
from envbuild.tools import find_tool

NO_IDS = "the user has no ids in /etc/subuid and /etc/subgid"
ROOT_ADVICE = (
    "build as an ordinary user; or give root ids that own nothing, for --mode flat:\n"
    "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 root (and util-linux 2.38 or newer);\n"
    "or trust that code with this machine: --as-root"
)
ELSEWHERE = (
    "build where it works and copy the .sif here: envbuild make --on SITE, or envbuild def on another machine;\n"
    "envbuild doctor shows what is missing, and how root can repair it"
)


@frozen_record
class Trust:
    """Whose code a recipe brings.

    ``origin`` is "" for one's own, else what it comes from ("a shelf", "a bundle"). ``as_root``
    tells that root lets it run with root's own rights.
    """

    origin: str = ""
    as_root: bool = False


OWN = Trust()
PROGRAMS = ("mmdebstrap", "mksquashfs", "fuse-overlayfs")
"""What some ways to build need beside the runtime.

Only starting mmdebstrap for its version takes 0.1 s.
"""


class _MissingPrograms(Mapping[str, str]):
    """Programs of PROGRAMS that cannot be used, and why.

    Each is looked for once somebody asks for it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            self._known[name] = self._look_for(name)
        if not self._known[name]:
            raise KeyError(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in PROGRAMS if self.get(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _look_for(self, name: str) -> str:
        try:
            if name == "mmdebstrap":
                require_root_maker(self._context)
            else:
                find_tool(name, self._context.settings, self._context.runner)
        except HostError as error:
            return error.what
        return ""


@frozen_record
class HostCapabilities:
    """What the ways to build find on this machine.

    ``containers`` is None where they start, else why not; ``ids`` says that the user has a range
    of ids for a root of his own; ``root`` that this is root, with or without all capabilities,
    ``mapped`` that it is an ordinary user who made a namespace to be root in, and ``caged`` that
    builds from a definition, and root's containers, have ids that own nothing; ``fuse`` that
    /dev/fuse can be opened; ``layers``
    is None where images of layers can be run, else why not; ``missing`` maps programs to why they
    cannot be used.
    """

    containers: str | None = None
    layers: str | None = None
    ids: bool = True
    root: bool = False
    mapped: bool = False
    caged: bool = False
    fuse: bool = True
    missing: Mapping[str, str]


@frozen_record
class ModeChoice:
    """The way that was chosen, and why those before it were not: (mode, obstacle)."""

    mode: str
    passed_over: Pairs = ()

    def __str__(self) -> str:
        """Say it in one line."""
        text = f"mode {self.mode}: {MODES[self.mode].auto_reason}"
        return text + "".join(f"; not {mode}, for {why}" for mode, why in self.passed_over)


def read_capabilities(context: Context, host: Host | None = None) -> HostCapabilities:
    """Look at this machine; starts a user namespace that ends at once.

    Raises HostError without a runtime.
    """
    facts = host or read_host()
    # root without its capabilities (in a container) mounts nothing by itself
    whole_root = facts.uid == 0 and not facts.crippled_root
    containers = layers = None
    runner, runtime = context.runner, context.runtime
    by_kernel = whole_root or (facts.uid != 0 and is_setuid(runtime, runner))
    if not by_kernel:
        if user_namespaces_work(runner) is False:
            containers = f"user namespaces are off, and {runtime.name} is not setuid"
        if not facts.fuse:
            layers = "/dev/fuse cannot be opened"
        elif find_squashfuse(runtime) is None:
            layers = "squashfuse was not found"
    return HostCapabilities(
        containers=containers,
        layers=layers,
        ids=not facts.missing_ids,
        root=facts.uid == 0,
        mapped=root_is_mapped(),
        caged=with_build_cage(runtime, runner).build_cage is not None,
        fuse=facts.fuse,
        missing=_MissingPrograms(context),
    )


@frozen_record
class ModeSearch:
    """What decides how an image can be made: recipe, lock, this machine, and whose code it is.

    ``roots`` are the modes whose Debian root the store has already.
    """

    recipe: Recipe
    lock: Lock
    host: HostCapabilities
    roots: Collection[str] = ()
    trust: Trust = OWN

    def select(self) -> ModeChoice:
        """Return the first way that recipe and machine allow.

        Raises HostError with every obstacle, and what to do, where no way is left.
        """
        passed: list[tuple[str, str]] = []
        for mode in (row.name for row in ROWS if row.auto_reason):
            why = self.blocker(mode)
            if why is None:
                return ModeChoice(mode=mode, passed_over=tuple(passed))
            passed.append((mode, why))
        reasons = "".join(f"\n  {mode}: {why}" for mode, why in passed)
        what = f"{self.recipe.name} cannot be built on this machine:{reasons}"
        raise HostError(what, hint=_give_advice(self.host, passed))

    def require(self, mode: str) -> None:
        """Raise HostError where the mode that somebody asked for does not work on this machine."""
        why = self.blocker(mode)
        if why is not None:
            what = f"{self.recipe.name} cannot be built with --mode {mode} on this machine: {why}"
            advice = _give_advice(self.host, [(mode, why)])
            hint = f"leave --mode out for a way that works here, or:\n{advice}"
            raise HostError(what, hint=hint)

    def require_trust(self) -> None:
        """Raise HostError where even a check of the image would run foreign code on this machine."""
        why = self.exposure("flat")
        if why is not None:
            what = f"{self.recipe.name} cannot be used on this machine: {why}"
            raise HostError(what, hint=ROOT_ADVICE)

    def blocker(self, mode: str) -> str | None:
        """Return what stands in the way of a mode, None where nothing does."""
        return self.exposure(mode) or next(self._blockers(mode), None)

    def exposure(self, mode: str) -> str | None:
        """Return what foreign code could reach in a mode without leave (docs/security.md)."""
        host, origin = self.host, self.trust.origin
        source = any(package.is_sdist and package.source is None for package in self.lock.python)
        if not (origin or source) or MODES[mode].by_engine:
            return None
        brought = f"what it brings from {origin}" if origin else "the build of its source packages"
        caged = host.caged and not MODES[mode].is_tree
        if host.root and not host.mapped:
            if self.trust.as_root or caged:
                return None
            return (
                f"{brought} would run with root's own rights, and could do anything to this machine"
            )
        if origin and MODES[mode].needs_ids and not (caged and not host.mapped):
            return f"{brought} could reach your home folder in this mode"
        return None

    def _blockers(self, mode: str) -> Iterator[str]:
        host, root_is_made = self.host, mode in self.roots
        if host.containers is not None:
            yield host.containers
        if self.recipe.base.bootstrap is not None:
            may = host.root or host.ids
            if not root_is_made and "mmdebstrap" in host.missing:
                yield host.missing["mmdebstrap"]
            if not root_is_made and not may:
                yield f"{NO_IDS} to make a Debian root with"
            if MODES[mode].needs_ids and not may:
                yield f"{NO_IDS} to unpack a Debian root with"
        if MODES[mode].is_assembled and self._runs_inside:
            yield from _blockers_inside(host)
        if MODES[mode].is_layered and host.layers is not None:
            yield f"{host.layers}, and an image of layers cannot be run without"
        if MODES[mode].needs_mksquashfs and "mksquashfs" in host.missing:
            yield host.missing["mksquashfs"]

    @property
    def _runs_inside(self) -> bool:
        """Whether putting the image together runs something as root in it: shell, or Debian's scripts."""
        over_image = not self.lock.is_bootstrap and bool(self.lock.system_packages)
        return bool(self.recipe.system.post) or over_image


def cached_roots(lock: Lock, store: Store) -> frozenset[str]:
    """Return the modes whose Debian root the store has.

    ``flat`` has the recipe's own packages in it.
    """
    return frozenset(
        mode.name
        for mode in ROWS
        if store.base(locked_bootstrap(lock, mode.root_groups).digest).exists()
    )


def _blockers_inside(host: HostCapabilities) -> Iterator[str]:
    if not (host.root or host.ids):
        yield f"{NO_IDS} to run Debian packages' scripts and [system] post with"
    if not host.fuse:
        yield "/dev/fuse cannot be opened, and Debian packages' scripts and [system] post need it"
    if "fuse-overlayfs" in host.missing:
        yield host.missing["fuse-overlayfs"]


def _give_advice(host: HostCapabilities, passed: list[tuple[str, str]]) -> str:
    if any("root's own rights" in why for _, why in passed):
        return ROOT_ADVICE
    if host.containers is None and any("subuid" in why for _, why in passed):
        by_root = "root can give the user ids: envbuild doctor names the two lines"
        return f"{by_root};\n{WITHOUT_IDS};\n{ELSEWHERE}"
    return ELSEWHERE
