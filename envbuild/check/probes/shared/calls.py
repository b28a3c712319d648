"""Judge what a project calls, and reads of what a call makes; no call is made.

Joined to a probe after beginnings.  Whatever is not sure is no fault: code that is not Python,
what answers to any name, and decorators that change arguments.
"""

import operator

PYTHONS_OWN = (
    "abc",
    "builtins",
    "collections.abc",
    "typing",
)
REMOVED = re.compile("NotImplemented|Import|ModuleNotFound|Attribute|Runtime|Remov|Deprec|Obsol")
"""Errors of functions that were left to say that they are gone."""


def judge_use(module, wanted):
    """The error that "Kind(1).run(2,deep)" of a module ends with for sure; else None.

    What other modules of the project add to a class counts: they are imported before it is told.
    """
    found = find_fault(module, wanted)
    if found is None:
        return None
    for name in PARAMETERS["uses"]:
        try:
            __import__(name)
        except BaseException:  # its own answer tells that
            continue
    return find_fault(module, wanted)


def find_fault(module, wanted):
    try:
        return follow_steps(module, wanted)
    except Exception:
        return None  # a stranger's class that cannot even be asked


def follow_steps(module, wanted):
    """Go from part to part; ``made`` says that an object of the class ``part`` is meant.

    It is "exact" where no class below it can be meant; a "sample" is such an object itself.
    """
    part, made = module, ""
    for step in wanted.split("."):
        name, called, shape = step.rstrip(")").partition("(")
        kinds = part if isinstance(part, list) else [part]
        if made == "sample":
            return ask_sample(part, name)
        if made and all(lacks_attribute(one, name, made, called) for one in kinds):
            return describe_lack(kinds[0].__name__, name)
        answer = find_answer(kinds[0], name) if made and len(kinds) == 1 else None
        if answer is not None and called:
            said = "'%s' object is not callable: it has no method '%s'" % (answer.__name__, name)
            return TypeError(said) if refuses_calls(answer) else None
        if answer is not None:
            part, made = answer, "any"
            continue
        maker = "%s.%s" % (getattr(kinds[0], "__name__", ""), name)
        part = find_attribute(kinds[0], name) if len(kinds) == 1 else None
        function, hidden = find_function(part, made)
        if called and function is not None and (made != "any" or is_shared(kinds[0], name)):
            kind = kinds[0] if made else part
            layers = find_layers(function, kind)
            fault = judge_call(layers, hidden, shape, name) or judge_values(part, shape)
            fault = fault or find_endings(layers, kind, made != "any")
            if fault is not None and (made != "any" or isinstance(fault, TypeError)):
                return fault
        if made and called and returns_self(function):
            part = kinds
        elif called:
            part, made = find_made(part, function, maker)
        else:
            made = ""
        if part is None:
            break
    return None


def is_shared(kind, name):
    """Whether each known class below a class has its attribute, and no other one of that name."""
    kinds = [kind]
    for one in kinds:
        kinds += type.__subclasses__(one)
    own = inspect.getattr_static(kind, name, None)
    return all(inspect.getattr_static(one, name, None) is own for one in kinds)


IMPLICIT = {
    "__iter__": "is not iterable",
    "__getitem__": "is not subscriptable",
    "__len__": "has no len()",
}


def describe_lack(kind, name):
    """Python's own error where an object lacks a method."""
    if name in IMPLICIT:
        return TypeError("'%s' object %s" % (kind, IMPLICIT[name]))
    return AttributeError("'%s' object has no attribute '%s'" % (kind, name))


def ask_sample(sample, name):
    """The error with which an object of a class answers to a name."""
    try:
        getattr(sample, name)
    except AttributeError as error:
        return error
    return None


def find_answer(kind, name):
    """The class of what an object answers to a name that it lacks, as its __getattr__ says."""
    asks = inspect.getattr_static(kind, "__getattr__", None)
    if not isinstance(asks, types.FunctionType) or hasattr(kind, name) or may_set(kind, name):
        return None
    kinds = find_made(asks, asks)[0] or ()
    return kinds[0] if len(kinds) == 1 else None


def refuses_calls(kind):
    """Whether a class says that a call of its objects never returns."""
    said = getattr(getattr(kind, "__call__", None), "__annotations__", {}).get("return", "")
    return str(said).rpartition(".")[2] in ("Never", "NoReturn")


def find_attribute(part, name):
    """An attribute of a module or an object; of a class as it is written down, in it or above."""
    if isinstance(part, type):
        for one in part.__mro__:
            if name in vars(one):
                return vars(one)[name]
        return None
    return getattr(part, name, None)


