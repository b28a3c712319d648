"""Read what a setup.py hands to setup() from its text: nothing in it is run.

Conditions on the interpreter and the platform become environment markers, so that what is read holds for every base:
``if sys.version_info < (3, 8): needs.append("typing-extensions")`` is a requirement with a marker.  What only running
the file would tell is Unknown, and stays so wherever it is used.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatchmethod

from envbuild.resolve.setup_py.conditions import TRUE, Condition, condition_of
from envbuild.resolve.setup_py.expressions import DEEPEST, Expressions, Unknown, name_of
from envbuild.resolve.setup_py.handed import Handed, Lines, Table, Text, Value

TOLD = ("name", "version", "install_requires", "extras_require", "setup_requires")
CHANGING = ("append", "extend", "insert", "update", "remove", "pop")
"""Methods that change what they are called on."""


class Ended(Exception):  # noqa: N818  (a way out of the walk, not an error)
    """The file raises or exits before it calls setup()."""


def read_setup(text: str, files: Mapping[str, str]) -> Handed | None:
    """Return what a setup.py hands to setup(); None where it cannot be read, or calls it nowhere.

    ``files`` are the texts that it may read, by their path inside the archive's top folder.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the parser thinks of the file's style
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    walk = _Walk(files)
    try:
        walk.run(tree.body, TRUE)
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

    def run(self, body: Sequence[ast.stmt], condition: Condition) -> None:
        """Go through statements that hold under a condition."""
        for statement in body:
            self._statement(statement, condition)

    @singledispatchmethod
    def _statement(self, node: ast.stmt, condition: Condition) -> None:
        """Follow one statement; of most kinds nothing is to be told."""

    @_statement.register(ast.FunctionDef)
    def _define(self, node: ast.FunctionDef, condition: Condition) -> None:
        if condition == TRUE:
            self.functions[node.name] = node

    @_statement.register(ast.Assign)
    def _assigned(self, node: ast.Assign, condition: Condition) -> None:
        for target in node.targets:
            self._assign(target, node.value, condition)

    @_statement.register(ast.AnnAssign)
    def _annotated(self, node: ast.AnnAssign, condition: Condition) -> None:
        if node.value is not None:
            self._assign(node.target, node.value, condition)

    @_statement.register(ast.AugAssign)
    def _augmented(self, node: ast.AugAssign, condition: Condition) -> None:
        if isinstance(node.op, ast.Add):
            self._extend(node.target, node.value, condition)
        else:
            self._forget([node])

    @_statement.register(ast.Expr)
    def _expression(self, node: ast.Expr, condition: Condition) -> None:
        if isinstance(node.value, ast.Call):
            self._do(node.value, condition)

    @_statement.register(ast.Try)
    def _tried(self, node: ast.Try, condition: Condition) -> None:
        self.run(node.body, condition)
        self._forget([*node.handlers, *node.orelse, *node.finalbody])

    @_statement.register(ast.With)
    def _opened(self, node: ast.With, condition: Condition) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self._assign(item.optional_vars, item.context_expr, condition)
        self.run(node.body, condition)

    @_statement.register(ast.Raise)
    def _raised(self, node: ast.Raise, condition: Condition) -> None:
        if condition == TRUE and self.handed is None and not self.depth:
            raise Ended(ast.unparse(node))

    @_statement.register(ast.For)
    @_statement.register(ast.While)
    def _repeated(self, node: ast.stmt, _: Condition) -> None:
        self._forget([node])

    @_statement.register(ast.If)
    def _branch(self, node: ast.If, condition: Condition) -> None:
        test = condition_of(node.test, self.condition_named)
        if test is None:
            self._forget([*node.body, *node.orelse])
            with_setup = [part for part in (node.body, node.orelse) if _calls_setup(part)]
            for part in with_setup:
                self.run(part, condition)
            return
        self.run(node.body, condition.both(test))
        self.run(node.orelse, condition.both(test.negated()))

    def _forget(self, nodes: Iterable[ast.AST]) -> None:
        """Hold for unknown whatever these statements may change."""
        for node in nodes:
            for inner in ast.walk(node):
                for name in _changed(inner):
                    self.names[name] = None

    def _assign(self, target: ast.expr, value: ast.expr, condition: Condition) -> None:
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._set_item(target.value.id, target.slice, value, condition)
            return
        if not isinstance(target, ast.Name):
            self._forget([target])
            return
        known = self.known(value) or condition_of(value, self.condition_named)
        before = self.names.get(target.id)
        if condition == TRUE:
            self.names[target.id] = known
        elif isinstance(known, Lines) and (before is None or isinstance(before, Lines)):
            old = before.items if before else ()
            kept = tuple((text, where.both(condition.negated())) for text, where in old)
            new = tuple((text, where.both(condition)) for text, where in known.items)
            self.names[target.id] = Lines(kept + new)
        else:
            self.names[target.id] = None

    def _set_item(self, name: str, key: ast.expr, value: ast.expr, condition: Condition) -> None:
        table = self.names.get(name)
        where = self.known(key)
        if not isinstance(table, Table) or not isinstance(where, Text) or condition != TRUE:
            self.names[name] = None
            return
        self.names[name] = Table({**table.items, where.text: self.known(value)})

    def _extend(self, target: ast.expr, value: ast.expr, condition: Condition) -> None:
        if not isinstance(target, ast.Name):
            self._forget([target])
            return
        before, more = self.names.get(target.id), self.known(value)
        if isinstance(before, Lines) and isinstance(more, Lines):
            new = tuple((text, where.both(condition)) for text, where in more.items)
            self.names[target.id] = Lines(before.items + new)
        else:
            self.names[target.id] = None

    def _do(self, call: ast.Call, condition: Condition) -> None:
        """Follow a call that stands by itself: setup(), a change of a list, an exit."""
        name = name_of(call.func)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name == "setup" and (owner is None or name_of(owner) in ("setuptools", "core")):
            self.handed = Handed(keywords=self._keywords(call))
        elif (
            name in ("exit", "_exit")
            and condition == TRUE
            and self.handed is None
            and not self.depth
        ):
            raise Ended
        elif name in ("append", "extend", "insert") and isinstance(owner, ast.Name) and call.args:
            more = (
                call.args[-1]
                if name == "extend"
                else ast.List(elts=[call.args[-1]], ctx=ast.Load())
            )
            self._extend(ast.Name(id=owner.id, ctx=ast.Store()), more, condition)
        elif name == "update" and isinstance(owner, ast.Name):
            self.names[owner.id] = None
        elif name in self.functions and owner is None:
            self._go_inside(self.functions[name], call, condition)

    def _bind(self, parameters: ast.arguments, call: ast.Call) -> None:
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
            rest = ast.List(elts=call.args[len(names) :], ctx=ast.Load())
            self.names[parameters.vararg.arg] = self.known(rest)

    def inside(self, function: ast.FunctionDef, call: ast.Call) -> Value:
        """Go through a function of the file, and return what it returns.  Raises Unknown."""
        found = self._go_inside(function, call, TRUE)
        if found is None:
            raise Unknown
        return found

    def _go_inside(
        self, function: ast.FunctionDef, call: ast.Call, condition: Condition
    ) -> Value | None:
        if self.depth >= DEEPEST:
            raise Unknown
        kept = dict(self.names)
        self._bind(function.args, call)
        self.depth += 1
        try:
            body = function.body
            ends = next((n for n, s in enumerate(body) if isinstance(s, ast.Return)), len(body))
            self.run(body[:ends], condition)
            final = body[ends] if ends < len(body) else None
            inner = body[-1].body[-1] if body and isinstance(body[-1], ast.With) else None
            last = final or inner
            returned = last.value if isinstance(last, ast.Return) else None
            return self.known(returned) if returned is not None else None
        finally:
            self.depth -= 1
            changed = {name for name in kept if self.names.get(name) != kept[name]}
            globals_ = {n for s in ast.walk(function) if isinstance(s, ast.Global) for n in s.names}
            self.names = {**kept, **dict.fromkeys(changed & globals_)}

    def _keywords(self, call: ast.Call) -> dict[str, Value | None]:
        """Return what is handed over by name; keywords from a dictionary that is not known leave the others open."""
        found = {word.arg: self.known(word.value) for word in call.keywords if word.arg is not None}
        for word in call.keywords:
            table = self.known(word.value) if word.arg is None else Table()
            given = table.items if isinstance(table, Table) else dict.fromkeys(TOLD)
            found = {**given, **found}
        return found


def _calls_setup(body: Sequence[ast.stmt]) -> bool:
    inner = (node for statement in body for node in ast.walk(statement))
    return any(isinstance(node, ast.Call) and name_of(node.func) == "setup" for node in inner)


def _changed(node: ast.AST) -> Iterable[str]:
    """Yield the names that a node may change."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.value, ast.Name):
        method = node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node.ctx, ast.Store) or method in CHANGING:
            yield node.value.id
