"""What files of a wheel need of other packages, whether or not metadata says it: read, never run.

Python: what is imported, and which attributes are looked up, when the package itself is imported.  Extension modules:
CUDA libraries, and symbols of torch's C++ library.  Names of files: the release of torch that they were built for.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

CUDA_LIBRARY = re.compile(
    rb"lib(cudart|cublas|cublasLt|cudnn|cudnn_ops_infer|cudnn_ops|cufft|cusparse)\.so\.(\d+)"
)
BUILT_FOR = re.compile(r"(?:^|/)lib\w+_(?:pytorch|torch)_(\d+\.\d+\.\d+)\.so$")
TORCH_SYMBOL = re.compile(r"_ZNK?3c10")
CONSTANT = re.compile(
    r"(?m)^\s*_?(?:MIN_(?:TF_|TORCH_)?VERSION|required_tensorflow_version|min_torch_version)\s*=\s*['\"]([\d.]+)['\"]"
)
NOT_IMPORTED = frozenset(
    {"tests", "test", "testing", "benchmarks", "examples", "docs", "conftest", "__main__"}
)
DYNAMIC_SECTION, UNDEFINED = 11, 0


@dataclass(frozen=True, order=True, slots=True)
class Need:
    """Something that a file needs: ``kind`` is module, attribute, built, cuda, cudnn, symbol or least."""

    kind: str
    what: str
    where: str = ""


def module_of(path: str) -> str:
    """Return the dotted name of a Python file."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_files(
    top: str, paths: Collection[str], read: Callable[[str], str]
) -> dict[str, ast.Module]:
    """Return the parsed files of a package that importing it runs: what is imported without a condition."""
    known = {module_of(path): path for path in paths if path.endswith(".py")}
    found: dict[str, ast.Module] = {}
    waiting = [top]
    while waiting:
        module = waiting.pop()
        path = known.get(module)
        if path is None or path in found:
            continue
        try:
            tree = ast.parse(read(path))
        except (SyntaxError, ValueError):
            continue
        found[path] = tree
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        for wanted in _imports(tree, package):
            parents = wanted.split(".")
            waiting += [".".join(parents[:count]) for count in range(1, len(parents) + 1)]
        if _loads_its_folder(tree, package):
            waiting += [
                one
                for one in known
                if one.startswith(f"{package}.") and one.count(".") == package.count(".") + 1
            ]
    return {
        path: tree
        for path, tree in found.items()
        if not NOT_IMPORTED & set(PurePosixPath(path).parts)
    }


def python_needs(path: str, tree: ast.Module, targets: Collection[str]) -> Iterator[Need]:
    """Yield what a file needs at import of other packages, whose top modules ``targets`` are."""
    names = _names_of_modules(tree)
    for node in _run_at_import(tree):
        for kind, dotted in _needed(node, names):
            if dotted.split(".")[0] in targets:
                yield Need(kind, dotted, path)


def _names_of_modules(tree: ast.Module) -> dict[str, str]:
    """Return what modules are called in a file."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.Import) else ():
            whole = alias.name if alias.asname else alias.name.split(".")[0]
            names[alias.asname or whole] = whole
    return names


def _needed(node: ast.AST, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the modules and attributes that an import or an expression needs."""
    if isinstance(node, ast.Import):
        yield from (("module", alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level == 0 and node.module:
            yield "module", node.module
            yield from (
                ("attribute", f"{node.module}.{one.name}") for one in node.names if one.name != "*"
            )
    else:
        yield from (("attribute", dotted) for dotted in _dotted(node, names))


def constants(text: str, path: str) -> Iterator[Need]:
    """Yield the least version of a framework that a file states."""
    for found in CONSTANT.finditer(text):
        yield Need("least", found[1], path)


def named_needs(paths: Iterable[str]) -> Iterator[Need]:
    """Yield the releases that names of files carry."""
    for path in paths:
        if found := BUILT_FOR.search(path):
            yield Need("built", found[1], path)


def library_needs(path: str, data: bytes, paths: Collection[str]) -> Iterator[Need]:
    """Yield the CUDA libraries that a shared object names and the wheel does not hold.

    A libcudnn.so that lies in the wheel without libcudnn_ops is the part that opens the others.
    """
    held = " ".join(PurePosixPath(one).name for one in paths)
    for name, major in sorted(
        {(one.decode(), number.decode()) for one, number in CUDA_LIBRARY.findall(data)}
    ):
        if not re.search(rf"lib{name}(-[0-9a-f]+)?\.so", held):
            yield Need("cudnn" if name.startswith("cudnn") else name, major, path)
    shim = re.search(r"libcudnn(?:-[0-9a-f]+)?\.so\.(\d+)", PurePosixPath(path).name)
    if shim and "libcudnn_ops" not in held:
        yield Need("cudnn", shim[1], path)


def symbols(data: bytes, *, defined: bool) -> set[str]:
    """Return the dynamic symbols of a 64-bit ELF file that it defines, or that it wants of others."""
    if data[:6] != b"\x7fELF\x02\x01":
        return set()
    table, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, table + size * number) for number in range(count)
    ]
    found = set()
    for header in headers:
        if header[1] != DYNAMIC_SECTION:
            continue
        strings = headers[header[6]]
        for at in range(header[4], header[4] + header[5], 24):
            name, _, _, section = struct.unpack_from("<IBBH", data, at)
            if name and (section != UNDEFINED) == defined:
                start = strings[4] + name
                found.add(data[start : data.index(b"\0", start)].decode("ascii", "replace"))
    return found


