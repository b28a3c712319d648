"""Read what a setup.py hands to setup() from its text: nothing in it is run.

Conditions on the interpreter and the platform become environment markers, so that what is read
holds for every base: ``if sys.version_info < (3, 8): needs.append("typing-extensions")`` is a
requirement with a marker.  What only running the file would tell is Unknown, and stays so wherever
it is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from envbuild.python_code import parse_code
from envbuild.resolve.setup_py.conditions import ALWAYS, Condition
from envbuild.resolve.setup_py.expressions import Expressions, Unknown, lines_in, name_of
from envbuild.resolve.setup_py.handed import Handed, Value

DEEPEST = 12
"""Calls within calls that are followed."""
READ = ("name", "version", "install_requires", "extras_require", "setup_requires")
CHANGING = ("append", "extend", "insert", "update", "remove", "pop")
"""Methods that change what they are called on."""


class Ended(Exception):  # noqa: N818  (a way out of the walk, not an error)
    """The file raises or exits before it calls setup()."""


def read_setup(text: str, files: Mapping[str, str]) -> Handed | None:
    """Return what a setup.py hands to setup(); None where it cannot be read, or calls it nowhere.

    ``files`` are the texts that it may read, by their path inside the archive's top folder.
    """
    tree = parse_code(text)
    if tree is None:
        return None
    walk = _Walk(files)
    try:
        walk.run(tree.body, ALWAYS)
    except Ended:
        return Handed(ends=True)
    except (RecursionError, Unknown):
        return None
    return walk.handed


class _Walk(Expressions):
    """One run over the statements of a file, in order, without running them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__(files)
        self.handed: Handed | None = None
        self.depth = 0

    def run(self, body: Sequence[ast.stmt], when: Condition) -> None:
        """Go through statements that hold under a condition."""
        for statement in body:
            self._follow_statement(statement, when)

    def _follow_statement(  # noqa: C901, PLR0912  (a row for each kind of statement)
        self, statement: ast.stmt, when: Condition
    ) -> None:
        """Follow one statement; most kinds say nothing of requirements."""
        match statement:
            case ast.FunctionDef(name=name) if when == ALWAYS:
                self.functions[name] = statement
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign_target(target, value, when)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign_target(target, value, when)
            case ast.AugAssign(target=target, op=ast.Add(), value=value):
                self._extend_list(target, value, when)
            case ast.AugAssign() | ast.For() | ast.While():
                self._forget_names([statement])
            case ast.Expr(value=ast.Call() as call):
                self._follow_call(call, when)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                self.run(body, when)
                self._forget_names([*handlers, *orelse, *finalbody])
            case ast.With(items=items, body=body):
                for item in items:
                    if item.optional_vars is not None:
                        self._assign_target(item.optional_vars, item.context_expr, when)
                self.run(body, when)
            case ast.Raise():
                self._end_walk(when)
            case ast.If():
                self._follow_branch(statement, when)

    def _end_walk(self, when: Condition) -> None:
        """Break off where the file itself would, and in every case."""
        if when == ALWAYS and self.handed is None and not self.depth:
            raise Ended

    def _follow_branch(self, node: ast.If, when: Condition) -> None:
        test = self.condition(node.test)
        if test is not None:
            self.run(node.body, when.both(test))
            self.run(node.orelse, when.both(test.negated()))
            return
        # what a test asks of the author's machine may go either way
        self._forget_names([*node.body, *node.orelse])
        for part in (node.body, node.orelse):
            if _calls_setup(part):
                self.run(part, when)

    def _forget_names(self, nodes: Iterable[ast.AST]) -> None:
        """Hold for unknown whatever these statements may change."""
        for node in nodes:
            for inner in ast.walk(node):
                name = _changed_name(inner)
                if name is not None:
                    self.names[name] = None

    def _assign_target(self, target: ast.expr, value: ast.expr, when: Condition) -> None:
        match target:
            case ast.Subscript(value=ast.Name(id=name), slice=key):
                self._set_item(name, key, value, when)
            case ast.Name(id=name):
                self.names[name] = self._assigned_value(self.names.get(name), value, when)
            case _:
                self._forget_names([target])

    def _assigned_value(
        self, before: Value | Condition | None, node: ast.expr, when: Condition
    ) -> Value | Condition | None:
        """Return what a name stands for after an assignment that holds under a condition."""
        value = self.known(node)
        if when == ALWAYS:
            return self.condition(node) if value is None else value
        old, new = () if before is None else lines_in(before), lines_in(value)
        if old is None or new is None:
            return None
        kept = [line.under(when.negated()) for line in old]
        return (*kept, *(line.under(when) for line in new))

    def _set_item(self, name: str, key: ast.expr, value: ast.expr, when: Condition) -> None:
        table, where = self.names.get(name), self.known(key)
        if isinstance(table, Mapping) and isinstance(where, str) and when == ALWAYS:
            self.names[name] = {**table, where: self.known(value)}
        else:
            self.names[name] = None

    def _extend_list(self, target: ast.expr, value: ast.expr, when: Condition) -> None:
        if not isinstance(target, ast.Name):
            self._forget_names([target])
            return
        before, more = lines_in(self.names.get(target.id)), lines_in(self.known(value))
        self.names[target.id] = None
        if before is not None and more is not None:
            self.names[target.id] = (*before, *(line.under(when) for line in more))

    def _follow_call(self, call: ast.Call, when: Condition) -> None:
        """Follow a call that stands by itself: setup(), a change of a list, an exit."""
        name = name_of(call.func)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name == "setup" and (owner is None or name_of(owner) in ("setuptools", "core")):
            self.handed = Handed(keywords=self._read_keywords(call))
        elif name in ("exit", "_exit"):
            self._end_walk(when)
        elif name in ("append", "insert") and isinstance(owner, ast.Name) and call.args:
            self._extend_list(owner, ast.List(elts=[call.args[-1]]), when)
        elif name == "extend" and isinstance(owner, ast.Name) and call.args:
            self._extend_list(owner, call.args[-1], when)
        elif name == "update" and isinstance(owner, ast.Name):
            self.names[owner.id] = None
        elif name in self.functions and owner is None:
            self._go_inside(self.functions[name], call, when)

    def _bind_parameters(self, parameters: ast.arguments, call: ast.Call) -> None:
        """Give the parameters of a function what it is called with, or their defaults."""
        names = [parameter.arg for parameter in parameters.args]
        for name, default in zip(reversed(names), reversed(parameters.defaults), strict=False):
            self.names[name] = self.known(default)
        for name, given in zip(names, call.args, strict=False):
            self.names[name] = self.known(given)
        for word in call.keywords:
            if word.arg in names:
                self.names[word.arg] = self.known(word.value)
        if parameters.vararg is not None:
            self.names[parameters.vararg.arg] = self.known(ast.List(elts=call.args[len(names) :]))

    def call_function(self, function: ast.FunctionDef, call: ast.Call) -> Value:
        """Go through a function of the file, and return what it returns.  Raises Unknown."""
        value = self._go_inside(function, call, ALWAYS)
        if value is None:
            raise Unknown
        return value

    def _go_inside(
        self, function: ast.FunctionDef, call: ast.Call, when: Condition
    ) -> Value | None:
        if self.depth >= DEEPEST:
            raise Unknown
        kept = dict(self.names)
        self._bind_parameters(function.args, call)
        self.depth += 1
        try:
            self.run(_before_return(function.body), when)
            returned = _returned_value(function.body)
            return self.known(returned) if returned is not None else None
        finally:
            self.depth -= 1
            # a function's names end with it; what it changed of the file's own is not followed
            changed = {name for name in kept if self.names.get(name) != kept[name]}
            self.names = {**kept, **dict.fromkeys(changed & _global_names(function))}

    def _read_keywords(self, call: ast.Call) -> dict[str, Value | None]:
        """Return the keywords of a call; a dictionary that is not known leaves the others open."""
        # setup(**metadata): what is named outright is known all the same
        spread: dict[str, Value | None] = {}
        named: dict[str, Value | None] = {}
        for word in call.keywords:
            value = self.known(word.value)
            if word.arg is not None:
                named[word.arg] = value
            else:
                spread |= value if isinstance(value, Mapping) else dict.fromkeys(READ)
        return spread | named


def _before_return(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    for place, statement in enumerate(body):
        if isinstance(statement, ast.Return):
            return body[:place]
    return body


def _returned_value(body: Sequence[ast.stmt]) -> ast.expr | None:
    """Return what a function returns: first, or at the end of its last ``with``."""
    for statement in body:
        if isinstance(statement, ast.Return):
            return statement.value
    last = body[-1] if body else None
    if isinstance(last, ast.With):
        last = last.body[-1]
    return last.value if isinstance(last, ast.Return) else None


def _global_names(function: ast.FunctionDef) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            found |= set(node.names)
    return found


def _calls_setup(body: Sequence[ast.stmt]) -> bool:
    inner = chain.from_iterable(map(ast.walk, body))
    return any(isinstance(node, ast.Call) and name_of(node.func) == "setup" for node in inner)


def _changed_name(node: ast.AST) -> str | None:
    """Return the name that a node may change."""
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store())
            | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store())
        ):
            return name
        case ast.Attribute(value=ast.Name(id=name), attr=method, ctx=context):
            return name if isinstance(context, ast.Store) or method in CHANGING else None
    return None
