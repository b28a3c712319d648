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

from envbuild.python_guards import find_guarded

Name = tuple[str, str]
"""A module, and a name in it; "" for the module itself."""
NOTHING: Name = ("", "")
PATCHED = "="
"""Begins a name that the project sets itself, or asks for; alone it stands for the whole module."""
CALL = "()"
"""Ends a name whose result is meant, or that is called in a way that only a run shows."""
ENTERED = ".__enter__()"
"""Ends a name whose __enter__ is meant."""
MOST_SHOWN = 100
"""Characters of a text that is told as an argument's value."""
MOST_DIGITS = 20
SPACE = re.compile(r"\s")
WAYS: dict[type[ast.AST], str] = {
    ast.For: "__iter__",
    ast.comprehension: "__iter__",
    ast.Subscript: "__getitem__",
    ast.Call: "__len__",
}
"""The method that a part of a program takes of an object without its name."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def read_names(tree: ast.AST, modules: Mapping[str, Name]) -> Iterator[Name]:
    """Yield modules, and what is read of them and called, without a guard.

    ``modules`` are the names that stand for one all through the file.
    """
    guarded = find_guarded(tree)
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for nodes, known, texts in _scopes(tree, modules, guarded):
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
                    yield module, f"{name}({_shape_of(node, texts)})"


def _shape_of(call: ast.Call, texts: Mapping[str, ast.expr]) -> str:
    """Return how many arguments a call has by position, then the names of the others.

    "" where only a run shows them; "0=" and "name=" say what is known of a value. ``texts`` are
    names that stand for a constant.
    """

    def show(value: ast.expr) -> str:
        return _shown(texts.get(value.id, value) if isinstance(value, ast.Name) else value)

    starred = any(isinstance(one, ast.Starred) for one in call.args)
    if starred or any(one.arg is None for one in call.keywords):
        return ""
    shown = [f"{number}={show(one)}" for number, one in enumerate(call.args)]
    words = [f"{one.arg}={show(one.value)}" for one in call.keywords]
    known = [word for word in shown if not word.endswith("=")]
    return ",".join([str(len(call.args)), *known, *(word.rstrip("=") for word in words)])


def _shown(value: ast.expr) -> str:
    """Return short texts, numbers, True, None, "module.NAME" or "object.method()", quoted."""
    match value:
        case ast.Constant(value=str(text)) if len(text) <= MOST_SHOWN and not SPACE.search(text):
            written = repr(text)
        case ast.Constant(value=int() | float() | None as one) if len(repr(one)) <= MOST_DIGITS:
            written = repr(one)
        case ast.Attribute(value=ast.Name()):
            written = ast.unparse(value)
        case ast.Call(func=ast.Attribute(value=ast.Name()) as function):
            written = f"{ast.unparse(function)}()"
        case ast.List(elts=parts) | ast.Tuple(elts=parts) if all(map(_shown, parts)):
            written = ast.unparse(value)
        case _:
            return ""
    return quote(written, safe="").replace(".", "%2E")


_Scope = tuple[ast.AST, Mapping[str, Name], Mapping[str, ast.expr]]
"""A file or a function, what names stand for around it, and which are constants."""


def _scopes(
    tree: ast.AST, modules: Mapping[str, Name], guarded: set[ast.AST]
) -> Iterator[tuple[list[ast.AST], Mapping[str, Name], Mapping[str, ast.expr]]]:
    """Yield the nodes of each scope, with what names stand for there: parts, and constants."""
    shared = _shared_names(tree)
    given = _Given(tree)
    scopes: list[_Scope] = [(tree, {}, {})]
    for scope, outer, before in scopes:
        nodes = [*ast.iter_child_nodes(scope)]
        for node in nodes:
            nodes += () if isinstance(node, FUNCTIONS) else ast.iter_child_nodes(node)
        bound = Counter(chain.from_iterable(map(_bound_names, nodes)))
        known = {name: one for name, one in outer.items() if name not in bound} | {**modules}
        for name, one in given.arguments_of(scope).items():
            if bound[name] == 1:
                known[name] = one
        texts = {name: one for name, one in before.items() if name not in bound}
        binding = [node for node in nodes if isinstance(node, (ast.Assign, ast.For, ast.With))]
        for node in sorted(binding, key=lambda one: one.lineno):
            for name, value, more in _bindings(node):
                if bound[name] != 1 or name in shared:
                    continue
                module, part = _whole_name(value, known)
                is_class = part.rpartition(".")[2][:1].isupper()
                if CALL in part or is_class:
                    known[name] = (module, part + more)
                if isinstance(value, ast.Constant):
                    texts[name] = value
        given.note_calls([node for node in nodes if node not in guarded], known)
        yield nodes, known, texts
        scopes += [(node, known, texts) for node in nodes if isinstance(node, FUNCTIONS)]


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield the names that a statement binds to a value, or to what its __enter__ returns."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value, ""
        case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=[value, *_])):
            yield name, value, ""  # the first round of a loop is enough to fail
        case ast.With(items=items):
            for item in items:
                if isinstance(item.optional_vars, ast.Name):
                    yield item.optional_vars.id, item.context_expr, ENTERED


class _Given:
    """What a file's functions are given wherever it calls them, by their parameters."""

    def __init__(self, tree: ast.AST) -> None:
        self.mentioned: Counter[str] = Counter()
        named: Counter[str] = Counter()
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name):
                    self.mentioned[name] += 1
                case ast.FunctionDef(name=name):
                    named[name] += 1
        self.outer: set[ast.AST] = set()
        for node in ast.iter_child_nodes(tree):
            match node:
                case ast.FunctionDef(name=name) if named[name] == 1:
                    self.outer.add(node)
        self.calls: dict[str, list[dict[str | int, Name]]] = {}

    def note_calls(self, nodes: Iterable[ast.AST], known: Mapping[str, Name]) -> None:
        """Keep what the calls of a scope give, as far as that is known."""
        for node in nodes:
            match node:
                case ast.Call(func=ast.Name(id=name)):
                    calls = self.calls.setdefault(name, [])
                    calls.append(_given_by(node, known))

    def arguments_of(self, scope: ast.AST) -> dict[str, Name]:
        """Return what a function's parameters are in each of its calls, where all give the same."""
        if scope not in self.outer or not isinstance(scope, ast.FunctionDef):
            return {}
        calls = self.calls.get(scope.name, [])
        every = len(calls) == self.mentioned[scope.name]
        if scope.decorator_list or not calls or not every:
            return {}
        found: dict[str, Name] = {}
        parameters = [*scope.args.posonlyargs, *scope.args.args]
        for number, one in enumerate(parameters):
            values: set[Name] = set()
            for call in calls:
                by_name = call.get(one.arg, NOTHING)
                values.add(call.get(number, by_name))
            value = min(values)
            if len(values) == 1 and CALL in value[1]:
                found[one.arg] = value
        return found


def _given_by(call: ast.Call, known: Mapping[str, Name]) -> dict[str | int, Name]:
    """Return what a call gives, by position and by name; nothing where only a run shows it."""
    given: dict[str | int, Name] = {}
    for number, one in enumerate(call.args):
        if isinstance(one, ast.Starred):
            return {}
        given[number] = _whole_name(one, known)
    for word in call.keywords:
        if word.arg is not None:
            given[word.arg] = _whole_name(word.value, known)
    return given


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
