"""Kill the command line at random moments, and look at what it left: ``python -m tests.hostile.kills --kills 10 [VERB…]``.

After each kill nothing half written may have a final name, the store must verify, and the next run must give what
an undisturbed one gives.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envbuild.bundle.unpack import unpack
from envbuild.run import GRACE_SECONDS
from envbuild.store.layout import Store
from tests.project import LISTENING, Project, shared_store, small_project

IMAGE, LOCK, BUNDLE = "small.sif", "lockfiles/small.lock", "small.bundle.tar"
PUBLISHED = ("shelf", "show", "lab/small", "--json")
LAYER = "small.dev.json"
KEPT = ("artifacts", "bases", "built", "facts")
"""What the store below has, so that a run takes seconds: downloads, and not what is packed."""
WAYS = (
    (os.kill, signal.SIGKILL),
    (os.killpg, signal.SIGKILL),
    (os.killpg, signal.SIGTERM),
    (os.killpg, signal.SIGINT),
)
"""As the kernel does when memory runs out, as batch systems do, and as a terminal does."""
ORPHANS_SECONDS = GRACE_SECONDS + 3
"""How long what a killed run had started may take to end."""


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What is killed: ``removed`` goes before each run, ``result`` says what a run gave, ``whole`` looks at a final name."""

    arguments: tuple[str, ...]
    result: Callable[[Project], str]
    removed: tuple[str, ...] = ()
    whole: Callable[[Project, str], bool] = lambda _project, _expected: True


def digest_of(name: str) -> Callable[[Project], str]:
    def result(project: Project) -> str:
        return hashlib.sha256((project.folder / name).read_bytes()).hexdigest()

    return result


def same_or_absent(name: str) -> Callable[[Project, str], bool]:
    def whole(project: Project, expected: str) -> bool:
        return not (project.folder / name).exists() or digest_of(name)(project) == expected

    return whole


def bundle_content(project: Project) -> str:
    """Take a bundle apart as ``make --from-bundle`` does."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        unpack(project.folder / BUNDLE, store, Path(folder) / "project")
        return (Path(folder) / "project" / LOCK).read_text()


def published(project: Project) -> str:
    entry = json.loads(must(project, *PUBLISHED).stdout)["entry"]
    del entry["when"]
    return json.dumps(entry)


def made_again(project: Project) -> str:
    (project.folder / IMAGE).unlink(missing_ok=True)
    must(project, "make", "small", "--no-check")
    return digest_of(IMAGE)(project)


def checked(project: Project) -> str:
    return str(json.loads(must(project, "check", "small", "--json").stdout)["verdict"])


def layer_digest(project: Project) -> str:
    """Return what the record of the layer says of its file, which must be that."""
    record = json.loads((project.folder / LAYER).read_bytes())
    if digest_of(record["layer"])(project) != record["sha256"].removeprefix("sha256:"):
        raise AssertionError("the layer is not what its record says")
    return str(record["sha256"])


VERBS = {
    "lock": Verb(
        arguments=("lock", "small"),
        result=digest_of(LOCK),
        removed=(LOCK,),
        whole=same_or_absent(LOCK),
    ),
    **{
        f"make {mode}": Verb(
            arguments=("make", "small", "--mode", mode, "--no-check"),
            result=digest_of(IMAGE),
            removed=(IMAGE, "store/v1/layers", "store/v1/images"),
            whole=same_or_absent(IMAGE),
        )
        for mode in ("flat", "layered", "fakeroot")
    },
    "publish": Verb(
        arguments=("shelf", "publish", "small", "--failed"), result=published, removed=("shelf",)
    ),
    "bundle": Verb(
        arguments=("bundle", "small", "--no-tool"),
        result=bundle_content,
        removed=(BUNDLE,),
        whole=lambda project, expected: (
            not (project.folder / BUNDLE).exists() or bundle_content(project) == expected
        ),
    ),
    "pull": Verb(
        arguments=("shelf", "get", "lab/small", "--image", "--force"),
        result=digest_of(IMAGE),
        removed=(IMAGE,),
        whole=same_or_absent(IMAGE),
    ),
    "add --dev": Verb(
        arguments=("add", "--dev", "small", "idna==3.7"),
        result=layer_digest,
        removed=("small.dev.json",),
        whole=lambda project, expected: (
            not (project.folder / LAYER).exists() or layer_digest(project) == expected
        ),
    ),
    "gc": Verb(arguments=("store", "gc", "--keep", "0"), result=made_again),
    "check": Verb(arguments=("check", "small"), result=checked),
}


def must(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a verb that has to do well."""
    ran = project.run(*arguments)
    if ran.code != 0:
        raise AssertionError(f"{' '.join(arguments)}: {ran.code}: {ran.stderr[-600:]}")
    return subprocess.CompletedProcess(arguments, ran.code, ran.stdout, ran.stderr)


