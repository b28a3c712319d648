"""A lock in others' forms: PEP 751's pylock.toml, pip's requirements with hashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envbuild import __version__
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock, PythonPackage
from envbuild.store.units import minor_version
from envbuild.toml import write_pairs, write_value


def requirements_text(lock: Lock, indexes: Mapping[str, str]) -> str:
    """Return requirements for ``pip install --require-hashes``; ``indexes`` has URLs by name.

    The default index is the reader's own.  Only sdists are not fully held: pip takes what builds
    them by itself.
    """
    lines = [
        *_about_lines(lock),
        "# pip install --require-hashes --no-deps --requirement THIS-FILE",
    ]
    lines += [f"--extra-index-url {indexes[name]}" for name in sorted(indexes)]
    for p in sorted(lock.installed, key=lambda package: package.name):
        lines.append(f"{p.name}=={p.version} --hash=sha256:{p.sha256}")
    return "\n".join(lines) + "\n"


def pylock_text(lock: Lock, located: Mapping[str, str]) -> str:
    """Return a ``pylock.toml`` (PEP 751); ``located`` has each file's address by sha256."""
    # a lock is for one Python and one machine: PEP 751 says so by environments and requires-python
    minor = minor_version(lock.python_version)
    machine = write_value(
        [f"sys_platform == 'linux' and platform_machine == '{lock.base.machine}'"]
    )
    packages = sorted(lock.installed, key=lambda package: package.name)
    blocks = [
        *(f"{line}\n" for line in _about_lines(lock)),
        'lock-version = "1.0"\n',
        f"environments = {machine}\n",
        f'requires-python = "=={minor}.*"\n',
        'created-by = "envbuild"\n',
        *(_package_entry(package, located[package.sha256]) for package in packages),
    ]
    return "".join(blocks)


def _package_entry(package: PythonPackage, url: str) -> str:
    pairs = {
        "name": package.file,
        "url": url,
        "size": package.size,
        "hashes": {"sha256": package.sha256},
    }
    file = write_value(pairs)
    kind = f"sdist = {file}" if package.is_sdist else f"wheels = [{file}]"
    about = write_pairs({"name": package.name, "version": package.version})
    return "\n".join(("", "[[packages]]", *about, kind, ""))


def _about_lines(lock: Lock) -> Iterable[str]:
    base = lock.base
    yield f"# {lock.name}: written by envbuild {__version__} from lock {lock_digest(lock)}."
    held = (
        "framework and packages" if lock.is_bootstrap else "what is installed over its own packages"
    )
    yield f"# For {base.reference}, {lock.python_title}, {lock.platform}: {held}."
