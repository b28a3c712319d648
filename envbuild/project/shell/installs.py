"""Take shell lines of a definition apart: what apt, pip and conda install, and what is left."""

from __future__ import annotations

import itertools
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from envbuild.base.suggest import framework_name
from envbuild.limits import KIB, split_words
from envbuild.names import Pairs
from envbuild.project.cuda import cuda_of
from envbuild.project.lists.requirements import (
    NOT_INSTALLED,
    parse_commit,
    parse_requirement,
    parse_wheel_address,
    refuse_address,
)
from envbuild.project.model import Requirement
from envbuild.project.names import conda_name
from envbuild.project.private import has_secret, without_secrets
from envbuild.project.shell.syntax import (
    CONDA,
    fetched_names,
    join_lines,
    named_files,
    program_of,
    split_commands,
)

PREFIXES = {"sudo", "command", "exec", "time", "env", "nohup"}
SHELLS = {"bash", "sh", "zsh", "dash"}
APT = {"apt-get", "apt", "aptitude", "apt-fast"}
INDEX = {
    "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--index", "--default-index",
}  # fmt: skip
WITH_VALUE = {
    *INDEX, "-t", "--target", "--trusted-host", "--timeout", "--default-timeout", "--root",
    "--prefix", "--cache-dir", "-c", "--constraint", "-n", "--name", "-p", "--channel",
    "--progress-bar", "--retries", "--global-option", "--python", "--install-option",
    "--config-settings", "-C", "-o", "--build-option", "--no-binary", "--only-binary",
    "--platform", "--python-version", "--implementation", "--abi", "--upgrade-strategy",
    "--report", "--src", "--proxy", "--cert", "--client-cert", "--root-user-action", "--log",
    "--use-feature", "--use-deprecated", "--exists-action", "--keyring-provider", "--hash",
    "--group", "--index-strategy", "--torch-backend", "--link-mode",
    "--resolution", "--prerelease", "--exclude-newer", "--override", "--overrides",
    "--build-constraint", "--solver", "--subdir", "--repodata-fn", "--revision",
}  # fmt: skip
HOUSEKEEPING = re.compile(
    r"(rm\s+-r?f?\S*\s+(/var/lib/apt|/var/cache|/root/\.cache|~/\.cache|/tmp)"
    r"|export DEBIAN_FRONTEND|set -|true$|:$"
    r"|echo\b(?!.*>)|printf\b(?!.*>)|ldconfig$|date$|uname\b|ls\b|pwd$|which\b|exit 0$|sync$"
    r"|hash -r$"
    r"|export (LC_ALL|LANG|PATH|LD_LIBRARY_PATH|CUDA_HOME)|mkdir (-p )?/(work|app|src|code)\S*$"
    r"|(source|\.)\s+\S*(conda\.sh|activate|bashrc|profile)\b|eval\s.*(conda|mamba)"
    r"|update-alternatives\b|update-ca-certificates"
    r"|(\S*/)?(python[0-9.]*\s+-m\s+)?(virtualenv|venv|ensurepip)\b"
    r"|\S*/?python[0-9.]*\s+(--version|-V)$|nvcc --version|nvidia-smi|.*[Mm]ini(conda"
    r"|forge)3?\b.*|.*micro\.mamba\.pm"
    r"|.*MINI(CONDA|FORGE)\b.*|.*get-pip\.py|.*\bget-poetry\.py|.*\binstall\.python-poetry"
    r"|poetry\s+config|git config\b"
    r"|(bash|sh)\s+\S*(conda|mamba|forge)\S*\.sh|dpkg --add-architecture|apt-mark\b"
    r"|groupadd\b|useradd\b|adduser\b)"
)
"""Lines that a recipe does not need: they prepare, tidy, or install Python."""
FETCHES = re.compile(
    r"(\S*/)?(wget|curl|aria2c|axel|svn|rsync|gdown|gsutil|aws|huggingface-cli|hf|npm|yarn"
    r"|cargo|go|cpan|cpanm|Rscript|R|add-apt-repository"
    r"|apt-add-repository|apt-key|snap)\b|git\s+(clone|pull|fetch|submodule|lfs)\b"
    r"|git\s.*\bclone\b"
)
"""Lines that need a network, which a build has not."""
PIPED = re.compile(r"\b(wget|curl)\b")
LONGEST = 8 * KIB
"""Characters of a command that is kept; rules for them take time by the square of that."""
OURSELVES = re.compile(
    r"(\.|\$PWD|\$\(pwd\)|/(app|workspace|code|src|work|root|opt/\w+)/?\.?)?/?\.?(\[[^\]]*\])?",
    re.IGNORECASE,
)
"""The project itself, with extras or without: its folder is bound when it runs."""
CHANGES_FOLDER = re.compile(r"(cd|pushd)\s|popd$")
"""Kept before a line that is kept, for that may be about files there."""
DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]+")
OF_FILE = re.compile(
    r"[\"']?(?:\$\(\s*(?:cat\s+|<\s*|grep\s+\S+\s+(?:\S+\s+)?)([\w./-]+)\s*\)"
    r"|`\s*cat\s+([\w./-]+)\s*`)[\"']?"
)


