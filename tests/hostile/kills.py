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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from envbuild.bundle.unpack import unpack
from envbuild.run import GRACE_SECONDS
from envbuild.store.layout import Store
from tests.conda.channels import forge, make_channel, serve
from tests.project import LISTENING, SMALL, Project, shared_store, small_project

IMAGE, LOCK, BUNDLE = "small.sif", "lockfiles/small.lock", "small.bundle.tar"
CELL_IMAGE, CELL_LOCK, FLAT = "cell.sif", "lockfiles/cell.lock", "small.flat.sif"
TREE = "small.sandbox"
CELL = """\
[recipe]
name = "cell"
[base]
bootstrap = "debian:bookworm"
[conda]
channels = ["forge"]
dependencies = ["samtools", "r-base"]
"""
MADE = ("make", "small", "--no-check")
LAID = ("add", "--dev", "small", "idna==3.7")
PUSHED = ("shelf", "publish", "small", "--failed", "--image")
PUBLISHED = ("shelf", "show", "lab/small", "--json")
LAYER, EXPORTED = "small.dev.json", "pylock.toml"
SAID = "said.txt"
"""What a killed run printed."""
CHANGING = ("add", "promote")
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
    """What is killed: ``removed`` goes before each run, ``result`` says what a run gave, ``whole`` looks at a final name.

    ``once`` are command lines that a series needs first, ``before`` those that each run needs. ``is_done`` says whether a
    killed run had done everything already, and cannot be repeated.
    """

    arguments: tuple[str, ...]
    result: Callable[[Project], str]
    removed: tuple[str, ...] = ()
    whole: Callable[[Project, str], bool] = lambda _project, _expected: True
    once: tuple[tuple[str, ...], ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    is_done: Callable[[Project], bool] = lambda _project: False


def digest_of(name: str) -> Callable[[Project], str]:
    def result(project: Project) -> str:
        return hashlib.sha256((project.folder / name).read_bytes()).hexdigest()

    return result


def verified(project: Project) -> str:
    """Return what holds of an image: one of a definition has its lock's files, not always its bytes."""
    told = json.loads(must(project, "verify", "small", "--json").stdout)
    return f"{told['lock']} {told['holds']}"


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


def pushed(project: Project) -> str:
    """Take an image from the shelf again."""
    (project.folder / IMAGE).rename(project.folder / "own.sif")
    try:
        must(project, "shelf", "get", "lab/small", "--image", "--force")
        return published(project) + digest_of(IMAGE)(project)
    finally:
        (project.folder / "own.sif").replace(project.folder / IMAGE)


def promoted(project: Project) -> str:
    if (project.folder / LAYER).exists():
        raise AssertionError("the layer is still there")
    return recipe_and_lock(project) + digest_of(IMAGE)(project)


def cleared(project: Project) -> str:
    """Return what lies beside the image: nothing of the layer may."""
    left = [path.name for path in project.folder.iterdir() if ".dev" in path.name]
    if left:
        raise AssertionError(f"left of the layer: {', '.join(left)}")
    return digest_of(IMAGE)(project)


def checked(project: Project) -> str:
    return str(json.loads(must(project, "check", "small", "--json").stdout)["verdict"])


def tree_names(project: Project) -> str:
    """Return what names a sandbox's own files: times and caches are others in each run."""
    folder = project.folder / TREE
    names = [str(path.relative_to(folder)) for path in folder.glob("[!dpst]*/**/*")]
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def layer_digest(project: Project) -> str:
    """Return what the record of the layer says of its file, which must be that."""
    record = json.loads((project.folder / LAYER).read_bytes())
    if digest_of(record["layer"])(project) != record["sha256"].removeprefix("sha256:"):
        raise AssertionError("the layer is not what its record says")
    return str(record["sha256"])


def recipe_and_lock(project: Project) -> str:
    """Return both, which belong together."""
    must(project, "lock", "small", "--check")
    return digest_of("recipes/small.toml")(project) + digest_of(LOCK)(project)


VERBS = {
    "lock": Verb(
        arguments=("lock", "small"),
        result=digest_of(LOCK),
        removed=(LOCK, *(f"store/v1/{name}" for name in ("answers", "apt", "metadata"))),
        whole=same_or_absent(LOCK),
    ),
    **{
        f"make {mode}": Verb(
            arguments=("make", "small", "--mode", mode, "--no-check"),
            result=digest_of(IMAGE),
            removed=(IMAGE, "store/v1/layers", "store/v1/images"),
            whole=same_or_absent(IMAGE),
        )
        for mode in ("flat", "layered")
    },
    # its bytes are not always the same
    "make fakeroot": Verb(
        arguments=("make", "small", "--mode", "fakeroot", "--no-check"),
        result=verified,
        removed=(IMAGE, "store/v1/images"),
        whole=lambda project, expected: (
            not (project.folder / IMAGE).exists() or verified(project) == expected
        ),
    ),
    "make sandbox": Verb(
        arguments=("make", "small", "--mode", "sandbox", "--no-check", "--as-root"),
        result=tree_names,
        removed=(TREE,),
        whole=lambda project, expected: (
            not (project.folder / TREE).exists() or tree_names(project) == expected
        ),
        is_done=lambda project: (project.folder / TREE).exists(),
    ),
    "publish": Verb(
        arguments=("shelf", "publish", "small", "--failed"),
        result=published,
        removed=("shelf",),
        once=(MADE,),
    ),
    "push": Verb(arguments=PUSHED, result=pushed, removed=("shelf",), once=(MADE,)),
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
        once=(MADE,),
    ),
    "flatten": Verb(
        arguments=("flatten", f"./{IMAGE}", "-o", FLAT),
        result=digest_of(FLAT),
        removed=(FLAT,),
        whole=same_or_absent(FLAT),
        once=((*MADE, "--mode", "layered"),),
    ),
    "add --dev": Verb(
        arguments=LAID,
        result=layer_digest,
        removed=(LAYER,),
        once=(MADE,),
        whole=lambda project, expected: (
            not (project.folder / LAYER).exists() or layer_digest(project) == expected
        ),
    ),
    "promote": Verb(
        arguments=("promote", "small"),
        result=promoted,
        removed=(LAYER,),
        before=(MADE, LAID),
        is_done=lambda project: not (project.folder / LAYER).exists(),
    ),
    "dev --clear": Verb(
        arguments=("dev", "small", "--clear"),
        result=cleared,
        once=(MADE,),
        before=(LAID,),
        whole=lambda project, _expected: (
            not (project.folder / LAYER).exists() or layer_digest(project) != ""
        ),
    ),
    "conda lock": Verb(
        arguments=("lock", "cell"),
        result=digest_of(CELL_LOCK),
        removed=(CELL_LOCK,),
        whole=same_or_absent(CELL_LOCK),
    ),
    "conda make": Verb(
        arguments=("make", "cell", "--no-check"),
        result=digest_of(CELL_IMAGE),
        removed=(CELL_IMAGE, "store/v1/layers", "store/v1/images"),
        whole=same_or_absent(CELL_IMAGE),
        once=(("lock", "cell"),),
    ),
    "gc": Verb(arguments=("store", "gc", "--keep", "0"), result=made_again, before=(MADE,)),
    "check": Verb(arguments=("check", "small"), result=checked, once=(MADE,)),
    "add": Verb(arguments=("add", "small", "idna==3.7", "--no-make"), result=recipe_and_lock),
    "store verify": Verb(arguments=("store", "verify"), result=made_again),
    "export": Verb(
        arguments=("export", "small", "--format", "pylock", "-o", EXPORTED),
        result=digest_of(EXPORTED),
        removed=(EXPORTED,),
        whole=same_or_absent(EXPORTED),
    ),
}


