"""Judge what a function does with values that are written in a call, and what its body reads.

Joined to a probe after calls; nothing of a body is run but comparisons.
"""

import dis
from urllib.parse import unquote

UNKNOWN = object()
"""An argument whose value only a run shows."""


def read_shape(shape):
    """What is written of a call's arguments: by position ("0") and by name; "" where nothing is."""
    words = [word.partition("=") for word in shape.split(",")[1:]]
    return {name: unquote(value) for name, _, value in words}


def read_value(written):
    try:
        return ast.literal_eval(written)
    except Exception:
        return UNKNOWN


def read_words(shape):
    """The values that are written in a call; of "solver=module.NAME" the name, as "solver.".

    None for others.
    """
    words = {}
    for name, text in read_shape(shape).items():
        value = read_value(text)
        if value is not UNKNOWN:
            words[name] = value
        else:
            words[name] = None
            words[name + "."] = text.rpartition(".")[2]
    return words


PLAIN_TESTS = re.compile(
    "And|Attribute|BoolOp|Call|Compare|Constant|Eq|In|Is|IsNot|List|Load|Name|NameConstant|Not"
    "|NotEq|NotIn|Or|Set|Str|Tuple|UnaryOp"
)
"""Parts of conditions that only compare."""


def find_refusal(function, arguments):
    """The error below a condition that a function begins with, and that known arguments meet.

    What it keeps of them in itself ("self.way = way") is known too.
    """
    syntax = find_syntax(function)
    known = {name: value for name, value in arguments.items() if value is not UNKNOWN}
    kept = types.SimpleNamespace()
    for one in syntax.body if syntax else ():
        nodes = list(ast.walk(one))
        raised = one.body[0] if isinstance(one, ast.If) else None
        if isinstance(raised, ast.Raise) and is_sure(one.test, function, known, kept):
            values = dict(known, self=kept)
            if work_out(one.test, function, values):
                error = work_out(raised.exc, function, values)
                return str(error or name_of(getattr(raised.exc, "func", raised.exc)))
        if any(isinstance(node, (ast.Return, ast.Yield)) for node in nodes):
            break
        for node in nodes:
            if isinstance(getattr(node, "ctx", None), ast.Store):
                lost = known if isinstance(node, ast.Name) else vars(kept)
                lost.pop(name_of(node), None)
        value = name_of(getattr(one, "value", None)) if isinstance(one, ast.Assign) else ""
        if value in known and name_of(getattr(one.targets[0], "value", None)) == "self":
            setattr(kept, one.targets[0].attr, known[value])
    return None


def is_sure(test, function, known, kept):
    """Whether a condition only compares, and asks for arguments that are known and no variables."""
    nodes = list(ast.walk(test))
    words = [node.id for node in nodes if isinstance(node, ast.Name) and node.id != "self"]
    own = [node.attr for node in nodes if name_of(getattr(node, "value", None)) == "self"]
    asked = [word for word in words if word in function.__code__.co_varnames]
    plain = all(PLAIN_TESTS.fullmatch(type(node).__name__) for node in nodes)
    calls = {name_of(node.func) for node in nodes if isinstance(node, ast.Call)}
    plain = plain and calls <= {"isinstance"}
    return plain and (asked or own) and set(asked) <= set(known) and set(own) <= set(vars(kept))


def work_out(expression, function, values):
    """What an expression of a function gives; None where that cannot be said here."""
    try:
        code = compile(ast.Expression(expression), "<expression>", "eval")
        return eval(code, function.__globals__, values)
    except Exception:
        return None


def judge_values(part, shape):
    """The error of a value that scikit-learn's own rules for a class or a function refuse."""
    rules = getattr(part, "_parameter_constraints", None)
    rules = rules or getattr(part, "_skl_parameter_constraints", None)
    checks = sys.modules.get("sklearn.utils._param_validation")
    if not isinstance(rules, dict) or checks is None:
        return None
    for name, written in read_shape(shape).items():
        value = read_value(written)
        if name not in rules or value is UNKNOWN:
            continue
        try:
            checks.validate_parameter_constraints({name: rules[name]}, {name: value}, part.__name__)
        except ValueError as error:
            return ValueError("%s() refuses its arguments: %s" % (part.__name__, error))
    return None


STRAIGHT = (
    ast.Assign,
    ast.AugAssign,
    ast.Expr,
    ast.Return,
)
MAYBE = (
    ast.BoolOp,
    ast.IfExp,
    ast.Lambda,
    ast.comprehension,
)


def find_gone(function, kind, deep=1):
    """The error of what a function's straight lines read of modules that have it no more.

    Methods of its own that it calls there are followed.
    """
    gone = list_gone(function)
    words = function.__code__.co_names if deep and isinstance(kind, type) else ()
    own = {word: inspect.getattr_static(kind, word, None) for word in words}
    inner = {word: one for word, one in own.items() if isinstance(one, types.FunctionType)}
    faults = {word: find_gone(one, kind, deep - 1) for word, one in inner.items()}
    for node in list_straight(function) if gone or any(faults.values()) else ():
        name = name_of(node)
        module = gone.get((name_of(getattr(node, "value", None)), name))
        if module:
            said = (function.__qualname__, function.__module__.split(".")[0], module, name)
            return AttributeError("%s() of %s ends: module '%s' has no attribute '%s'" % said)
        called = getattr(node, "func", None)
        if name_of(getattr(called, "value", None)) == "self" and faults.get(name_of(called)):
            return faults[name_of(called)]
    return None


GONE = {}


def list_gone(function):
    """Names that a function reads of modules that do not have them: (word, name) -> module."""
    code, scope = function.__code__, function.__globals__
    if code not in GONE:
        GONE[code] = {}
        words = {word for word in code.co_names if isinstance(scope.get(word), types.ModuleType)}
        steps = list(dis.get_instructions(code)) if words else []
        for step, after in zip(steps, steps[1:]):
            reads = step.opname == "LOAD_GLOBAL" and after.opname in ("LOAD_ATTR", "LOAD_METHOD")
            module = scope[step.argval] if reads and step.argval in words else None
            if module is None or hasattr(module, after.argval):
                continue
            try:
                __import__(module.__name__ + "." + after.argval)
            except ImportError:
                GONE[code][step.argval, after.argval] = module.__name__
    return GONE[code]


def list_straight(function):
    """The nodes of what runs whenever a function is called, up to its first return."""
    syntax = find_syntax(function)
    for one in syntax.body if syntax else ():
        nodes = list(ast.walk(one))
        if isinstance(one, STRAIGHT) and not any(isinstance(node, MAYBE) for node in nodes):
            for node in nodes:
                yield node
        if any(isinstance(node, (ast.Return, ast.Yield)) for node in nodes):
            return
