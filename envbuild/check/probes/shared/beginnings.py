"""Try what a function does before it looks at its arguments; joined to a probe after the preamble."""

import ast
import inspect
import re
import textwrap
import types


def try_call(module, wanted):
    """Try the beginning of the function that "Kind().run()" calls, where it is found."""
    part, kind = module, None
    for name in wanted.split("."):
        if kind is not None and getattr(part, "__self__", None) is kind:
            part = kind  # a class method such as from_pretrained makes one of its class
        elif isinstance(part, types.FunctionType):
            part = find_result(part)
        part = getattr(part, name.partition("(")[0], None)
        kind = part if isinstance(part, type) else kind
    function = getattr(part, "__init__", None) if part is kind else part
    try:
        function = inspect.unwrap(getattr(function, "__func__", function))
    except ValueError:
        return  # it answers to any name, and to that of what it wraps
    if wanted.endswith(")") and isinstance(function, types.FunctionType):
        shape = wanted.rpartition("(")[2][:-1].split(",")
        try_beginning(function, [one[:-5] for one in shape if one.endswith("=True")])


def find_result(function):
    """The class that a function says it returns, the first of several; None where it does not."""
    try:
        function = inspect.unwrap(function)
        said = function.__annotations__["return"]
        name = said if isinstance(said, str) else said.__name__
        found = function.__globals__[name.partition("|")[0].strip()]
    except Exception:
        return None  # it does not say, or what it wraps is no function
    return found if isinstance(found, type) else None


REQUIREMENT = re.compile(
    r"import |from |try:\n +(?:import|from) [^\n]*\nexcept"
    r"|(?:\w+ = )?[\w.]*(?:check|ensure|require|import)\w*\(.*\)$"
    r"|if not _?(?:is|has|use)_\w+(?:\(\))?:\n +raise ",
    re.I,
)
"""Statements that fail where a package is not there: imports, helpers that check, and flags."""
DEVICE = re.compile(r"cuda|gpu|[tnxhm]pu|mps|device|driver", re.I)
"""What a node lacks is no fault of the image."""


def try_beginning(function, chosen):
    """Run the requirements in a function's body that stand before any return and read no argument.

    They fail whenever the function is called; those below "if name:" where an argument is
    ``chosen``: given as True.
    """
    syntax = find_syntax(function)
    try:
        statements = [(ast.unparse(one), one) for one in open_body(syntax.body, chosen)]
        arguments = inspect.signature(function).parameters
    except Exception:
        return  # no source, or a Python before 3.9
    for text, statement in statements:
        if re.search(r"\breturn\b", text):
            return
        names = [getattr(one, "id", "") for one in ast.walk(statement)]
        if not REQUIREMENT.match(text) or DEVICE.search(text) or arguments.keys() & names:
            continue
        try:
            exec(text, dict(function.__globals__))
        except Exception as error:
            if isinstance(error, ImportError) or re.search("install|required", str(error)):
                raise


def open_body(body, chosen):
    """Yield statements, and those below a condition that a chosen argument meets."""
    for one in body:
        if isinstance(one, ast.If) and getattr(one.test, "id", "") in chosen:
            for inner in open_body(one.body, chosen):
                yield inner
        else:
            yield one


SYNTAX = {}


def find_syntax(function):
    """The syntax tree of a function; None where there is no source."""
    code = function.__code__
    if code not in SYNTAX:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(code))).body[0]
            SYNTAX[code] = tree if isinstance(tree, ast.FunctionDef) else None
        except Exception:
            SYNTAX[code] = None
    return SYNTAX[code]
