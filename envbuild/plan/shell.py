"""The shell texts of a definition: bootstrap a root, install what is locked, clean up."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

from envbuild.base.model import DebianPackage
from envbuild.errors import UsageError
from envbuild.lock.model import LockedFiles, PythonPackage
from envbuild.names import ARCHITECTURES, Texts
from envbuild.plan.quoting import quote_word, quote_words, text_line
from envbuild.script_files import read_script

BUILD = "/.envbuild"
"""Folder inside the root that holds what only the build needs; removed at its end."""
SUPPLIED = "/mnt/envbuild"
"""Where envbuild binds the verified files in.

A build without envbuild has no such folder and downloads.
"""

SCRIPTS = Path(__file__).parent / "scripts"


@functools.cache
def program_lines(name: str) -> Texts:
    """Return the lines of a program that the definition carries."""
    return tuple((SCRIPTS / f"{name}.py").read_text("utf-8").splitlines())


def script_lines(name: str, **values: str | Texts) -> Texts:
    """Return the lines of a shell script that a definition carries, with values in it."""
    path = f"scripts/{name}.sh"
    text = read_script("envbuild.plan", path, build=BUILD, supplied=SUPPLIED, **values)
    return tuple(text.splitlines())


def offline_program() -> Texts:
    """Return the lines of run_offline.py, with the row of every architecture."""
    rows = [f'"{row.machine}": ("{row.audit}", "{row.socket_call}")' for row in ARCHITECTURES]
    table = f"MACHINES = {{{', '.join(rows)}}}"
    return tuple(
        table if line == "MACHINES = {}" else line for line in program_lines("run_offline")
    )


def write_heredoc(command: str, end: str, lines: Iterable[str]) -> Texts:
    """Return a command with its literal input.

    Raises UsageError for a line that would end it early.
    """
    body = tuple(lines)
    if end in body:
        raise UsageError(
            f"a line cannot be the single word {end}: it ends the script's input in the definition"
        )
    return (f"{command} <<'{end}'", *body, end)


def write_file(name: str, end: str, lines: Iterable[str], *, indent: str = "") -> Texts:
    """Return the command that writes lines into a file of the build's own folder."""
    return write_heredoc(f"{indent}cat >{BUILD}/{name}", end, lines)


def pass_network(*, debian: bool, conda: bool) -> Texts:
    """Return the %setup lines of an image as base.

    Only what a build without envbuild needs to download. ``debian`` says that it needs Debian
    packages too, ``conda`` that it needs conda's.
    """
    more = ("DEBIAN_MIRROR|" if debian else "") + conda_variables(conda=conda)
    return script_lines("pass_network", network=network_for_post(more))


def conda_variables(*, conda: bool) -> str:
    """Return the pattern of the variables that name conda channels, where they are needed."""
    return "ENVBUILD_CHANNEL_[A-Z0-9_]+|" if conda else ""


def network_for_post(more: str) -> Texts:
    """Return %setup lines that tell %post how this machine reaches its package index."""
    proxies = "https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY"
    wanted = f"^({more}PIP_INDEX_URL|ENVBUILD_INDEX_[A-Z0-9_]+|{proxies})="
    # each line NAME='value': quotes in a value are closed, escaped and opened again
    return script_lines("network_for_post", wanted=wanted)


def requirement_lines(packages: Iterable[PythonPackage]) -> Texts:
    """Return a requirements file with hashes.

    The file name, and the name of an extra index, follow as a comment.
    """
    return tuple(
        f"{p.name}=={p.version} --hash=sha256:{p.sha256}  # {p.file}"
        + (f" @{p.index}" if p.index else "")
        for p in packages
    )


def supply_files(
    packages: Sequence[PythonPackage],
    build: Sequence[PythonPackage],
    python: str,
    debian: Sequence[DebianPackage],
    own: Sequence[LockedFiles],
    *,
    fetching: Sequence[str],
) -> Texts:
    """Return %post lines that set ``files`` (a folder) and ``offline`` (a prefix of commands).

    ``debian`` are packages that are downloaded here and not before; ``own`` are files of the
    project; ``fetching`` are lines that download still more.
    """
    named = [f"{p.name} ({p.source})" for p in packages if p.source is not None]
    named += [file.source for file in own]
    refusal: Texts = ()
    if named:
        what = f"{', '.join(named)}: files of the project are on no index; build with envbuild make"
        refusal = (f"    echo {quote_word(what)} >&2", "    exit 1")
    versions = [
        f"{p.version_variable}={quote_word(p.version)}" for p in packages if p.version_variable
    ]
    return script_lines(
        "supply_files",
        versions=(f"export {' '.join(versions)}",) if versions else (),
        lists=(
            *write_file("packages.txt", "LOCKED", requirement_lines(packages)),
            *write_file("build.txt", "LOCKED", requirement_lines(build)),
        ),
        refusal=refusal,
        fetching=(
            *run_fetcher("packages", python, "python", "packages.txt", "build.txt"),
            *_fetch_debian(debian, python),
            *fetching,
        ),
        program=write_file("offline.py", "PYTHON", offline_program()),
        offline=quote_word(f"{python} -s -B {BUILD}/offline.py"),
    )


