"""A base of a few files, a store that holds all of a lock, and a runtime that needs no container.

So making, verifying, flattening and rebuilding an image run in a second, on a machine that has none of the tools.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from envbuild.app.spec import build_spec
from envbuild.base.facts import keep_facts
from envbuild.base.model import BaseFacts, DebianPackage
from envbuild.build.fetch import locked_bootstrap
from envbuild.build.model import BuildSpec
from envbuild.context import Context
from envbuild.formats.block_library import library_here
from envbuild.lock.digest import recipe_digest
from envbuild.lock.model import Lock, LockedBase, Packer, PythonPackage
from envbuild.lock.write import write_lock
from envbuild.progress import Silent
from envbuild.recipe.find import find_recipe
from envbuild.run import Command, LocalRunner
from envbuild.runtime import ExecOptions
from envbuild.settings import load_settings
from envbuild.store.layout import Store
from envbuild.store.sealed import commit_sealed
from tests.base.ociimages import digest_of, image_of, tar_of
from tests.build.test_build_from_wheel import make_wheel
from tests.check.tree import BASE_PYTHON

ENVIRONMENT = {"PATH": "/nowhere"}
"""No tool can be found."""
EPOCH = 1_700_000_000
NO_DIGEST = "sha256:" + "0" * 64
Kind = Literal["bootstrap", "image"]
BASES = {
    "bootstrap": 'bootstrap = "debian:bookworm"',
    "image": 'image = "docker://lab.invalid/a:1"',
}
ROOT = {
    "bin": None,
    "etc/passwd": "root:x:0:0::/root:/bin/sh\n",
    "usr/bin/python3": "a program",
    "usr/share/doc/copyright": "free\n" * 1000,
    "var/log/dpkg.log": "when it was made",
}
WHEELS: dict[str, dict[str, bytes]] = {
    "alpha": {"alpha/__init__.py": b"one = 1\n", "alpha/data.bin": bytes(300_000)},
    "beta": {"beta.py": b"two = 2\n", "broken.py": b"def ("},
}


class HostRuntime:
    """Plays the container runtime for scripts of envbuild's own: this machine's Python runs them.

    What the run would see below /mnt lies where the binds come from, and the paths in its orders are changed to that.
    """

    name, cage, offline = "apptainer", None, True
    version_text = "1.4.5"
    program = Path("/nowhere/bin/apptainer")

    def __init__(self) -> None:
        self.environment: dict[str, str] = {"PATH": "/usr/bin:/bin"}
        self.version: tuple[int, ...] = (1, 4, 5)
        self.scripts: list[str] = []
        """Which scripts ran, in order."""

    def exec_command(
        self, image: Path, argv: tuple[str, ...], options: ExecOptions | None = None
    ) -> Command:
        assert image.is_file()
        options = options or ExecOptions()
        # the longest first: /mnt/in lies below /mnt
        places = sorted(((target, source) for source, target, _ in options.binds), reverse=True)

        def moved(text: str) -> str:
            for target, source in places:
                text = text.replace(f"{target}/", f"{source}/")
            return text

        given = dict(places)["/mnt/in"]
        for order in given.glob("*.json"):
            order.write_text(moved(order.read_text()))
        self.scripts.append(Path(argv[3]).name)
        words = (str(BASE_PYTHON), *(moved(word) for word in argv[1:]))
        return Command(argv=words, env={**self.environment, **options.env}, timeout=options.timeout)


@dataclass(frozen=True, kw_only=True)
class TinyContext(Context):
    """A context whose runtime is played."""

    played: HostRuntime

    @cached_property
    def runtime(self) -> Any:
        return self.played


class TinyProject:
    """A folder with a recipe, its lock and a store that holds every file which the lock names."""

    def __init__(self, folder: Path, kind: Kind = "bootstrap") -> None:
        self.folder, self.kind = folder, kind
        settings = load_settings({**ENVIRONMENT, "HOME": str(folder)}, folder)
        self.store = Store(settings.store)
        self.runtime = HostRuntime()
        self.context = TinyContext(
            settings=settings,
            runner=LocalRunner(),
            store=self.store,
            report=Silent(),
            played=self.runtime,
        )
        (folder / "recipes").mkdir(parents=True)
        names = ", ".join(f'"{name}"' for name in WHEELS)
        (folder / "recipes/tiny.toml").write_text(
            f'[recipe]\nname = "tiny"\n[base]\n{BASES[kind]}\n'
            f"[python]\ndependencies = [{names}]\n[check]\nimports = []\n"
        )
        self.source = find_recipe("tiny", settings)
        self.lock = self._locked()
        self.source.lock.parent.mkdir(exist_ok=True)
        self.source.lock.write_text(write_lock(self.lock))

    def spec(self, mode: str = "flat", lock: Lock | None = None) -> BuildSpec:
        target = self.folder / f"{mode}.sif"
        return build_spec(self.source, lock or self.lock, target, mode, self.context)

    def keep(self, data: bytes) -> tuple[str, int]:
        """Put a file into the store under its sha256."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.store.artifact(sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return sha256, len(data)

    def wheel(self, name: str, files: dict[str, bytes], version: str = "1.0") -> PythonPackage:
        path = make_wheel(self.folder / "wheel", files, name=name, version=version)
        sha256, size = self.keep(path.read_bytes())
        file = f"{name}-{version}-py3-none-any.whl"
        return PythonPackage(
            name=name, version=version, group="project", file=file, size=size, sha256=sha256
        )

    def _locked(self) -> Lock:
        version = ".".join(BASE_PYTHON.resolve().name.removeprefix("python").split(".")[:2])
        base = LockedBase(
            reference="debian:bookworm",
            digest=NO_DIGEST,
            facts=NO_DIGEST,
            python=f"{version}.1",
            machine="x86_64",
            glibc="2.36",
            created="2023-11-14",
            epoch=EPOCH,
        )
        lock = Lock(
            schema=1,
            name="tiny",
            platform="linux/amd64",
            recipe_digest=recipe_digest(self.source.recipe),
            proof="not run",
            direct=tuple(WHEELS),
            base=base,
            packer=Packer(
                name="envbuild", version="1", compressor="zstd", level=1, library=library_here()
            ),
            python=tuple(self.wheel(name, files) for name, files in WHEELS.items()),
        )
        return self._with_image(lock) if self.kind == "image" else self._with_root(lock)

    def _with_root(self, lock: Lock) -> Lock:
        """Lock one Debian package, and keep the root that would be made of it."""
        sha256, size = self.keep(b"a package")
        package = DebianPackage(
            name="base-files",
            version="12",
            architecture="amd64",
            group="base",
            path="pool/main/b/base-files/base-files_12_amd64.deb",
            size=size,
            sha256=sha256,
        )
        lock = msgspec.structs.replace(lock, debian=(package,))
        digest = locked_bootstrap(lock).digest
        root = self.folder / "root.tar"
        root.write_bytes(tar_of(ROOT, time=EPOCH))
        self.store.base(digest).parent.mkdir(parents=True, exist_ok=True)
        commit_sealed(root, self.store.base(digest))
        facts = BaseFacts(
            image="debian:bookworm", python=lock.base.python, machine="x86_64", glibc="2.36"
        )
        keep_facts(facts, digest, self.store)
        return msgspec.structs.replace(lock, base=msgspec.structs.replace(lock.base, digest=digest))

    def _with_image(self, lock: Lock) -> Lock:
        """Lock an image of two layers, and keep them as if they had been pulled."""
        upper = tar_of({"etc/passwd": "another\n", "usr/share/.wh.doc": ""}, time=EPOCH)
        image = image_of(tar_of(ROOT, time=EPOCH), upper, env=("PATH=/usr/bin", "LAB=yes"))
        for blob in (image.manifest, *image.blobs.values()):
            self.keep(blob)
        base = msgspec.structs.replace(
            lock.base, reference="docker://lab.invalid/a:1", digest=digest_of(image.manifest)
        )
        return msgspec.structs.replace(lock, base=base)
