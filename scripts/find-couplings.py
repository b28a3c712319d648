"""Find couplings between packages that metadata does not declare, by reading published wheels.

    python scripts/find-couplings.py [--releases 8] [--every] [--against torchvision] [PACKAGE ...]

Without names: every package of scripts/gpu-packages.toml.  Of each package the newest release of its last minor
versions is read, by ranges of the wheel where it is large, and compared with releases of what it needs: is the module
still there that it imports, the name that it looks up, the symbol that it links; which CUDA and cuDNN does it open;
which releases of torch do names of its files carry.  What metadata declares already is left out.  Prints rules in the
form of envbuild/data/companions.toml, each with its source, and as comments what could not be decided and which
packages have none.  Nothing of a package is run.  What was read is kept in the store, so that a second run is quick.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from couplingrules import (  # noqa: E402  beside this file
    BAD,
    DECLARED,
    FRAMEWORKS,
    GOOD,
    UNTOLD,
    Table,
    rules_of,
)
from wheelneeds import (  # noqa: E402  beside this file
    TORCH_SYMBOL,
    Need,
    bound_names,
    constants,
    file_of,
    imported_files,
    library_needs,
    module_of,
    modules_of,
    named_needs,
    python_needs,
    symbols,
)

from envbuild.errors import EnvbuildError  # noqa: E402
from envbuild.net.web import make_client  # noqa: E402
from envbuild.settings import load_settings  # noqa: E402
from tests.resolve.published import Opened, Published  # noqa: E402

LIBRARIES = (
    "pyarrow",
    "scipy",
    "huggingface-hub",
    "torchmetrics",
    "transformers",
    "pytorch-lightning",
    "flax",
    "pillow",
)
"""What is resolved with the package: it gives way to the package."""
MODULES = {
    "huggingface-hub": "huggingface_hub",
    "pytorch-lightning": "pytorch_lightning",
    "pillow": "PIL",
}
LARGEST_LIBRARY = 40_000_000
"""Compressed bytes of a shared object that is still read."""
FIRST = {
    "torch": "1.13",
    "tensorflow": "2.8",
    "jax": "0.4",
    "jaxlib": "0.4",
    "pillow": "8",
    "scipy": "1.7",
}
"""Releases of targets before these are not compared with: no Python of a base that is in use has wheels of them."""
TENSORFLOWS_KERAS = re.compile(r"tensorflow\.(?:compat\.v2\.)?keras\.(.+)")
TENSORFLOWS_API = "tensorflow._api.v2"
WITH_KERAS_3 = Version("2.16")
"""From this TensorFlow on, tf.keras is Keras 3."""
C10 = ("torch/lib/libc10.so", "torch/lib/libc10_cuda.so")
CUDNNS = ("8", "9")
SIMPLE: Mapping[str, Callable[[str, str], bool]] = {
    "cudnn": lambda wanted, other: wanted == other,
    "least": lambda wanted, other: Version(other) >= Version(wanted),
}
"""Kinds of needs that a version alone meets."""
EVERY_RELEASE = ("jax", "jaxlib")
"""Targets of which each release takes names away, not only minor versions."""
MOST_OTHERS = 50
"""Minor versions of a target that are compared with, from the newest back; transformers 5 has 25."""
WORKERS = 8


def main() -> None:
    """Read the packages and print the rules."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", nargs="*")
    parser.add_argument(
        "--releases",
        type=int,
        default=24,
        help="how many minor versions of each, from the newest back",
    )
    parser.add_argument(
        "--every", action="store_true", help="each release, not the newest of a minor version"
    )
    parser.add_argument("--against", action="append", help="only these targets")
    options = parser.parse_args()
    named = msgspec.toml.decode((ROOT / "scripts" / "gpu-packages.toml").read_text("utf-8"))[
        "packages"
    ]
    names = options.package or sorted({name for names in named.values() for name in names})
    settings = load_settings()
    with make_client(settings) as client:
        published = Published(settings, client)
        finder = Finder(published, options.releases, options.against, options.every)
        with ThreadPoolExecutor(WORKERS) as pool:
            # a large package may take minutes: the others are printed as they come
            for done in as_completed([pool.submit(finder.report, name) for name in names]):
                print(done.result(), end="", flush=True)


