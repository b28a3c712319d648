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
        part = getattr(part, name.replace("()", ""), None)
        kind = part if isinstance(part, type) else kind
    function = getattr(part, "__init__", None) if part is kind else part
    try:
        function = inspect.unwrap(getattr(function, "__func__", function))
    except ValueError:
        return  # it answers to any name, and to that of what it wraps
    if wanted.endswith("()") and isinstance(function, types.FunctionType):
        try_beginning(function)


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


def try_beginning(function):
    """Run the requirements in a function's body that stand before any return and read no argument.

    They fail whenever the function is called.
    """
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body
        statements = [ast.unparse(one) for one in body]
        arguments = inspect.signature(function).parameters
    except Exception:
        return  # no source, or a Python before 3.9
    for text in statements:
        words = re.findall(r"\w+", text)
        if "return" in words:
            return
        if not REQUIREMENT.match(text) or DEVICE.search(text) or arguments.keys() & words:
            continue
        try:
            exec(text, dict(function.__globals__))
        except Exception as error:
            if isinstance(error, ImportError) or re.search("install|required", str(error)):
                raise
