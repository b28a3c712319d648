"""Find what a function does whenever it is called, and that fails; joined to a probe after bodies.

Its lines are read, and those of the functions that they call. What stands below a condition or in
a loop may not run, and what stands below "try" may be caught: neither is a fault.
"""

import builtins

DEEPEST = 4
"""Functions that are followed, one from the other."""
MOST_FOLLOWED = 150
MOST_PAIRS = 4
"""Conditions below each other of which both ways are followed."""
RAISES = object()
"""Stands for an error that a function raises itself."""
FOLLOWED = {}
OWN_FOLDER = os.path.dirname(os.__file__)
NEVER_RUNS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
HARMLESS = re.compile("KeyError|IndexError|ValueError|OSError|FileNotFoundError|StopIteration")
"""Errors that a handler may catch, and those of a missing name or argument pass by."""
QUIET = re.compile("catch_warnings|errstate|open|option_context|config_context|[Ll]ock|no_grad")
"""What "with" may open, and lets each error pass."""
LEAVES = (
    ast.Break,
    ast.Continue,
    ast.Return,
    ast.Yield,
    ast.YieldFrom,
)


def list_sure(function):
    """The nodes of what runs whenever a function is called, up to its first return."""
    syntax = find_syntax(function)
    if not syntax or function.__code__.co_flags & NEVER_RUNS:
        return []
    return [one for one in list_steps(syntax.body) if isinstance(one, ast.AST)]


def list_steps(body):
    """The nodes of statements that surely run; a pair is two bodies of which one does."""
    found = []
    for number, one in enumerate(body):
        inner, leaves = [], any(isinstance(node, LEAVES) for node in ast.walk(one))
        rest = body[number + 1 :] if leaves else []
        if isinstance(one, ast.If):
            add_sure(one.test, found)
            found.append((one.body + rest, one.orelse + rest))
        elif isinstance(one, ast.While):
            add_sure(one.test, found)
        elif isinstance(one, ast.For):
            add_sure(one.iter, found)
        elif isinstance(one, ast.With):
            for item in one.items:
                add_sure(item.context_expr, found)
            opened = [getattr(item.context_expr, "func", item.context_expr) for item in one.items]
            inner = one.body if all(QUIET.search(name_of(name)) for name in opened) else []
        elif isinstance(one, ast.Try):
            caught = [ast.dump(item.type) if item.type else "" for item in one.handlers]
            inner = one.body if all(map(HARMLESS.search, caught)) else []
        elif not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            add_sure(one, found)
        found += list_steps(inner)
        if leaves or isinstance(one, ast.Raise):
            break
    return found


def add_sure(node, found):
    """Add a node and those below it that are worked out with it."""
    found.append(node)
    below = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.BoolOp):
        below = node.values[:1]
    elif isinstance(node, ast.IfExp):
        below = [node.test]
    elif isinstance(node, ast.Compare):
        below = [node.left, node.comparators[0]]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        below = [node.generators[0].iter]
    elif isinstance(node, ast.Lambda):
        below = []
    for one in below:
        add_sure(one, found)


def find_ending(function, kind, exact, deep):
    """The error with which a function of ``kind``, or of none, ends for sure; else None."""
    key = function, kind, exact
    if key not in FOLLOWED:
        code = function.__code__
        own = code.co_filename.startswith(OWN_FOLDER) and "-packages" not in code.co_filename
        if own or len(FOLLOWED) >= MOST_FOLLOWED:
            return None
        FOLLOWED[key] = None  # it may call itself
        syntax = find_syntax(function)
        if syntax and not code.co_flags & NEVER_RUNS:
            fault = SureLines(function, kind, exact, deep).find_fault(syntax.body)
            FOLLOWED[key] = None if fault is RAISES else fault
    return FOLLOWED[key]


def find_endings(layers, kind, exact, deep=DEEPEST):
    """The error of the first of several functions that ends for sure."""
    faults = (find_ending(layer, kind, exact, deep) for layer in layers)
    return next((fault for fault in faults if fault is not None), None)