def run_fetcher(what: str, python: str, folder: str, *lists: str) -> Texts:
    """Return %post lines that download what lists name into a folder of the build."""
    program = f"fetch_{what}"
    words = " ".join(f"{BUILD}/{name}" for name in (f"files/{folder}", *lists))
    return (
        f"    mkdir -p {BUILD}/files/{folder}",
        *write_file(f"{program}.py", "PYTHON", program_lines(program), indent="    "),
        f"    {quote_word(python)} {BUILD}/{program}.py {words}",
    )


def _fetch_debian(packages: Sequence[DebianPackage], python: str) -> Texts:
    if not packages:
        return ()
    rows = [f"{p.sha256} {p.path}" for p in packages]
    listing = write_file("debian.txt", "LOCKED", rows, indent="    ")
    return (*listing, *run_fetcher("debian", python, "debian", "debian.txt"))


def lay_files(files: Sequence[LockedFiles]) -> Texts:
    """Return %post lines that unpack the files of the recipe.

    A folder that is there keeps its mode and owner.
    """
    if not files:
        return ()
    sums = [f"{locked.sha256}  {locked.sha256}.tar" for locked in files]
    unpack = "tar -C / --no-overwrite-dir --no-same-owner -xf"
    lines = [
        f'{unpack} "$files/files/{locked.sha256}.tar"  # {text_line(locked.target)}'
        for locked in files
    ]
    return (
        "# files of the recipe",
        *write_heredoc('(cd "$files/files" && sha256sum --check --quiet)', "FILES", sums),
        *lines,
    )


def install_debian(packages: Sequence[DebianPackage], before: str = "") -> Texts:
    """Return %post lines that install locked Debian packages from files.

    ``before`` is a prefix of the command that starts the packages' scripts.
    """
    if not packages:
        return ()
    sums = [f"{package.sha256}  {package.file}" for package in packages]
    check = '(cd "$files/debian" && sha256sum --check --quiet)'
    return script_lines("install_debian", sums=write_heredoc(check, "DEBIAN", sums), before=before)


def install_python(python: str, *, break_system: bool, compiles: bool) -> Texts:
    """Return %post lines that install the locked packages.

    Exact files, hashes required, no resolving, bytecode made. The installer is uv, itself one of
    the locked files; its bytecode is of the unchecked-hash kind (PEP 552), so that no later change
    of file times makes Python compile again. Pythons of before 3.7 do not know that kind: without
    ``compiles`` there is none, and compile_by_time is to follow.
    """
    bytecode = ""
    invalidation: Texts = ()
    if compiles:
        bytecode = " --compile-bytecode"
        invalidation = ("export PYC_INVALIDATION_MODE=UNCHECKED_HASH",)
    return script_lines(
        "install_python",
        python=quote_word(python),
        forced=" --break-system-packages" if break_system else "",
        bytecode=bytecode,
        invalidation=invalidation,
    )


def compile_by_time(python: str, epoch: int) -> Texts:
    """Return %post lines that make bytecode with a Python older than 3.7, without hashes in it.

    Such bytecode counts as long as its source keeps its time, so times that packing would clamp to
    ``epoch`` (seconds) are set before.
    """
    program = (
        "import compileall, os, sys",
        f"epoch = {epoch}",
        (
            "folders = [p for p in sys.path "
            'if os.path.basename(p) in ("site-packages", "dist-packages")]'
        ),
        "for folder in folders:",
        "    for top, _, names in os.walk(folder):",
        '        for path in (os.path.join(top, name) for name in names if name.endswith(".py")):',
        "            if os.stat(path).st_mtime > epoch:",
        "                os.utime(path, (epoch, epoch))",
        "    compileall.compile_dir(folder, quiet=2, workers=0)",
    )
    return write_heredoc(f"{quote_word(python)} -s -", "PYTHON", program)


def remove_debian(packages: Iterable[DebianPackage]) -> Texts:
    """Return %post lines that remove the packages that only the build needed."""
    names = [package.name for package in packages]
    if not names:
        return ()
    return ("# needed for building only", f"$offline dpkg --purge {quote_words(names)} >/dev/null")


def switch_off_cuda_sources() -> Texts:
    """Return %post lines that let apt update its lists in images older than NVIDIA's new key.

    Since 2022-04-28 the lists are signed by a key that those images do not have
    (NVIDIA/nvidia-docker#1631).
    """
    return script_lines("switch_off_cuda_sources")


def clean_up() -> Texts:
    """Return %post lines that leave no cache, log or trace of the build.

    /tmp and /var/tmp are never touched: Apptainer mounts the host's own there while %post runs.
    """
    return script_lines("clean_up")
