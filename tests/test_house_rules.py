"""The rules of the house that can be counted (CONTRIBUTING.md).

A stage imports only those before it: recipe, base, conda, resolve, project, lock, plan, build, bundle, check, shelf, job,
wrap, app.
Foundations (FOUNDATIONS below, one file or folder each) are for everybody and know no stage; cli knows all.
"""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.support import needs

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "envbuild"
STAGES = (
    "recipe",
    "base",
    "conda",
    "resolve",
    "project",
    "lock",
    "plan",
    "build",
    "bundle",
    "check",
    "shelf",
    "job",
    "wrap",
    "app",
)
FOUNDATIONS = (
    "caches",
    "cage",
    "context",
    "data",
    "errors",
    "failures",
    "formats",
    "host",
    "html_pages",
    "interrupts",
    "limits",
    "names",
    "net",
    "parts",
    "pip_files",
    "progress",
    "python_code",
    "python_guards",
    "quota",
    "records",
    "run",
    "runtime",
    "runtime_search",
    "script_files",
    "session_keys",
    "host_python",
    "settings",
    "settings_file",
    "store",
    "tarread",
    "toml",
    "yaml",
    "tools",
)
INSIDE = (
    "check/probes/",
    "base/probe/",
    "build/in_base/scripts/",
    "plan/scripts/",
    "job/scripts/",
    "wrap/scripts/",
    "host_scripts/",
    "resolve/sources/scripts/",
)
"""Scripts that run inside images, with nothing but the standard library: rules about our own process are not theirs."""
STARTERS = {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile"}

HOSTS = (
    "pypi%org",
    "pythonhosted%org",
    "deb%debian%org",
    "security%debian%org",
    "snapshot%debian%org",
    "archive%ubuntu%com",
    "npmjs%org",
    "anaconda%org",
    "download%pytorch%org",
)
REGISTRIES = re.compile("|".join(HOSTS).replace("%", r"[.]"))
"""Names of public package servers; written with another sign, so that this file holds none of them."""
PATHS = r"%work%(main|shared)|%root%(lab|[.]pyenv)|%tmp%lab%|%home%(?!(you|me|user|USER|ada)\b|[$<{])\w+%"
MACHINE_PATHS = re.compile(PATHS.replace("%", "/"))


def _modules() -> dict[str, Path]:
    """Return our modules by dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


@functools.cache  # not when this is imported: every worker of a suite does that
def _trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


@functools.cache
def _ours() -> dict[str, ast.Module]:
    """Return the modules that run on this machine."""
    names = {name: path.relative_to(PACKAGE).as_posix() for name, path in MODULES.items()}
    return {name: tree for name, tree in _trees().items() if not names[name].startswith(INSIDE)}


def _imports(tree: ast.AST) -> Iterator[str]:
    """Return every module that is imported, inside functions too; "from a import b" gives a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func)