@dataclass(slots=True)
class ShellFindings:
    """What shell lines install; ``lists`` are files for pip, ``post`` all other lines.

    ``debian_lists`` are files of names for apt; ``cuda`` is the CUDA version of an index;
    ``refused`` are lines that are not taken, with the reason; ``gone`` are names of what those
    would have fetched, ``here`` the line that changed the folder last; ``folders`` are paths
    inside the image, each with the project's folder that is copied there.
    """

    requirements: list[Requirement] = field(default_factory=list)
    aside: list[tuple[str, str]] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    debian_lists: list[str] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)
    post: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    python: str | None = None
    cuda: str | None = None
    gone: set[str] = field(default_factory=set)
    here: str = ""
    folders: Pairs = ()


def _keep_apart(lines: list[str], workdir: str) -> list[str]:
    """Return a line's commands; in brackets, where they change the folder. WORKDIR's is made."""
    changes = any(map(CHANGES_FOLDER.match, lines))
    made = [workdir.replace("cd", "mkdir -p", 1)] if lines[:1] == [workdir] else []
    return [f"({' && '.join(made + lines)})"] if changes else lines


def read_lines(
    lines: list[str], where: str, *, apart: bool = False, folders: Pairs = ()
) -> ShellFindings:
    """Read shell lines, joined and split at && and ;.  A block is kept whole.

    ``apart`` says that each line is a shell of its own, as in a Dockerfile, where a line that
    is nothing but ``cd`` is WORKDIR: the next ones start there.
    """
    found = ShellFindings(folders=folders)
    depth, until, folder, workdir = 0, "", "", ""
    for line in join_lines(lines):
        if until:
            found.post.append(line)
            until = "" if line.strip() == until else until
            continue
        if apart and re.fullmatch(r"cd \S+", line):
            workdir = folder = found.here = line
            continue
        here = re.search(r"<<-?\s*['\"]?(\w+)", line)
        opens = len(re.findall(r"(?:^|[;&|]\s*)(?:if|for|while|case)\b", line))
        if depth or opens or here or re.search(r"\bfunction\b|\(\)\s*\{", line):
            depth = max(0, depth + opens - len(re.findall(r"\b(?:fi|done|esac)\b", line)))
            until = here[1] if here else ""
            _keep_line(line, found)
            continue
        kept = len(found.post)
        for command in split_commands(line):
            if CHANGES_FOLDER.match(command):
                folder = found.here = command
                continue
            before = len(found.post)
            _read_command(command, found, where)
            if folder and len(found.post) > before:
                found.post.insert(before, folder)
                folder = ""
        if apart:
            found.post[kept:] = _keep_apart(found.post[kept:], workdir)
            folder = found.here = workdir
    if until:
        found.notes.append(
            f"{where}: a here-document is not closed with {until}, so what follows it may be "
            "missing"
        )
    return found


def _read_command(command: str, found: ShellFindings, where: str) -> None:
    try:
        words = split_words(command)
    except ValueError:
        _keep_line(command, found)
        return
    while words and (words[0] in PREFIXES or re.fullmatch(r"[A-Za-z_]\w*=\S*", words[0])):
        words = words[1:]
    if not words:
        return
    program, rest = program_of(words)
    installs = program in APT or program in CONDA or program == "pip"
    if program in SHELLS and len(rest) > 1 and re.match(r"-\w*c$", rest[0]):
        for one in split_commands(rest[1]):
            _read_command(one, found, where)
    elif installs and not {"|", "||"} & set(words):
        _read_install(program, rest, command, found, where)
    elif program.startswith("python") and rest[:1] == ["setup.py"] and len(rest) > 1:
        _tell_not_installed(found, where)
    elif not (HOUSEKEEPING.match(command[:LONGEST]) or _installs_lists(program, rest)):
        _keep_line(command, found)


