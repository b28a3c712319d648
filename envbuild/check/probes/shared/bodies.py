"""Judge what a function does with values that are written in a call, and what its body reads.

Joined to a probe after calls; nothing of a body is run but comparisons.
"""

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
        text = find_text(one, function, known)
        if text:
            known[one.targets[0].id] = text
        value = name_of(getattr(one, "value", None)) if isinstance(one, ast.Assign) else ""
        if value in known and name_of(getattr(one.targets[0], "value", None)) == "self":
            setattr(kept, one.targets[0].attr, known[value])
    return None


PLAIN_TEXTS = re.compile(
    PLAIN_TESTS.pattern.replace("Call|", "") + "|FormattedValue|IfExp|JoinedStr"
)


def find_text(statement, function, known):
    """The text that a statement gives a name, of constants and known arguments only; else ""."""
    if not isinstance(statement, ast.Assign):
        return ""
    if not isinstance(statement.targets[0], ast.Name):
        return ""
    for node in ast.walk(statement.value):
        kind = type(node).__name__
        if not PLAIN_TEXTS.fullmatch(kind):
            return ""
    text = work_out(statement.value, function, known)
    return text if isinstance(text, str) else ""


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


def find_only_raise(function, below=False):
    """The error that a function raises whatever it is given; "" where it does more.

    A function that is called first counts as well, where it gets no argument to choose by.
    """
    short = below or len(function.__code__.co_code) < 300
    syntax = find_syntax(function) if short else None
    body = [one for one in syntax.body if not is_text(one)] if syntax else ()
    if not body:
        return ""
    told = getattr(body[0], "value", None) if isinstance(body[0], ast.Expr) else None
    helper = function.__globals__.get(name_of(getattr(told, "func", None)))
    given = {name_of(node) for node in ast.walk(told)} if told else set()
    chooses = given & set(function.__code__.co_varnames) and not below
    if isinstance(helper, types.FunctionType) and not chooses:
        return find_only_raise(helper, True)
    leaves = any(isinstance(node, LEAVING) for node in ast.walk(syntax))
    if len(body) > 1 and (leaves or not below):
        return ""
    return find_end(body)


LEAVING = (
    ast.Return,
    ast.While,
    ast.Yield,
)


def find_end(body):
    """The error that statements end with, in each branch; "" where they may end without one."""
    last = body[-1]
    if isinstance(last, ast.If) and last.orelse:
        return find_end(last.body) and find_end(last.orelse)
    raised = last.exc if isinstance(last, ast.Raise) else None
    kind = name_of(getattr(raised, "func", raised))
    texts = [one.value for one in getattr(raised, "args", ()) if isinstance(one, ast.Constant)]
    said = ": %s" % texts[0] if texts and isinstance(texts[0], str) else ""
    return kind + said if REMOVED.search(kind) else ""


def is_text(statement):
    return isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call)


def returns_self(function):
    """Whether a function of an object returns the object, wherever it ends."""
    syntax = find_syntax(function) if function is not None else None
    if syntax is None or not syntax.args.args:
        return False
    own = syntax.args.args[0].arg
    if not isinstance(syntax.body[-1], ast.Return):
        return False
    for node in ast.walk(syntax):
        if isinstance(node, (ast.Return, ast.Yield)):
            if name_of(node.value) != own:
                return False
    return True