def _part(module: str) -> str:
    """Return the stage or foundation that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def _tracked() -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def _found_in_tracked(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in _tracked():
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return found


def test_the_rules_see_the_code() -> None:
    assert len(_ours()) > 50
    assert {_part(name) for name in _ours()} - {"", "__main__", "cli"} <= {*STAGES, *FOUNDATIONS}


def test_only_run_starts_processes() -> None:
    for name, tree in _ours().items():
        if name == "envbuild.run":
            continue
        assert not {"subprocess", "multiprocessing", "pty"} & set(_imports(tree)), name
        started = [call for call in _calls(tree) if call.startswith("os.")]
        assert not [
            call
            for call in started
            if call[3:] in STARTERS or call[3:].startswith(("exec", "spawn"))
        ], name


def test_temporary_folders_are_those_that_the_store_remembers() -> None:
    """What a killed process leaves is found again by ``store gc`` (Store.outside)."""
    users = {name for name, tree in _ours().items() if "tempfile" in _imports(tree)}
    assert users == {"envbuild.store.atomic", "envbuild.shelf.signatures"}


def test_only_settings_reads_the_environment() -> None:
    for name, tree in _ours().items():
        if name == "envbuild.settings":
            continue
        read = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not {"os.environ", "os.environb", "os.getenv"} & read, name
        assert not {"os.environ", "os.getenv"} & set(_imports(tree)), name


def test_only_the_command_line_prints_and_exits() -> None:
    for name, tree in _ours().items():
        if _part(name) in ("cli", "__main__"):
            continue
        calls = set(_calls(tree))
        assert not {"print", "exit", "quit", "sys.exit", "os._exit", "click.echo"} & calls, name
        assert "click" not in set(_imports(tree)), name


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_only_those_before_it(stage: str) -> None:
    allowed = {*STAGES[: STAGES.index(stage) + 1], *FOUNDATIONS, "", "__version__"}
    for name, tree in _ours().items():
        if _part(name) == stage:
            later = [
                found
                for found in _imports(tree)
                if found.startswith("envbuild") and _part(found) not in allowed
            ]
            assert not later, f"{name} imports {later}"


def test_foundations_know_no_stage() -> None:
    for name, tree in _ours().items():
        if _part(name) in FOUNDATIONS:
            known = [
                found
                for found in _imports(tree)
                if _part(found) in (*STAGES, "cli") and found.startswith("envbuild")
            ]
            assert not known, f"{name} imports {known}"


def test_the_command_line_leaves_the_stages_to_app() -> None:
    """Modules of cli import records and readers of stages, but nothing that resolves, plans or builds."""
    doers = ("resolve", "net", "plan", "formats", "lock.decide", "build.make", "build.assemble")
    doing = tuple(f"envbuild.{doer}" for doer in doers)
    found = {
        f"{name}: {module}"
        for name, tree in _ours().items()
        if _part(name) == "cli"
        for module in _imports(tree)
        if module.startswith(doing)
    }
    assert not found


def test_no_import_cycles() -> None:
    """Late imports count: a cycle hidden in a function is one all the same.  Names for the type checker alone do not."""
    graph = {
        name: {found for found in _imports(_running(tree)) if found in MODULES and found != name}
        for name, tree in _trees().items()
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def _running(tree: ast.Module) -> ast.Module:
    """Leave out the blocks that run for the type checker only."""
    body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.Module(body=body, type_ignores=[])


def test_no_module_is_named_after_nothing() -> None:
    nothing = {"utils", "util", "helpers", "helper", "misc", "common"}
    assert not [name for name in MODULES if nothing & set(name.split("."))]


PICTURES = {
    *("bench", "bring", "bringer", "garden", "ground", "grove", "hall", "lend", "lent", "meant"),
    *("means", "notary", "tell", "telling", "told", "wish", "workshop"),
}
"""Words of workshop, garden and library, and of speech: they name no part of the field (docs/glossary.md)."""
KEPT_NAMES = {"envbuild.resolve.sources.metadata.tell"}
"""A method that every open file has."""


def test_names_are_words_of_the_field() -> None:
    found = [name for name in _ours() if PICTURES & set(re.split(r"[._]", name))]
    for module, tree in _ours().items():
        for node in _public(tree):
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", node.name)}
            name = f"{module}.{node.name}"
            if PICTURES & words and name not in KEPT_NAMES:
                found.append(name)
    assert not found


def test_everything_public_has_a_docstring() -> None:
    missing = []
    for name, tree in _ours().items():
        if ast.get_docstring(tree) is None:
            missing.append(name)
        missing += [
            f"{name}.{node.name}" for node in _public(tree) if ast.get_docstring(node) is None
        ]
    assert not missing


def _public(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Return public functions and classes, and the public methods of public classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node)


def test_nothing_public_hands_out_a_private_class() -> None:
    """What a public function takes or returns, and what a public record holds, has a public name."""
    found = []
    for name, tree in _ours().items():
        classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        private = {known for known in classes if known.startswith("_")}
        for node in _public(tree):
            shown = ast.unparse(ast.Module(body=list(_signature(node)), type_ignores=[]))
            found += [f"{name}.{node.name}: {known}" for known in private & _words(shown)]
    assert not found


def _signature(node: ast.FunctionDef | ast.ClassDef) -> Iterator[ast.stmt]:
    if isinstance(node, ast.ClassDef):
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        yield from (ast.Expr(part.annotation) for part in fields if not _is_private(part.target))
    else:
        given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        hints = [argument.annotation for argument in given]
        yield from (ast.Expr(hint) for hint in (*hints, node.returns) if hint is not None)


def _is_private(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id.startswith("_")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def test_functions_stay_short() -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = {
        (name, node.name): _length(node)
        for name, tree in _ours().items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    }
    assert {where: lines for where, lines in functions.items() if lines > 60} == {}


def test_late_imports_of_verbs_say_why() -> None:
    """An import inside a function of app or cli carries the reason, "late: …", on its line."""
    silent = []
    for name, tree in _ours().items():
        if _part(name) not in ("app", "cli"):
            continue
        lines = MODULES[name].read_text("utf-8").splitlines()
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Import | ast.ImportFrom):
                    continue
                if "# late: " not in lines[node.lineno - 1]:
                    silent.append(f"{name}:{node.lineno}")
    assert not silent


WRITES_PYTHON = {"envbuild.project.code.reads"}
"""Modules whose result is an expression of Python, as text."""


def test_no_key_is_made_of_a_representation() -> None:
    """A repr changes with names in the code: it is for messages (``where`` and ``shown``) alone."""
    others = []
    for name in _ours().keys() - WRITES_PYTHON:
        nodes = list(ast.walk(_ours()[name]))
        for_messages = Counter(chain.from_iterable(map(_calls, filter(_is_message, nodes))))
        if Counter(_calls(_ours()[name]))["repr"] > for_messages["repr"]:
            others.append(name)
    assert not others


def _is_message(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg == "where"
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("where", "shown")


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function from its first statement on, without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_name_of_a_registry_in_any_file() -> None:
    assert REGISTRIES.search("https://" + HOSTS[0].replace("%", ".")), "the pattern finds one"
    assert not _found_in_tracked(REGISTRIES)


def test_no_path_of_a_machine_in_any_file() -> None:
    assert MACHINE_PATHS.search("%home%smith%x".replace("%", "/")), "the pattern finds one"
    assert not _found_in_tracked(MACHINE_PATHS)


def test_the_build_stage_is_not_ignored() -> None:
    """The usual line for Python's build folder would leave envbuild/build/ out of git without a word."""
    lines = (ROOT / ".gitignore").read_text("utf-8").split()
    assert "build/" not in lines
    assert "build" not in lines
    tracked = {path for path in _tracked() if path.is_relative_to(PACKAGE)}
    assert PACKAGE / "build" / "__init__.py" in tracked
    assert any(path.parent == PACKAGE / "build" and path.name == "make.py" for path in tracked)


WIDE_FOLDERS = {".", "cli"}
"""Folders over 15 modules: the foundations, and one module a verb."""


def test_no_module_is_too_long_and_no_folder_too_wide() -> None:
    paths = (*PACKAGE.rglob("*.py"), *(ROOT / "scripts").glob("*.py"))
    sizes = {path: len(path.read_text("utf-8").splitlines()) for path in paths}
    assert {path for path, size in sizes.items() if size > 400} == set()
    modules = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    counts = Counter(str(name.parent) for name in modules if name.name != "__init__.py")
    assert {folder for folder, count in counts.items() if count > 15} == WIDE_FOLDERS


@needs("shellcheck")
def test_shellcheck_has_nothing_to_say_of_scripts() -> None:
    scripts = [str(path) for path in PACKAGE.rglob("*.sh")]
    assert len(scripts) > 15
    result = LocalRunner()(Command(argv=("shellcheck", *scripts), timeout=120), check=False)
    assert result.stdout == ""
