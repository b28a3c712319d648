"""Resolve real requirement lists against real bases with envbuild, uv, pip-compile and pip: seconds, and who survives.

    python benchmarks/resolve.py [--box 90] [--rounds 5] [--cases FOLDER] [CASE ...]

A case is CASE.json (a facts file) and CASE.in (requirements), by default those of tests/resolve/cases.  Cold: every
cache and the store are empty.  Warm: the median of some rounds after that.  uv alone gets the same requirements,
Python and platform, and knows nothing of the base; pip runs on a Python of the base's version that believes the base's
packages to be installed, so that it may keep them.  What takes longer than the time box is told as such.  Pythons are
looked for on PATH and under PYENV_ROOT; a tool without one is left out.  "pages kept" is uv with envbuild's setting for
the index, under which pages count for ten minutes: a mirror without validators is else asked for every page again.
envbuild keeps an answer for as long; "put anew" is the undated question with pages kept and the answer forgotten.
Prints tables for docs/performance.md, and JSON last.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.base.facts import load_facts
from envbuild.base.model import BaseFacts
from envbuild.context import open_context
from envbuild.net.fetch import ask_sizes
from envbuild.net.index import index_url
from envbuild.net.web import make_client
from envbuild.progress import Silent
from envbuild.resolve.couplings import protected_names
from envbuild.resolve.platform import python_minor, uv_platform
from envbuild.resolve.uv.query import CACHE_CONTROL
from envbuild.run import Command, LocalRunner, Result
from envbuild.settings import load_settings
from envbuild.tools import uv_program

sys.path.insert(0, str(Path(__file__).resolve().parent))
from resolve_tables import seconds_table, survival_table

CASES = Path(__file__).resolve().parent.parent / "tests" / "resolve" / "cases"
RUN = LocalRunner()
SETTINGS = load_settings()
UV = uv_program(SETTINGS)
INDEX = index_url(open_context(SETTINGS, RUN, Silent()))
GPU = re.compile(
    r"nvidia-(?!ml-py).*|cuda-.*|torch|triton|tensorflow(-gpu|-cpu)?|jaxlib|cupy(-cuda.*)?|jax-cuda.*"
)
PIP_TOOLS = {(3, 6): "pip-tools==6.4.0", (3, 7): "pip-tools==6.14.0"}


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*")
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument(
        "--box", type=float, default=90.0, help="seconds after which a tool is stopped"
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    names = options.case or sorted(path.stem for path in options.cases.glob("*.in"))
    rows = {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
            case = Case(options.cases / name, Path(folder), box=options.box, rounds=options.rounds)
            rows[name] = case.measure()
        print(f"{name}: {rows[name]['seconds']}", file=sys.stderr)
    print(seconds_table(rows), survival_table(rows), json.dumps(rows, indent=1), sep="\n\n")


class Case:
    """One case with caches of its own under ``folder``."""

    def __init__(self, stem: Path, folder: Path, *, box: float, rounds: int) -> None:
        self.facts: BaseFacts = load_facts(stem.with_suffix(".json"))
        self.facts_path = stem.with_suffix(".json").resolve()
        self.wanted = stem.with_suffix(".in").read_text("utf-8").split()
        self.folder, self.box, self.rounds = folder, box, rounds
        self.held: dict[str, str] = {canonicalize_name(d.name): d.version for d in self.facts.dists}
        self.hard = protected_names(self.facts)
        (folder / "requirements.in").write_text("\n".join(self.wanted) + "\n", "utf-8")
        recipe = f'[recipe]\nname = "case"\n[base]\nimage = "{self.facts.image}"\n'
        (folder / "case.toml").write_text(
            f"{recipe}[python]\ndependencies = {json.dumps(self.wanted)}\n", "utf-8"
        )

    def measure(self) -> dict[str, Any]:
        """Return seconds and what each tool would do to the base."""
        ways: dict[str, tuple[Callable[[], Result], Callable[[], dict[str, Any]]]] = {
            "envbuild": (self.envbuild, self.of_envbuild),
            "envbuild, undated": (lambda: self.envbuild("--as-of", "none"), self.of_envbuild),
            "envbuild, put anew": (self.put_anew, self.of_envbuild),
            "uv alone": (self.uv, self.of_uv),
            "uv, pages kept": (lambda: self.uv("--config-file", "kept.toml"), self.of_uv),
        }
        python = self.python_with("pip", PIP_TOOLS.get(python_minor(self.facts), "pip-tools"))
        if python is not None:
            ways["pip-compile"] = (lambda: self.pip_compile(python), dict)
            ways["pip"] = (lambda: self.pip(python), self.of_pip)
        seconds, outcome = {}, {}
        for name, (run, read) in ways.items():
            seconds[name], last = self.timed(run)
            outcome[name] = read() if last.code == 0 else {"error": told(last)}
        return {
            "seconds": seconds,
            "outcome": outcome,
            "wanted": self.wanted,
            "base": self.facts.image,
        }

    def timed(self, run: Callable[[], Result]) -> tuple[dict[str, float | str], Result]:
        """Return cold and warm seconds, and the last result; what ran into the box is not run again."""
        first = run()
        if first.timed_out:
            return {"cold": f"> {self.box:.0f}", "warm": "-"}, first
        if first.code and not re.search("no solution", first.stderr, re.IGNORECASE):
            return {"cold": f"failed after {first.seconds:.0f}", "warm": "-"}, first
        results = [run() for _ in range(self.rounds if first.seconds < 20 else 1)]
        warm = statistics.median(result.seconds for result in results)
        return {"cold": round(first.seconds, 2), "warm": round(warm, 2)}, results[-1]

    def call(self, *argv: str, **more: str) -> Result:
        """Run a tool with this case's own caches and without the user's own settings.

        It has a TMPDIR of its own: pip leaves what it has unpacked there when it is stopped.
        """
        foreign = (
            "UV_",
            "PIP_",
            "ENVBUILD_",
            "PYTHON",
        )  # PYTHONDONTWRITEBYTECODE would have it compiled at every start
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        kept |= {key: os.environ[key] for key in ("PIP_CERT", "SSL_CERT_FILE") if key in os.environ}
        caches = {
            "UV_CACHE_DIR": "uv",
            "PIP_CACHE_DIR": "pip",
            "ENVBUILD_STORE": "store",
            "PIP_TOOLS_CACHE_DIR": "pt",
        }
        own = {
            key: str(self.folder / (more.get("cache", "") + name)) for key, name in caches.items()
        }
        env = {
            **kept,
            **own,
            "ENVBUILD_INDEX": INDEX,
            "PIP_INDEX_URL": INDEX,
            "PIP_CONFIG_FILE": os.devnull,
        }
        with tempfile.TemporaryDirectory(
            prefix="tmp-", dir=self.folder, ignore_cleanup_errors=True
        ) as scratch:
            own_tmp = {**env, "TMPDIR": scratch}
            return RUN(
                Command(argv=argv, cwd=self.folder, env=own_tmp, timeout=self.box), check=False
            )

    def envbuild(self, *options: str) -> Result:
        """Lock with envbuild, the whole command."""
        argv = (
            sys.executable,
            "-m",
            "envbuild",
            "-q",
            "lock",
            "case.toml",
            "--facts",
            str(self.facts_path),
            "--json",
        )
        result = self.call(*argv, *options, cache="undated" if options else "dated")
        (self.folder / "lock.json").write_text(result.stdout, "utf-8")
        return result

    def put_anew(self) -> Result:
        """Lock undated without the answers that were kept, as after a change to the recipe."""
        for kept in (self.folder / "undatedstore").glob("*/answers"):
            shutil.rmtree(kept)
        return self.envbuild("--as-of", "none")

    def uv(self, *options: str) -> Result:
        """Resolve with uv, which is not told of the base."""
        (self.folder / "pylock.uv.toml").unlink(missing_ok=True)
        kept = f'[[index]]\nname = "default"\nurl = "{INDEX}"\ndefault = true\ncache-control = {CACHE_CONTROL}\n'
        (self.folder / "kept.toml").write_text(kept, "utf-8")
        argv = (UV, "pip", "compile", "--no-python-downloads", "-q", "--python", self.interpreter())
        target = (
            "--python-version",
            self.facts.python,
            "--python-platform",
            uv_platform(self.facts),
        )
        index = options or ("--no-config", "--default-index", INDEX)
        return self.call(
            *argv,
            *target,
            *index,
            "requirements.in",
            "-o",
            "pylock.uv.toml",
            cache=str(bool(options)),
        )

    def pip_compile(self, python: Path) -> Result:
        """Resolve with pip-compile."""
        argv = (
            str(python),
            "-m",
            "piptools",
            "compile",
            "-q",
            "--no-header",
            "--strip-extras",
            "--rebuild",
        )
        return self.call(*argv[:-1], "-i", INDEX, "requirements.in", "-o", "pip-compile.txt")

    def pip(self, python: Path) -> Result:
        """Let pip say what it would install into the base."""
        argv = (
            str(python),
            "-m",
            "pip",
            "install",
            "--dry-run",
            "-q",
            "--report",
            "report.json",
            "-r",
            "requirements.in",
        )
        return self.call(*argv, "--break-system-packages")

    def interpreter(self) -> str:
        """Return the host's Python of the base's version, else this one."""
        minor = ".".join(map(str, python_minor(self.facts)))
        roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        found = next(iter(sorted(roots.glob(f"{minor}.*/bin/python{minor}"))), None)
        return str(found or shutil.which(f"python{minor}") or sys.executable)

    def python_with(self, *packages: str) -> Path | None:
        """Return a Python of the base's version with these packages, to which the base's own look installed."""
        if python_minor(self.facts) != tuple(
            map(int, _version_of(self.interpreter()).split(".")[:2])
        ):
            return None
        home = self.folder / "venv"
        RUN(Command(argv=(UV, "venv", "-q", "--python", self.interpreter(), str(home))))
        python = home / "bin" / "python"
        RUN(
            Command(
                argv=(
                    UV,
                    "pip",
                    "install",
                    "-q",
                    "--python",
                    str(python),
                    "--default-index",
                    INDEX,
                    *packages,
                )
            )
        )
        tree = self.folder / "base"
        for dist in self.facts.dists:
            folder = (
                tree / f"{canonicalize_name(dist.name).replace('-', '_')}-{dist.version}.dist-info"
            )
            folder.mkdir(parents=True, exist_ok=True)
            lines = ["Metadata-Version: 2.1", f"Name: {dist.name}", f"Version: {dist.version}"]
            lines += [f"Requires-Dist: {text}" for text in dist.requires]
            (folder / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")
            (folder / "RECORD").write_text("", "utf-8")
        (next(home.glob("lib/python*/site-packages")) / "base.pth").write_text(f"{tree}\n", "utf-8")
        return python

    def of_envbuild(self) -> dict[str, Any]:
        """Read envbuild's answer."""
        data = json.loads((self.folder / "lock.json").read_text("utf-8"))
        new = {p["name"]: (p["version"], p["files"][0]["size"]) for p in data["packages"]}
        return self.verdict(new) | {
            "moved": [
                f"{m['name']} {m['before']} -> {m['after']}: {m['reason']}" for m in data["moved"]
            ]
        }

    def of_uv(self) -> dict[str, Any]:
        """Read uv's answer; the sizes of GPU packages are asked for, as not every index tells them."""
        data = msgspec.toml.decode((self.folder / "pylock.uv.toml").read_text("utf-8"))
        files = {p["name"]: (p.get("wheels") or [p["sdist"]])[0] for p in data["packages"]}
        urls = {name: file["url"] for name, file in files.items() if GPU.fullmatch(name)}
        with make_client(SETTINGS) as client:
            known = ask_sizes(list(urls.values()), client)
        new = {
            p["name"]: (p["version"], known.get(urls.get(p["name"], ""), 0))
            for p in data["packages"]
        }
        return self.verdict(new)

    def of_pip(self) -> dict[str, Any]:
        """Read pip's report."""
        data = json.loads((self.folder / "report.json").read_text("utf-8"))
        names = [
            (canonicalize_name(i["metadata"]["name"]), i["metadata"]["version"])
            for i in data["install"]
        ]
        return self.verdict({name: (version, 0) for name, version in names})

    def verdict(self, new: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
        """Say what an answer does to the framework of the base."""
        changed = {
            n: v
            for n, (v, _) in new.items()
            if n in self.held and Version(v) != Version(self.held[n])
        }
        replaced = sorted(name for name in changed if name in self.hard)
        doubled = sorted(name for name in new if GPU.fullmatch(name) and name not in self.held)
        return {
            "survives": not replaced and not doubled,
            "replaced": [f"{name} {self.held[name]} -> {changed[name]}" for name in replaced],
            "doubled": [f"{name} {new[name][0]}" for name in doubled],
            "moved": [
                f"{name} {self.held[name]} -> {version}"
                for name, version in sorted(changed.items())
            ],
            "gpu bytes": sum(size for name, (_, size) in new.items() if GPU.fullmatch(name)),
            "packages": len(new),
        }


def told(result: Result) -> str:
    """Return the line that matters of a failure."""
    if result.timed_out:
        return "not finished within the time box"
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return next(
        (line for line in lines if line.startswith(("- ", "ERROR", "error"))),
        lines[-1] if lines else "",
    )[:200]


def _version_of(python: str) -> str:
    return RUN(
        Command(argv=(python, "-c", "import platform; print(platform.python_version())"))
    ).stdout.strip()


if __name__ == "__main__":
    main()