def find_function(part, made):
    """The Python function that runs where a part is called, and how many arguments it gets beside.

    None where that is not sure.
    """
    function, hidden = part, int(bool(made))
    if isinstance(part, type):
        function, hidden = (part.__init__ if makes_itself(part) else None), 1
    elif isinstance(part, (classmethod, types.MethodType)):
        function, hidden = part.__func__, 1
    elif isinstance(part, staticmethod):
        function, hidden = part.__func__, 0
    elif not made and not isinstance(part, types.FunctionType):
        function, hidden = inspect.getattr_static(type(part), "__call__", None), 1
    return (function if isinstance(function, types.FunctionType) else None), hidden


def makes_itself(kind):
    """Whether a call of a class makes an object of just that class, and gives it to __init__."""
    usual = type(kind).__call__ is type.__call__
    return usual and not isinstance(kind.__new__, types.FunctionType)


def find_made(part, function, maker=""):
    """The class of what a call returns, and "exact" or "any": it may be of a class below that.

    It is a list where it may be of several. ``maker`` is the name that is called.
    """
    if maker in PARAMETERS["made"]:
        holder, _, kind = PARAMETERS["made"][maker].rpartition(".")
        return getattr(sys.modules[holder], kind)(0), "sample"
    if isinstance(part, type):
        if makes_itself(part):
            return part, "exact"
        return (part, "any") if list_removed(part) else (None, "")
    inner = inspect.unwrap(function) if function is not None else None
    code = getattr(inner, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return None, ""
    said = inner.__annotations__.get("return", "")
    words = said.split("|") if isinstance(said, str) else [getattr(said, "__name__", "")]
    words = [re.sub(r"\[.*\]$", "", word.strip()) for word in words]
    kinds = [find_class(inner, word) for word in words if word != "None"]
    sure = [one for one in kinds if one is not None and not inspect.isabstract(one)]
    return (sure, "any") if sure and len(sure) == len(kinds) else (None, "")


def find_class(function, name):
    """The class that a function's annotation means: of its globals, else the package's only one."""
    top = function.__module__.split(".")[0]
    first, _, rest = name.partition(".")
    if rest and first in function.__globals__:
        found = operator.attrgetter(rest)(function.__globals__[first])
        return found if isinstance(found, type) else None
    name = name.rpartition(".")[2] if first == top or not rest else ""
    holders = [function.__globals__]
    if name not in function.__globals__:
        holders = [vars(sys.modules[one]) for one in list(sys.modules) if one.split(".")[0] == top]
    found = {id(one[name]): one[name] for one in holders if isinstance(one.get(name), type)}
    kinds = [one for one in found.values() if one.__module__.split(".")[0] == top]
    return kinds[0] if len(kinds) == 1 else None


def lacks_attribute(kind, name, made, called):
    """Whether neither a class, nor its objects, nor a known class below it has an attribute."""
    kinds = [kind]
    for one in kinds if made != "exact" else ():
        kinds += type.__subclasses__(one)
    return not any(may_have(one, name, called) for one in kinds)


def may_have(kind, name, called):
    if hasattr(kind, name) or (name == "__iter__" and hasattr(kind, "__getitem__")):
        return True
    if (called or name in IMPLICIT) and name in list_removed(kind):
        return False
    asks = hasattr(kind, "__getattr__") or hasattr(type(kind), "__getattr__")
    if asks or kind.__getattribute__ is not object.__getattribute__:
        return True
    return may_set(kind, name)


def may_set(kind, name):
    """Whether the code of a class, or of one that it is made from, gives its objects a name."""
    sets = re.compile(r"\.%s\b[^=\n()]*=(?!=)|setattr\([^)\n]*[\"']%s[\"']" % (name, name))
    for one in kind.__mro__:
        if one.__module__ in PYTHONS_OWN:
            continue
        if name in one.__dict__.get("__annotations__", ()) or sets_any(one):
            return True
        path = getattr(sys.modules.get(one.__module__), "__file__", None) or ""
        if not path.endswith(".py") or sets.search(read(path)):
            return True
    return False


def list_removed(kind):
    """What releases took away from a class, and from those that it is made from."""
    found = []
    for one in kind.__mro__:
        found += PARAMETERS["removed"].get("%s.%s" % (one.__module__, one.__name__), ())
    return found


def sets_any(kind):
    """Whether a class gives its objects attributes whose names its code does not say."""
    for name, function in vars(kind).items():
        code = getattr(function, "__code__", None)
        words = set(code.co_names if code else ())
        starts = name in ("__init__", "__new__", "__post_init__")
        if "setattr" in words and not name.lstrip("_").startswith(("set", "init_subclass")):
            return True
        if starts and words & {"__dict__", "__setattr__", "vars", "locals"}:
            return True
    return False


def judge_call(layers, hidden, shape, name):
    """The error of a call with so many arguments by position, and with these names.

    Each layer but the first gets the names that the one before hands on.
    """
    written = read_shape(shape)
    values = {one: read_value(text) for one, text in written.items()}
    named = {one: value for one, value in values.items() if not one.isdigit()}
    count = int(shape.split(",")[0] or 0)
    given = [UNKNOWN] * hidden + [values.get(str(one), UNKNOWN) for one in range(count)]
    given = given if shape else []
    for number, layer in enumerate(layers):
        told = find_only_raise(layer)
        if told:
            return NotImplementedError("%s() does nothing but raise %s" % (name, told))
        signature = inspect.signature(bare_function(layer))
        bind = signature.bind if shape and number == 0 else signature.bind_partial
        try:
            bound = bind(*given, **named)
        except TypeError as error:
            return TypeError("%s() %s" % (name, error))
        if shape and number == 0:
            bound.apply_defaults()
            refused = find_refusal(layer, bound.arguments)
            if refused is not None:
                return ValueError("%s() refuses its arguments: %s" % (name, refused))
        given, more = [], inspect.getfullargspec(bare_function(layer)).varkw
        named = bound.arguments.get(more) or {}
    return None


def bare_function(function):
    """A function without what decorators have written on it: its own code is the truth."""
    code, values, cells = function.__code__, function.__defaults__, function.__closure__
    bare = types.FunctionType(code, function.__globals__, code.co_name, values, cells)
    bare.__kwdefaults__ = function.__kwdefaults__
    return bare


def find_layers(function, kind):
    """A function, and those that get the names of all that it is given, one from the other."""
    found = []
    while isinstance(function, types.FunctionType) and function not in found:
        found.append(function)
        function = find_handed(function, kind)
    return found


HANDLING = (
    "bind",
    "dict",
    "len",
    "list",
    "update",
)
"""What wrappers do with their arguments beside handing them on, and that takes none away."""


def find_handed(function, kind):
    """What a function hands all its other names to: what it wraps, or super().

    None where it does more with them, or catches an error.
    """
    syntax = find_syntax(function)
    if syntax is None or syntax.args.kwarg is None:
        return None
    more, handed = syntax.args.kwarg.arg, None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    inner = getattr(function, "__wrapped__", None)
    straight = list_sure(function)
    for node in ast.walk(syntax):
        if takes_away(node, more):
            return None
        if isinstance(node, ast.Call):
            spread = [name_of(one.value) for one in node.keywords if one.arg is None]
            cell = cells.get(name_of(node.func))
            holder = getattr(node.func, "value", None)
            if more in spread and inner and cell and cell.cell_contents is inner:
                handed = inner
            elif more in spread and is_super(holder, function) and node in straight:
                handed = find_above(function, node.func.attr, kind)
            elif more in spread + list(map(name_of, node.args)):
                if name_of(node.func) not in HANDLING:
                    return None
    return handed


def is_super(node, function):
    """Whether a node is super(), or says it of the function's own class: others begin elsewhere."""
    if name_of(getattr(node, "func", None)) != "super":
        return False
    return [*map(name_of, node.args[:1])] in ([], function.__qualname__.split(".")[-2:-1])


def find_above(function, name, kind):
    """What super() finds by a name, in a function of a class, or of one that it is made from."""
    passed = False
    for one in kind.__mro__ if isinstance(kind, type) else ():
        if passed and name in vars(one):
            return vars(one)[name]
        passed = passed or function in vars(one).values()
    return None


TAKING = (
    "clear",
    "pop",
    "popitem",
)


def takes_away(node, more):
    """Whether a function takes a name out of its keyword arguments here, or catches an error."""
    if isinstance(node, ast.ExceptHandler):
        return not isinstance(node.body[-1], ast.Raise)
    if isinstance(getattr(node, "ctx", None), ast.Store) and getattr(node, "id", "") == more:
        return True
    steps = ast.walk(node.iter) if isinstance(node, (ast.For, ast.comprehension)) else ()
    steps = [*steps, node.value] if isinstance(node, ast.Assign) else steps
    if more in map(name_of, steps):
        return True
    held = name_of(getattr(node, "value", None))
    return isinstance(node, ast.Delete) or (held == more and name_of(node) in TAKING)


def name_of(node):
    return getattr(node, "id", getattr(node, "attr", ""))