def _read_install(
    program: str, rest: list[str], command: str, found: ShellFindings, where: str
) -> None:
    if program in APT:
        _read_apt(command, rest, found)
    elif program == "pip":
        _read_pip(rest, found, where)
    else:
        _read_conda(rest, found, where)


def _installs_lists(program: str, rest: list[str]) -> bool:
    """Whether a command installs by the project's own lists, which are read from there."""
    return program in ("poetry", "uv", "pdm", "pipenv") and rest[:1] in (["install"], ["sync"])


def _keep_line(command: str, found: ShellFindings) -> None:
    """Keep a line, or refuse one that cannot work, does harm or holds a secret."""
    shown = without_secrets(command[:LONGEST])[:160]
    if len(command) > LONGEST:
        found.refused.append((shown, f"it has more than {LONGEST} characters"))
    elif has_secret(command):
        found.refused.append((shown, "it holds a secret"))
    elif removes_framework(command):
        found.refused.append((shown, "it would remove the base's framework"))
    elif FETCHES.match(command) or PIPED.search(command.rpartition("|")[0]):
        found.refused.append((shown, "a build has no network"))
        found.gone |= fetched_names(command)
    elif found.gone & (named_files(command) | named_files(found.here)):
        found.refused.append((shown, "it needs what a line before it fetches"))
    else:
        found.post.append(command)


def removes_framework(command: str) -> bool:
    """Whether a shell line takes a framework out of the image: by pip, conda or rm."""
    removed = re.search(r"\b(?:pip[0-9.]*|conda|mamba)\s+(?:uninstall|remove)\s+(.*)", command)
    if removed:
        return any(framework_name(word) is not None for word in removed[1].split())
    deleted = re.search(r"\brm\s.{0,500}?(?:site|dist)-packages/([\w*.-]*)", command)
    if deleted is None:
        return False
    return deleted[1] in ("", "*") or framework_name(deleted[1].rstrip("*-.")) is not None


def _read_apt(command: str, words: list[str], found: ShellFindings) -> None:
    if "install" not in words:
        return  # update, clean, upgrade: the lock's packages are exact
    for match in OF_FILE.finditer(command):
        found.debian_lists.append(match[1] or match[2])
    for word in words[words.index("install") + 1 :]:
        name = re.split(r"[=/:]", word)[0]
        if word.startswith("-") or word in ("true", "false"):
            continue
        if DEBIAN.fullmatch(name) and "$" not in word:
            found.system.append(name)
        elif not OF_FILE.search(command):
            found.notes.append(f"the Debian package {word} is not a plain name, so it is left out")


def _read_pip(words: list[str], found: ShellFindings, where: str) -> None:
    if words[:1] == ["uninstall"]:
        gone = [word for word in words[1:] if framework_name(word)]
        if gone:
            found.refused.append(
                (f"pip {' '.join(words)}"[:160], "it would remove the base's framework")
            )
        return
    index = words.index("install") + 1 if "install" in words else len(words)
    while index < len(words):
        word = words[index]
        index += 1
        flag, equals, value = word.partition("=")
        takes = word.startswith("-") and (
            flag in WITH_VALUE or flag in ("-r", "--requirement", "-e", "--editable")
        )
        if takes and not equals:
            value = words[index] if index < len(words) else ""
            index += 1
        if takes:
            _pip_option(flag, value, found, where)
        elif re.match(r"-r\S", word):
            found.lists.append(word[2:])
        elif word in (">", ">>", "2>&1", "&"):
            return
        elif not word.startswith("-"):
            _pip_word(word, found, where)