def start(project: Project, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", LISTENING, *arguments],
        cwd=project.folder,
        env=project.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def prepare(project: Project, verb: Verb) -> None:
    for name in verb.removed:
        path = project.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if "publish" in verb.arguments:
        project.run("shelf", "remove", "lab", "--forget")
        (project.folder / "shelf").mkdir()
        must(project, "shelf", "add", "lab", str(project.folder / "shelf"))


def orphans(project: Project) -> list[str]:
    """Return the command lines of processes that still work below the project's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended
        if str(project.folder) in line and "tests.hostile.kills" not in line:
            found.append(line[:200])
    return found


def leftovers(project: Project) -> list[str]:
    """Return what lies about that the next run and ``store gc`` did not clear away."""
    beside = [path.name for path in project.folder.iterdir() if path.name.endswith(".partial")]
    work = project.store / "v1/tmp"
    return beside + [path.name for path in (work.iterdir() if work.is_dir() else ())]


def run_series(name: str, kills: int, seed: int, folder: Path) -> dict[str, object]:
    """Kill one verb so many times; return the figures, and what was wrong."""
    verb, chance = VERBS[name], random.Random(f"{name} {seed}")  # noqa: S311
    project = small_project(folder, store=folder / "store")
    for name_kept in KEPT:
        source, target = shared_store() / "v1" / name_kept, folder / "below/v1" / name_kept
        shutil.copytree(source, target, copy_function=os.link)
    project.env["ENVBUILD_STORE_BELOW"] = str(folder / "below")
    project.env["TMPDIR"] = str(folder / "tmp")
    (folder / "tmp").mkdir()
    must(project, "lock", "small")
    if name in ("publish", "check", "pull", "add --dev"):
        must(project, "make", "small", "--no-check")
    if name == "pull":
        prepare(project, VERBS["publish"])
        must(project, "shelf", "publish", "small", "--failed", "--image")
    prepare(project, verb)
    must(project, *verb.arguments)
    expected = verb.result(project)
    prepare(project, verb)
    began = time.monotonic()
    must(project, *verb.arguments)
    whole_run = time.monotonic() - began
    hit, wrong = 0, list[str]()
    for number in range(kills):
        prepare(project, verb)
        process = start(project, verb.arguments)
        moment = chance.uniform(0.05, 1.0) * whole_run
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            hit += 1
            reach, sign = WAYS[number % len(WAYS)]
            reach(process.pid, sign)
            process.wait()
        try:
            wrong += [] if verb.whole(project, expected) else [f"{number}: half a result"]
            deadline = time.monotonic() + ORPHANS_SECONDS
            while (left := orphans(project)) and time.monotonic() < deadline:
                time.sleep(0.1)
            wrong += [f"{number}: goes on: {line}" for line in left]
            must(project, "store", "verify")
            # what a killed publisher had put there may be whole already
            must(project, *verb.arguments)
            if verb.result(project) != expected:
                wrong.append(f"{number}: another result")
        except Exception as error:  # noqa: BLE001  (that is the question)
            wrong.append(f"{number} at {moment:.2f} s: {type(error).__name__}: {error}")
    must(project, "store", "gc")
    remaining = leftovers(project) + [path.name for path in (folder / "tmp").iterdir()]
    return {
        "runs": kills,
        "killed": hit,
        "seconds": round(whole_run, 1),
        "wrong": wrong,
        "left": remaining,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("verbs", nargs="*", metavar="VERB")
    given = parser.parse_args()
    for name in given.verbs or VERBS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found = run_series(name, given.kills, given.seed, Path(folder) / "p")
            print(json.dumps({"verb": name, **found}), flush=True)


if __name__ == "__main__":
    main()