def must(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a verb that has to do well."""
    ran = project.run(*arguments)
    if ran.code != 0:
        raise AssertionError(f"{' '.join(arguments)}: {ran.code}: {ran.stderr[-600:]}")
    return subprocess.CompletedProcess(arguments, ran.code, ran.stdout, ran.stderr)


def start(project: Project, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
    with (project.folder / SAID).open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-c", LISTENING, *arguments],
            cwd=project.folder,
            env=project.env,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def prepare(project: Project, verb: Verb) -> None:
    for name in verb.removed:
        path = project.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if verb.arguments[0] in CHANGING and "--dev" not in verb.arguments:
        project.write("recipes/small.toml", SMALL)
        must(project, "lock", "small")
    if "publish" in verb.arguments:
        project.run("shelf", "remove", "lab", "--forget")
        (project.folder / "shelf").mkdir()
        must(project, "shelf", "add", "lab", str(project.folder / "shelf"))
    for arguments in verb.before:
        must(project, *arguments)


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


def serve_channel(project: Project, servers: ExitStack) -> None:
    """Give a project a recipe with conda packages, and a channel that has them."""
    make_channel(project.folder / "channels/forge", forge())
    served = servers.enter_context(serve(project.folder / "channels"))
    config = project.write("config.toml", f'[channels]\nforge = "{served.url}/forge"\n')
    project.env["ENVBUILD_CONFIG"] = str(config)
    project.write("recipes/cell.toml", CELL)


def open_project(
    name: str, verb: Verb, folder: Path, servers: ExitStack, kept: tuple[str, ...] = KEPT
) -> Project:
    """Return a project with everything that a series of this verb needs; ``kept`` is what the store below has."""
    project = small_project(folder, store=folder / "store")
    below = folder.parent / "below"
    for name_kept in kept:
        source, target = shared_store() / "v1" / name_kept, below / "v1" / name_kept
        shutil.copytree(source, target, copy_function=os.link)
    project.env["ENVBUILD_STORE_BELOW"] = str(below)
    project.env["TMPDIR"] = str(folder / "tmp")
    (folder / "tmp").mkdir(exist_ok=True)
    must(project, "lock", "small")
    if name.startswith("conda"):
        serve_channel(project, servers)
    for arguments in verb.once:
        must(project, *arguments)
    if name == "pull":
        prepare(project, VERBS["publish"])
        must(project, *PUSHED)
    return project


def shortest_run(project: Project, verb: Verb) -> float:
    """Return the seconds of the shorter of two runs: a busy machine would let the killed ones end before."""
    seconds = []
    for _ in range(2):
        prepare(project, verb)
        began = time.monotonic()
        must(project, *verb.arguments)
        seconds.append(time.monotonic() - began)
    return min(seconds)


def run_series(
    name: str, kills: int, seed: int, folder: Path, servers: ExitStack
) -> dict[str, object]:
    """Kill one verb so many times; return the figures, and what was wrong."""
    verb, chance = VERBS[name], random.Random(f"{name} {seed}")  # noqa: S311
    project = open_project(name, verb, folder, servers)
    prepare(project, verb)
    must(project, *verb.arguments)
    expected = verb.result(project)
    whole_run = shortest_run(project, verb)
    hit, wrong, stages = 0, list[str](), list[str]()
    for number in range(kills):
        prepare(project, verb)
        process = start(project, verb.arguments)
        # each kill has a part of the run of its own, so that all of it is met
        moment = chance.uniform(max(number, 0.3), number + 1) / kills * whole_run
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            hit += 1
            reach, sign = WAYS[number % len(WAYS)]
            reach(process.pid, sign)
            process.wait()
        said = (project.folder / SAID).read_text(errors="replace")
        wrong += [f"{number}: a traceback: {said[-600:]}"] if "Traceback" in said else []
        stages.append(f"{moment:.1f} s: {''.join(said.strip().splitlines()[-1:])[:60]}")
        try:
            wrong += [] if verb.whole(project, expected) else [f"{number}: half a result"]
            deadline = time.monotonic() + ORPHANS_SECONDS
            while (left := orphans(project)) and time.monotonic() < deadline:
                time.sleep(0.1)
            wrong += [f"{number}: goes on: {line}" for line in left]
            must(project, "store", "verify")
            # what a killed publisher had put there may be whole already
            if not verb.is_done(project):
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
        "stages": stages,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("verbs", nargs="*", metavar="VERB")
    given = parser.parse_args()
    for name in given.verbs or VERBS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as held:
            found = run_series(name, given.kills, given.seed, Path(folder) / "p", held)
            print(json.dumps({"verb": name, **found}), flush=True)


if __name__ == "__main__":
    main()