def _pip_option(flag: str, value: str, found: ShellFindings, where: str) -> None:
    if flag in ("-r", "--requirement"):
        of_file = OF_FILE.fullmatch(value)
        found.lists.append(of_file[1] or of_file[2] if of_file else value)
    elif flag in ("-c", "--constraint"):
        found.notes.append(
            f"{where}: the bounds of {without_secrets(value)} (pip's {flag}) are not taken"
        )
    elif flag in ("-e", "--editable"):
        _pip_folder(value, found, where)
    elif flag in INDEX:
        found.cuda = found.cuda or cuda_of(value)
        remark = " (CUDA builds come with the base)" if cuda_of(value) else ""
        hint = f"name the index in [python] indexes if it is needed{remark}"
        note = f"{where}: pip's {flag} is left out: {hint}"
        found.notes += [] if note in found.notes else [note]


def _pip_folder(value: str, found: ShellFindings, where: str) -> None:
    """Name what is installed in place: a folder or an address, never a name of the index."""
    value = _project_folder(value, found)
    if value and OURSELVES.fullmatch(value):
        _tell_not_installed(found, where)
    elif value:
        found.aside.append(refuse_address(value, where))


def _project_folder(word: str, found: ShellFindings) -> str:
    """Return a path inside the image as the project's folder that is copied there."""
    path, bracket, extras = word.partition("[")
    if not path.startswith(("/", ".")):
        return word
    here = found.here.partition(" ")[2].strip()
    inside = PurePosixPath(posixpath.normpath(posixpath.join(here, path)))
    for target, folder in found.folders:
        if inside.is_relative_to(target):
            below = posixpath.normpath(posixpath.join(folder, inside.relative_to(target)))
            return ("." if below == "." else f"./{below}") + bracket + extras
    return word


def _tell_not_installed(found: ShellFindings, where: str) -> None:
    note = f"{where}: {NOT_INSTALLED}"
    found.notes += [] if note in found.notes else [note]


def _pip_word(word: str, found: ShellFindings, where: str) -> None:
    if not word.strip():
        return
    word = _project_folder(word, found)
    if OURSELVES.fullmatch(word):
        _tell_not_installed(found, where)
        return
    one = (
        parse_requirement(word, where)
        or parse_wheel_address(word, where)
        or parse_commit(word, where)
    )
    if one is None and "$" in word:
        found.refused.append(
            (f"pip install {without_secrets(word)[:120]}", "it is only known when it is built")
        )
    elif one is None:
        found.aside.append(refuse_address(word, where))
    else:
        found.requirements.append(one)


def _read_conda(words: list[str], found: ShellFindings, where: str) -> None:
    files = [word for flag, word in itertools.pairwise(words) if flag in ("-f", "--file")]
    files += [word.partition("=")[2] for word in words if word.startswith("--file=")]
    verb = next((word for word in words if word in ("install", "create", "update")), None)
    if verb is None:
        return
    if words[:1] == ["env"] or files:
        found.environments += [name for name in files if name.endswith((".yml", ".yaml"))]
        found.lists += [name for name in files if name.endswith(".txt")]
    rest = words[words.index(verb) + 1 :]
    index = 0
    while index < len(rest):
        word = rest[index]
        index += 1
        if word in ("-c", "-f", "--file", *WITH_VALUE):
            if found.cuda is None and index < len(rest) and word in ("-c", "--channel"):
                found.cuda = cuda_of(rest[index])
            index += 1
        elif not word.startswith("-") and verb != "update":
            _conda_package(word, found, where)


def _conda_package(word: str, found: ShellFindings, where: str) -> None:
    # late: conda reads pip sections, which need this module
    from envbuild.project.conda.environment import compiler_note, conda_bounds, conda_cuda

    match = re.match(r"(?:[\w/.-]+::?)?([A-Za-z0-9_][\w.-]*)(.*)$", word)
    if not match:
        return
    name, bounds = match[1].lower(), conda_bounds(match[2])
    known = conda_name(name)
    found.cuda = found.cuda or conda_cuda(name, match[2])
    note = compiler_note(name, bounds, where)
    found.notes += [note] if note else []
    if name == "python":
        found.python = bounds or None
    elif known is None:
        found.aside.append(
            (word, f"{where}: a conda package that nothing is known of outside of conda")
        )
    elif known.startswith("system:"):
        found.system.append(known.removeprefix("system:"))
    elif known and (one := parse_requirement(f"{known}{bounds}", where)) is not None:
        found.requirements.append(
            Requirement(text=one.text, name=canonicalize_name(one.name), where=where)
        )
