"""Find what a file reads of modules, and how it calls it, where nothing guards that.

"np.random.rand(3)" reads random.rand of numpy, and calls random.rand(1): one argument by position.
What a name stands for is followed where it is bound once: to a module, to a part of one, or to what
a call returns.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from urllib.parse import quote

Name = tuple[str, str]
"""A module, and a name in it; "" for the module itself."""
NOTHING: Name = ("", "")
PATCHED = "="
"""Begins a name that the project sets itself, or asks for; alone it stands for the whole module."""
CALL = "()"
"""Ends a name whose result is meant, or that is called in a way that only a run shows."""
MOST_SHOWN = 100
"""Characters of a text that is told as an argument's value."""
SPACE = re.compile(r"\s")
WAYS: dict[type[ast.AST], str] = {
    ast.For: "__iter__",
    ast.comprehension: "__iter__",
    ast.Subscript: "__getitem__",
    ast.Call: "__len__",
}
"""The method that a part of a program takes of an object without its name."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LEAVING = (
    ast.Return,
    ast.Raise,
    ast.Continue,
    ast.Break,
)
HARMLESS = re.compile(
    r"(?:EOF|FileExists|FileNotFound|IO|Index|Key|OS|Permission|UnicodeDecode|ZeroDivision)Error"
    r"|KeyboardInterrupt|StopIteration"
)
"""Errors that no name raises that is gone, and no call that does not fit."""
SUPPRESSING = re.compile(r"suppress|raises|assert|catch|warn", re.IGNORECASE)
RELEASE = re.compile(
    r"version|hasattr|getattr|avail|platform|find_spec|\bHAS|compat|legacy|\bPY[23]",
    re.IGNORECASE,
)
"""Conditions that ask which release of something is there."""


def find_guarded(tree: ast.AST) -> set[ast.AST]:
    """Return the parts of a file that may not run, or whose failure is caught.

    What stands below ``if __name__ == "__main__"`` runs, and so does a condition itself.
    """
    guarded: set[ast.AST] = set()
    for node in ast.walk(tree):
        for part in () if node in guarded else _guarded_parts(node):
            guarded.update(ast.walk(part))
    return guarded


def _guarded_parts(node: ast.AST) -> Iterable[ast.AST]:
    """Return the parts of a node that it may leave out, or whose failure it catches."""
    parts: Iterable[ast.AST] = ()
    match node:
        case ast.If(test=test, body=body, orelse=other):
            parts = other if is_main(test) else [*body, *other]
        case ast.IfExp(body=value, orelse=alternative):
            parts = [value, alternative]
        case ast.BoolOp(values=[_, *later]) | ast.Match(cases=later):
            parts = later
        case ast.Try(body=body, handlers=handlers, orelse=other):
            caught = [*body, *other] if any(map(_hides, handlers)) else []
            parts = [*handlers, *caught]
        case ast.With(items=items, body=body):
            suppresses = any(_mentions(item.context_expr, SUPPRESSING) for item in items)
            parts = body if suppresses else _after_release(body)
        case ast.Module(body=body) | ast.FunctionDef(body=body) | ast.For(body=body):
            parts = _after_release(body)
    return parts


def is_main(test: ast.expr) -> bool:
    """Tell whether a condition asks if the file is the program."""
    match test:
        case ast.Compare(left=ast.Name(id="__name__"), comparators=[ast.Constant("__main__")]):
            return isinstance(test.ops[0], ast.Eq)
    return False


def _mentions(node: ast.AST, words: re.Pattern[str]) -> bool:
    """Tell whether any name in an expression has one of some words in it."""
    names = [getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node)]
    return any(map(words.search, names))


def _hides(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler may get the error of a name that is gone, and goes on."""
    caught = [node for node in ast.walk(handler.type or handler) if isinstance(node, ast.Name)]
    if handler.type and all(HARMLESS.fullmatch(node.id) for node in caught):
        return False
    *before, last = handler.body
    match last:
        case ast.Raise() | ast.Expr(ast.Call(ast.Name(id="exit") | ast.Attribute(attr="exit"))):
            return not all(isinstance(one, ast.Expr) for one in before)
    return True