def has_method(kind, function):
    """Whether a function is a method of a class or of one above it, or is wrapped by one."""
    for one in getattr(kind, "__mro__", ()):
        part = vars(one).get(function.__name__)
        while isinstance(part, types.FunctionType):
            if part is function:
                return True
            part = getattr(part, "__wrapped__", None)
    return False


class SureLines:
    """The sure lines of one function, with what its names mean there."""

    def __init__(self, function, kind, exact, deep):
        self.function, self.exact, self.deep = function, exact, deep
        self.scope, code = function.__globals__, function.__code__
        self.own = set(code.co_varnames + code.co_cellvars + code.co_freevars)
        self.kind, self.known = kind if isinstance(kind, type) else None, {}
        bound = [
            name_of(one)
            for one in ast.walk(find_syntax(function) or ast.Module([], []))
            if isinstance(getattr(one, "ctx", None), ast.Store)
        ]
        self.once = {name for name in bound if bound.count(name) == 1}
        first = code.co_varnames[: min(1, code.co_argcount)]
        if exact and has_method(self.kind, function) and first and first[0] not in bound:
            self.known[first[0]] = (self.kind, "exact")

    def find_fault(self, body, pairs=MOST_PAIRS):
        """The error that statements end with on each way through them; RAISES where they raise."""
        for step in list_steps(body):
            if isinstance(step, tuple):
                ways = [self.find_fault(way, pairs - 1) for way in step] if pairs else [None]
                if all(ways):
                    return min(ways, key=lambda way: way is RAISES)
                continue
            fault = self.judge_step(step)
            if fault is not None:
                return fault
            if isinstance(step, ast.Raise):
                return RAISES
        return None

    def judge_step(self, step):
        if isinstance(step, (ast.Import, ast.ImportFrom)):
            return self.judge_import(step)
        if isinstance(step, ast.Assert):
            return self.judge_assert(step)
        if isinstance(step, ast.Attribute) and isinstance(step.ctx, ast.Load):
            return self.judge_read(step)
        if isinstance(step, ast.Call):
            return self.judge_inner(step)
        if isinstance(step, ast.Assign) and isinstance(step.targets[0], ast.Name):
            if step.targets[0].id in self.once:
                self.known[step.targets[0].id] = self.find_part(step.value)
        return None

    def tell(self, kind, how, what):
        place = self.function.__qualname__, self.function.__module__.split(".")[0]
        return kind("%s() of %s %s %s" % (place[0], place[1], how, what))

    def is_foreign(self, module):
        """Whether a part is another package's: what one release has in itself fits together."""
        return module.split(".")[0] != self.function.__module__.split(".")[0]

    def find_part(self, node):
        """What an expression means: a part and "", or a class and "exact" for an object of it."""
        part, made = None, ""
        if isinstance(node, ast.Name):
            if node.id in self.known:
                part, made = self.known[node.id]
            elif node.id not in self.own:
                part = self.scope.get(node.id, getattr(builtins, node.id, None))
        elif isinstance(node, ast.Attribute):
            holder, how = self.find_part(node.value)
            if isinstance(holder, types.ModuleType):
                part = getattr(holder, node.attr, None)
            elif isinstance(holder, type) and how != "sample":
                part = find_attribute(holder, node.attr)
        elif isinstance(node, ast.Call):
            part, _ = self.find_part(node.func)
            function = find_function(part, "")[0] if callable(part) else None
            names = name_of(getattr(node.func, "value", None)), name_of(node.func)
            holder = self.scope.get(names[0])
            maker = "%s.%s" % (getattr(holder, "__name__", ""), names[1])
            part, made = find_made(part, function, maker) if callable(part) else (None, "")
        return (None, "") if made == "any" or isinstance(part, list) else (part, made)

    def judge_import(self, node):
        """The error of an import that stands in the function."""
        level = getattr(node, "level", 0)
        for one in node.names:
            whole = node.module or "" if isinstance(node, ast.ImportFrom) else one.name
            top = whole.split(".")[0]
            if level and whole:
                package = self.scope["__package__"]
                above = package.rsplit(".", level - 1)[0]
                whole = "%s.%s" % (above, whole)
            elif level or (top not in sys.modules and importlib.util.find_spec(top) is not None):
                continue
            try:
                __import__(whole)
                if isinstance(node, ast.ImportFrom) and one.name != "*":
                    take_part(sys.modules[whole], whole, one.name)
            except (ImportError, AttributeError) as error:
                return self.tell(ImportError, "imports:", error)
            except RuntimeError as error:
                # a part of the package itself says what it asks for
                return self.tell(ImportError, "imports:", error) if level else None
            except Exception:
                continue
        return None

    def judge_assert(self, node):
        """The error of "assert name is not None" where a package has put None for what it lacks."""
        test = node.test
        left = getattr(test, "left", None)
        name = getattr(left, "id", "")
        if name in self.own or self.scope.get(name, name) is not None:
            return None
        written = ast.dump(test)
        if not written.endswith("ops=[IsNot()], comparators=[Constant(value=None)])"):
            return None
        said = getattr(node.msg, "value", "")
        return self.tell(AssertionError, "asserts:", said or name)

    def judge_read(self, node):
        """The error of a name that is read of a module, or of an object that is made there."""
        part, made = self.find_part(node.value)
        if isinstance(part, types.ModuleType) and not hasattr(part, node.attr):
            if self.deep < DEEPEST and not self.is_foreign(part.__name__):
                return None
            try:
                __import__(part.__name__ + "." + node.attr)
            except ImportError:
                said = "module '%s' has no attribute '%s'" % (part.__name__, node.attr)
                return self.tell(AttributeError, "ends:", said)
        elif made == "sample":
            error = ask_sample(part, node.attr)
            return self.tell(AttributeError, "ends:", error) if error else None
        return None

    def judge_inner(self, node):
        """The error of a call: of arguments that are gone there, or of what that function does."""
        lack = self.find_lack(node)
        function, kind, hidden, exact = self.find_called(node)
        if lack is not None or function is None:
            return lack
        layers = find_layers(function, kind)
        words = [one.arg for one in node.keywords]
        starred = any(isinstance(one, ast.Starred) for one in node.args)
        foreign = self.deep == DEEPEST or self.is_foreign(function.__module__)
        if foreign and not starred and None not in words:
            shape = ",".join([str(len(node.args)), *words])
            fault = judge_call(layers, hidden, shape, function.__qualname__)
            if isinstance(fault, TypeError):
                return self.tell(TypeError, "calls", fault)
        return find_endings(layers, kind, exact, self.deep - 1) if self.deep else None

    def find_lack(self, node):
        """The error of a method that a class of another package has no more, or gives no more."""
        name, holder = name_of(node.func), getattr(node.func, "value", None)
        if name_of(getattr(holder, "func", None)) == "super":
            part = self.kind if self.exact and is_super(holder, self.function) else None
            held = [
                one for one in getattr(part, "__mro__", ()) if self.function in vars(one).values()
            ]
            lacks = held and find_above(self.function, name, part) is None
        else:
            part, made = self.find_part(holder)
            lacks = made == "exact" and lacks_attribute(part, name, made, True)
        if not lacks or not any(self.is_foreign(one.__module__) for one in part.__mro__[:-1]):
            return None
        return self.tell(AttributeError, "ends:", describe_lack(part.__name__, name))

    def find_called(self, node):
        """The function that a call goes to, its class, its hidden arguments, and if it is sure."""
        holder = getattr(node.func, "value", None)
        if name_of(getattr(holder, "func", None)) == "super":
            above = find_above(self.function, node.func.attr, self.kind)
            sure = isinstance(above, types.FunctionType) and is_super(holder, self.function)
            return (above if sure else None), self.kind, 1, True
        part, made = self.find_part(holder) if holder is not None else (None, "")
        if made == "exact":
            method = find_attribute(part, node.func.attr)
            function, hidden = find_function(method, made)
            return function, part, hidden, True
        called = self.find_part(node.func)[0]
        if not callable(called):
            return None, None, 0, False
        function, hidden = find_function(called, "")
        return function, (called if isinstance(called, type) else None), hidden, True