class Finder:
    """Compares packages with targets; what a target's releases hold is read once."""

    def __init__(
        self, published: Published, count: int, against: Sequence[str] | None, every: bool = False
    ) -> None:
        self.published, self.count, self.every = published, count, every
        self.targets = tuple(against or (*FRAMEWORKS, *LIBRARIES))
        self.builds: set[str] = set()
        self.modules = {MODULES.get(name, name): name for name in self.targets}

    def report(self, package: str) -> str:
        """Return the rules of a package, and as comments what could not be read."""
        try:
            releases = self.published.releases(package)
            releases = (releases if self.every else minor_releases(releases))[-self.count :]
            needs = {release: self.needs(package, release) for release in releases}
            rules = [rule for table in self.tables(package, needs) for rule in rules_of(table)]
        except (
            EnvbuildError,
            OSError,
            ValueError,
            KeyError,
            zipfile.BadZipFile,
            tarfile.TarError,
        ) as error:
            return f"# {package}: not read: {type(error).__name__} {error}\n"
        if not releases:
            return f"# {package}: no release for Linux on x86_64\n"
        return "".join(rules) or f"# {package}: {releases[0]} to {releases[-1]} read, no rule\n"

    def needs(self, package: str, release: Version) -> list[Need]:
        """Return what a release needs, from the store where it was read before."""
        modules = sorted(MODULES.get(name, name) for name in (*FRAMEWORKS, *LIBRARIES))
        kept = self.published.learn(
            package, release, "needs 2", lambda opened: read_needs(opened, modules)
        )
        return [Need(*one) for one in kept]

    def tables(self, package: str, needs: dict[Version, list[Need]]) -> Iterator[Table]:
        """Yield a table for each target that a need is not met by."""
        for target in (*self.targets, "cudnn"):
            if target == package:
                continue
            wanted = {
                release: [one for one in found if self.is_about(one, target)]
                for release, found in needs.items()
            }
            if not any(wanted.values()):
                continue
            exact = any(one.kind == "built" for found in wanted.values() for one in found)
            self.builds |= {package} if exact else set()
            others = self.others(target, exact=exact)
            table = Table(package, target, sorted(needs), others)
            for release, found in wanted.items():
                for other in others:
                    self.judge(table, release, other, found)
            if BAD in table.states.values():
                yield table

    def is_about(self, need: Need, target: str) -> bool:
        """Whether a target can meet a need, or not."""
        if need.kind in ("module", "attribute"):
            return self.modules.get(need.what.split(".")[0]) == target
        return {"built": "torch", "symbol": "torch", "cudnn": "cudnn", "least": "tensorflow"}.get(
            need.kind
        ) == target

    def others(self, target: str, *, exact: bool) -> list[str]:
        """Return the releases of a target that are compared with."""
        if target == "cudnn":
            return list(CUDNNS)
        releases = [
            one for one in self.published.releases(target) if one >= Version(FIRST.get(target, "0"))
        ]
        if exact or target in EVERY_RELEASE:
            return [str(one) for one in releases]
        return [str(one) for one in minor_releases(releases)[-MOST_OTHERS:]]

    def judge(self, table: Table, release: Version, other: str, needs: list[Need]) -> None:
        """Note whether two releases fit."""
        key = (release, other)
        if table.target != "cudnn" and not self.admits(table.package, release, table.target, other):
            table.states[key] = DECLARED
            return
        built = {need.what: need for need in needs if need.kind == "built"}
        if built and other not in built:
            table.states[key], table.needs[key] = BAD, built[max(built, key=Version)]
            return
        for need in needs:
            if need.kind not in ("built", "symbol" if built else "") and not self.meets(
                table.target, other, need
            ):
                table.states[key], table.needs[key] = BAD, need
                return
        table.states[key] = GOOD if built or not self.names_builds(table.package) else UNTOLD

    def names_builds(self, package: str) -> bool:
        """Whether files of the package's releases carry versions of torch: of one without, nothing is known."""
        return package in self.builds

    def admits(self, package: str, release: Version, target: str, other: str) -> bool:
        """Whether metadata of either admits the other one."""
        for text in self.published.requires(package, release):
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                continue
            plain = wanted.marker is None or "extra" not in str(wanted.marker)
            if (
                plain
                and canonicalize_name(wanted.name) == target
                and not wanted.specifier.contains(other)
            ):
                return False
        return True

    def meets(self, target: str, other: str, need: Need) -> bool:
        """Whether a release of a target has what is needed; what cannot be told counts as there."""
        if need.kind in SIMPLE:
            return SIMPLE[need.kind](need.what, other)
        version = Version(other)
        if need.kind == "symbol":
            return need.what in self.exported(version) or not self.is_torchs(need.what)
        what = need.what
        inner = TENSORFLOWS_KERAS.match(what)
        if inner is not None and target == "tensorflow" and version >= WITH_KERAS_3:
            # tf.keras is loaded late: its names stand in the Keras of that time
            target, version = "keras", self.keras_of(version)
            what = f"keras._tf_keras.keras.{inner[1]}"
        known = self.known_modules(target, version)
        if need.kind == "module":
            return what in known or _is_tensorflows(what, known)
        if target == "tensorflow":
            # what users call tensorflow.X stands in tensorflow._api.v2.X, a folder of other things beside it
            public = what.replace("tensorflow.", f"{TENSORFLOWS_API}.", 1)
            what = public if ".".join(public.split(".")[:4]) in known else what
        parts = what.split(".")
        module = next(
            (".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known),
            None,
        )
        if module in (None, what, "keras"):
            return True
        if module == "tensorflow":
            return parts[1] in self.tensorflows_names(version)
        return self.binds(target, version, module, parts[module.count(".") + 1])

    @functools.cache  # noqa: B019  a finder lives as long as the process
    def tensorflows_names(self, version: Version) -> frozenset[str]:
        """Return the words of tensorflow/__init__.py, which puts names in place that no statement binds."""

        def find(opened: Opened) -> list[str]:
            return sorted(set(re.findall(r"\w+", opened.text("tensorflow/__init__.py"))))

        return frozenset(self.published.learn("tensorflow", version, "words of the top", find))

    @functools.cache  # noqa: B019  the same
    def keras_of(self, tensorflow: Version) -> Version:
        """Return the Keras that was newest half a year after a release of TensorFlow."""
        day = dt.date.fromisoformat(self.published.uploaded("tensorflow", tensorflow))
        last = (day + dt.timedelta(days=180)).isoformat()
        releases = [one for one in self.published.releases("keras") if one >= Version("3.3")]
        return max(
            (one for one in releases if self.published.uploaded("keras", one) <= last),
            default=releases[0],
        )

    @functools.cache  # noqa: B019  the same
    def known_modules(self, target: str, version: Version) -> frozenset[str]:
        """Return the dotted names of a release's modules and folders."""
        names = self.published.learn(target, version, "names", lambda opened: opened.names())
        return frozenset(dotted for name in names for dotted in modules_of(name))

    def binds(self, target: str, version: Version, module: str, name: str) -> bool:
        """Whether a module of a release binds a name."""

        def find(opened: Opened) -> list[str] | None:
            def read(wanted: str) -> tuple[str, str] | None:
                path = file_of(wanted, set(opened.names()))
                return (path, opened.text(path)) if path else None

            names = bound_names(module, read)
            return None if names is None else sorted(names)

        names = self.published.learn(target, version, f"binds {module}", find)
        return names is None or name in names

    @functools.cache  # noqa: B019  the same
    def exported(self, version: Version) -> frozenset[str]:
        """Return the symbols that a torch release's base libraries define."""

        def find(opened: Opened) -> list[str]:
            return sorted(
                {
                    one
                    for path in C10
                    for one in symbols(opened.data(path), defined=True)
                    if "c10" in one
                }
            )

        return frozenset(self.published.learn("torch", version, "c10 symbols", find))

    def is_torchs(self, symbol: str) -> bool:
        """Whether any release of torch defines a symbol in its base libraries, so that its lack means something."""
        return any(
            symbol in self.exported(Version(other)) for other in self.others("torch", exact=False)
        )


def _is_tensorflows(module: str, known: Collection[str]) -> bool:
    """Whether a module is one that TensorFlow puts together when it is imported: no file has its name."""
    top, _, rest = module.partition(".")
    return top == "tensorflow" and (
        f"{TENSORFLOWS_API}.{rest}" in known or rest.startswith("keras")
    )


def read_needs(opened: Opened, modules: list[str]) -> list[tuple[str, str, str]]:
    """Return what an archive's files need, as plain tuples."""
    names = opened.names()
    found = set(named_needs(names))
    for top in top_packages(names):
        for path, tree in imported_files(top, names, opened.text).items():
            found |= set(python_needs(path, tree, modules))
            found |= set(constants(opened.text(path), path))
    for path in names:
        if ".so" in path and opened.sizes[path] <= LARGEST_LIBRARY:
            data = opened.data(path)
            found |= set(library_needs(path, data, names))
            wanted = {one for one in symbols(data, defined=False) if TORCH_SYMBOL.match(one)}
            found |= {Need("symbol", one, path) for one in wanted}
    return [(need.kind, need.what, need.where) for need in sorted(found)]


def top_packages(names: Iterable[str]) -> list[str]:
    """Return the packages that lie in no other one, tests and examples left out."""
    folders = sorted({name.rpartition("/")[0] for name in names if name.endswith("/__init__.py")})
    tops = [one for one in folders if not any(one.startswith(f"{other}/") for other in folders)]
    skipped = ("test", "example", "doc", "benchmark", "build")
    return [module_of(f"{top}/__init__.py") for top in tops if not top.startswith(skipped)]


def minor_releases(releases: Sequence[Version]) -> list[Version]:
    """Return the newest release of each minor version, in order."""
    return sorted({one.release[:2]: one for one in sorted(releases)}.values())


if __name__ == "__main__":
    main()