def _after_release(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return what comes after a return, or the like, that only some releases reach."""
    for number, node in enumerate(body):
        match node:
            case ast.If(test=test, body=[*_, last]) if isinstance(last, LEAVING):
                if _mentions(test, RELEASE):
                    return body[number + 1 :]
    return []


def read_names(tree: ast.AST, modules: Mapping[str, Name]) -> Iterator[Name]:
    """Yield modules, and what is read of them and called, without a guard.

    ``modules`` are the names that stand for one all through the file.
    """
    guarded = find_guarded(tree)
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for nodes, known in _scopes(tree, modules):
        for node in nodes:
            match node:
                case ast.Attribute() if node not in inner:
                    module, name = _whole_name(node, known)
                    if isinstance(node.ctx, ast.Load) and node not in guarded:
                        yield module, name
                    elif not isinstance(node.ctx, ast.Load):
                        yield module, PATCHED + (name if "." in name else "")
                case ast.Call(
                    func=ast.Name(id="hasattr" | "getattr" | "setattr"), args=[asked, *_]
                ):
                    module, name = _whole_name(asked, known)
                    yield module, PATCHED + name
                case (
                    ast.For(iter=held)
                    | ast.comprehension(iter=held)
                    | ast.Subscript(value=held, ctx=ast.Load())
                    | ast.Call(func=ast.Name(id="len"), args=[held])
                ) if node not in guarded:
                    module, name = _whole_name(held, known)
                    if name.endswith(CALL):
                        yield module, f"{name}.{WAYS[type(node)]}"
                case ast.Call(func=function) if node not in guarded:
                    module, name = _whole_name(function, known)
                    yield module, f"{name}({_shape_of(node)})"


def _shape_of(call: ast.Call) -> str:
    """Return how many arguments a call has by position, then the names of the others.

    "" where only a run shows them; "0=" and "name=" say what is known of a value.
    """
    starred = any(isinstance(one, ast.Starred) for one in call.args)
    if starred or any(one.arg is None for one in call.keywords):
        return ""
    shown = [f"{number}={_shown(one)}" for number, one in enumerate(call.args)]
    words = [f"{one.arg}={_shown(one.value)}" for one in call.keywords]
    known = [word for word in shown if not word.endswith("=")]
    return ",".join([str(len(call.args)), *known, *(word.rstrip("=") for word in words)])


def _shown(value: ast.expr) -> str:
    """Return short texts, True, None or "module.NAME" as Python writes it, quoted."""
    match value:
        case ast.Constant(value=str(text)) if len(text) <= MOST_SHOWN and not SPACE.search(text):
            written = repr(text)
        case ast.Constant(value=bool() | None as one):
            written = repr(one)
        case ast.Attribute(value=ast.Name()):
            written = ast.unparse(value)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) if all(map(_shown, parts)):
            written = ast.unparse(value)
        case _:
            return ""
    return quote(written, safe="").replace(".", "%2E")


def _scopes(
    tree: ast.AST, modules: Mapping[str, Name]
) -> Iterator[tuple[list[ast.AST], Mapping[str, Name]]]:
    """Yield the nodes of each scope, with what names stand for there."""
    shared = _shared_names(tree)
    scopes: list[tuple[ast.AST, Mapping[str, Name]]] = [(tree, {})]
    for scope, outer in scopes:
        nodes = [*ast.iter_child_nodes(scope)]
        for node in nodes:
            nodes += () if isinstance(node, FUNCTIONS) else ast.iter_child_nodes(node)
        bound = Counter(chain.from_iterable(map(_bound_names, nodes)))
        known = {name: one for name, one in outer.items() if name not in bound} | {**modules}
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        for node in sorted(assigned, key=lambda one: one.lineno):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    module, part = _whole_name(value, known)
                    if bound[name] == 1 and name not in shared and CALL in part:
                        known[name] = (module, part)
        yield nodes, known
        scopes += [(node, known) for node in nodes if isinstance(node, FUNCTIONS)]


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds in its scope."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name


def _shared_names(tree: ast.AST) -> set[str]:
    """Return the names that functions bind outside of themselves."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal))]
    return set(chain.from_iterable(node.names for node in nodes))


def _whole_name(node: ast.expr, modules: Mapping[str, Name]) -> Name:
    """Return the module that attributes are read of, and these, joined; else NOTHING."""
    attributes: list[str] = []
    called = ""
    while isinstance(node, (ast.Attribute, ast.Call)):
        if isinstance(node, ast.Call):
            node, called = node.func, CALL
        else:
            attributes.insert(0, node.attr + called)
            node, called = node.value, ""
    if not isinstance(node, ast.Name) or node.id not in modules:
        return NOTHING
    module, part = modules[node.id]
    return module, ".".join(filter(None, (part + called, *attributes)))


def name_modules(tree: ast.Module) -> dict[str, Name]:
    """Return the names that stand for one module all through a file, or for a part of one.

    A name that the file binds to anything else is left out.
    """
    modules: dict[str, set[Name]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    top = alias.name.partition(".")[0]
                    whole = (alias.name if alias.asname else top, "")
                    modules.setdefault(alias.asname or top, set()).add(whole)
            case ast.ImportFrom(names=aliases, module=module, level=level):
                for alias in aliases:
                    whole = (module, alias.name) if module and not level else NOTHING
                    modules.setdefault(alias.asname or alias.name, set()).add(whole)
            case _ if not isinstance(node, ast.alias):
                for name in _bound_names(node):
                    modules.setdefault(name, set()).add(NOTHING)
    certain = {name: min(found) for name, found in modules.items() if len(found) == 1}
    return {name: one for name, one in certain.items() if one != NOTHING}