def bound_names(
    module: str, read: Callable[[str], tuple[str, str] | None], depth: int = 4
) -> set[str] | None:
    """Return the names that a module binds; None where that cannot be told without running it.

    ``read`` returns a module's path and text, or nothing where it has no Python file.
    """
    found = read(module)
    if found is None or depth == 0:
        return None
    path, text = found
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    if re.search(r"globals\(\)|sys\.modules|setattr\(|_LazyModule|lazy", text):
        return None
    names = (
        set(re.findall(r"['\"](\w+)['\"]", text))
        if "__getattr__" in text or "__all__" in text
        else set()
    )
    package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
    for node in ast.walk(tree):
        names |= _bound_by(node)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            more = bound_names(_absolute(node, package), read, depth - 1)
            if more is None:
                return None
            names |= more
    return names


def _bound_by(node: ast.AST) -> set[str]:
    """Return the names that a node binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names} - {"*"}
    return set()


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the dotted names that a file may import when it is run, relative ones made absolute."""
    for node in _run_at_import(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, package)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names if alias.name != "*")


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parts = package.split(".")
    kept = parts[: len(parts) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _run_at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield imports and expressions that are run whatever happens; nothing below if, try and functions' bodies."""
    late = any(
        isinstance(n, ast.ImportFrom) and n.module == "__future__" and _annotations(n)
        for n in tree.body
    )
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from (*node.bases, *node.decorator_list)
            waiting += node.body
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            yield from (*node.decorator_list, *arguments.defaults)
            yield from (default for default in arguments.kw_defaults if default is not None)
            if not late:
                every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                yield from (one.annotation for one in every if one.annotation is not None)
                yield from [node.returns] if node.returns is not None else []
        elif isinstance(node, (ast.Assign, ast.Expr)):
            yield node.value
        elif isinstance(node, ast.With):
            waiting += node.body


def _annotations(node: ast.ImportFrom) -> bool:
    return any(alias.name == "annotations" for alias in node.names)


def _dotted(tree: ast.AST, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the attributes of modules that an expression looks up; a function's body in it is not run."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Lambda, ast.GeneratorExp)):
            continue
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name) and inner.id in names:
            yield ".".join([names[inner.id], *reversed(parts)])
        else:
            waiting += ast.iter_child_nodes(node)


def _loads_its_folder(tree: ast.Module, package: str) -> bool:
    """Whether a package imports its files by name: importlib.import_module(f"package.{name}")."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "import_module"
        ):
            first = node.args[0] if node.args else None
            start = first.values[0] if isinstance(first, ast.JoinedStr) and first.values else None
            if isinstance(start, ast.Constant) and str(start.value).startswith(f"{package}."):
                return True
    return False


def modules_of(path: str) -> Iterator[str]:
    """Yield the module that a file is, and the folders that it lies in."""
    parts = path.split("/")
    yield from (".".join(parts[:count]) for count in range(1, len(parts)))
    if path.endswith((".py", ".so", ".pyi")):
        yield ".".join([*parts[:-1], parts[-1].split(".")[0]]).removesuffix(".__init__")


def file_of(module: str, paths: Iterable[str]) -> str | None:
    """Return a module's file: Python's, else a compiled one."""
    stem = module.replace(".", "/")
    for path in (f"{stem}/__init__.py", f"{stem}.py"):
        if path in paths:
            return path
    return next(
        (path for path in paths if path.startswith(f"{stem}.") and path.endswith((".so", ".pyi"))),
        None,
    )
