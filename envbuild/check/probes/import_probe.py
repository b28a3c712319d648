"""Import modules, each in a process of its own, with its time and its traceback's last line.

Parameters: ``frameworks`` (modules of which the first that is installed is imported once and then
shared by the processes of the others, because several of them need it and it is slow), ``direct``
(distributions whose modules are imported; None: those that no other one asks for and that hold
compiled code or use a framework), ``modules`` (further import names), ``entries`` (programs for
packages that open more when they run, data/entry_points.toml; those that want a driver get the one
of stub_driver), ``found`` (what the expressions of such rows found in the project), ``calls``
(the arguments of the calls that rows are for), ``uses`` (module -> names in it that the project
takes; tried where a distribution has that module or what it lies in), ``lines`` (what packages
print where their import is good for nothing, data/import_lines.toml), ``removed`` and ``made``
(methods that classes had, what makes their objects, data/removed.toml), ``limit`` (seconds for
each), ``needed`` (modules of the project, of which those that are not there are answered),
``environment`` (variables that it sets).  A process that crashes or hangs is an answer.
"""

import fnmatch
import importlib.util
import re
import signal
import time
import types

MOST_ALONE = 20
"""Distributions that are imported at most where nothing says what was asked for."""

MOST_PROGRAMS = 3
"""Programs of a distribution whose modules are imported."""


def attempt_import(name, say):
    """Import one module and say how it went."""
    started = time.time()
    imported, taking = False, ""
    # a module that reads or prints its program's arguments must not meet those of the probe
    sys.argv[1:] = []
    try:
        __import__(name)
        module = sys.modules.get(name)
        imported = True
        if getattr(module, "__file__", None) is None and name in EMPTIED:
            raise ImportError("%s/__init__.py is gone: an uninstall took it away" % name)
        for taking in PARAMETERS["uses"].get(name, ()):
            take_name(module, name, taking)
        version = getattr(module, "__version__", None)
        document = {
            "ok": True,
            "file": getattr(module, "__file__", None),
            "version": version if isinstance(version, str) else None,
        }
    except BaseException as error:  # a module may even call sys.exit()
        document = {
            "ok": False,
            "error": format_error(error),
            "kind": type(error).__name__,
            "blame": list_files(error),
            "advice": find_advice(error),
        }
        document.update(used=imported, taking=taking)
    document["seconds"] = round(time.time() - started, 3)
    tops = {one.partition(".")[0] for one in sys.modules}
    document["loaded"] = sorted(tops - TOLD)
    TOLD.update(tops)
    say(document)
    return document["ok"]


TOLD = set()
"""Outermost packages that this process or the one before its fork has told as loaded."""


def take_name(module, name, wanted):
    """Take a name as "from module import name" does, and what is read of a module ("linalg.svd")."""
    if "(" in wanted:
        try_call(module, wanted)
        fault = judge_use(module, wanted)
        if fault is not None:
            raise fault
        return
    first, _, rest = wanted.partition(".")
    take_part(module, name, first)
    part = getattr(module, first, None)
    if rest and isinstance(part, types.ModuleType):
        take_name(part, part.__name__, rest)


def take_part(module, name, wanted):
    """Take an attribute of a module, else a module below it."""
    if hasattr(module, wanted):
        return
    try:
        __import__(name + "." + wanted)
    except ImportError as error:
        if getattr(error, "name", None) != name + "." + wanted:
            raise
        # says why: a module that loads its parts late raises its own error here
        getattr(module, wanted)
        raise ImportError("cannot import name %r from %r" % (wanted, name))


LOADED = set()
"""Outermost packages that are loaded by what was imported."""
UNKNOWN_NAME = (AttributeError, ModuleNotFoundError, NameError, TypeError)
EMPTIED = set()
"""Import names whose __init__.py was installed and is gone: Python sees a namespace."""


def note_emptied(records, names):
    for item, _ in records:
        if item["shadowed"]:
            continue
        for name in names:
            path = name.replace(".", "/") + "/__init__.py"
            if path in item["paths"] and not os.path.exists(os.path.join(item["folder"], path)):
                EMPTIED.add(name)


def attempt_entry(entry, say):
    """Run one program and say how it went."""
    started = time.time()
    scope = {"note": "", "found": PARAMETERS["found"].get(entry["written"], ())}
    scope["calls"] = [read_words(shape) for shape in PARAMETERS["calls"].get(entry["name"], ())]
    try:
        if entry["driver"] and not load_stub_driver():
            raise NameError("no driver can be played here")
        exec(compile(entry["code"], "<%s>" % entry["name"], "exec"), scope)
        document = {"ok": True, "note": scope["note"] or ""}
    except BaseException as error:
        document = {
            "ok": isinstance(error, UNKNOWN_NAME) and not entry["strict"],
            "error": format_error(error),
            "kind": type(error).__name__,
        }
    document["seconds"] = round(time.time() - started, 3)
    say(document)


def entries_to_try(records):
    """The programs whose distribution and module are here."""
    here = {item["name"] for item, _ in records if not item["shadowed"]}

    def has(pattern):
        return any(fnmatch.fnmatch(name, pattern) for name in here)

    found = []
    for entry in PARAMETERS["entries"]:
        if not any(map(has, entry["dists"])) or not all(map(has, entry["beside"])):
            continue
        if entry["when"] and not fnmatch.filter(map(str.upper, os.environ), entry["when"]):
            continue
        held = owners(records, entry["module"]) or module_file(entry["module"])
        if held and not (entry["parts"] and is_brought_in_part(records, entry["dists"])):
            found.append(entry)
    return found


def read_outcome(result, limit):
    """Turn a process's end into one answer."""
    if result["lines"]:
        document = result["lines"][-1]
    elif result["timed_out"]:
        document = {"ok": False, "error": "not finished after %d s" % limit, "kind": "timeout"}
    elif "signal" in result:
        try:
            name = signal.Signals(result["signal"]).name
        except ValueError:
            name = "signal %d" % result["signal"]
        document = {"ok": False, "error": "the process was killed by %s" % name, "kind": name}
    else:
        document = {
            "ok": False,
            "error": "the process ended with code %s" % result.get("code"),
            "kind": "exit",
        }
    document.setdefault("seconds", result["seconds"])
    LOADED.update(document.pop("loaded", ()))
    find_printed(document, result["noise"])
    return document


def find_printed(document, noise):
    """Make a failure of an import that says itself that it is good for nothing; keep its output."""
    for line in noise if document["ok"] else ():
        for row in PARAMETERS["lines"]:
            if document["ok"] and re.search(row["says"], line):
                document.update(ok=False, kind="printed", printed=row["package"])
                document["error"] = ("%s: %s" % (row["since"], line.strip()))[:500]
    if not document["ok"]:
        document["noise"] = noise[-12:]


def import_all(names, limit):
    answers = {}
    for name in names:
        answers[name] = read_outcome(
            in_child(lambda say, name=name: attempt_import(name, say), limit), limit
        )
    return answers


def try_entries(entries, limit):
    """Run programs, each in a process of its own; the answers by name."""
    answers = {}
    for entry in entries:
        result = in_child(lambda say, entry=entry: attempt_entry(entry, say), limit)
        answers["entry:" + entry["name"]] = read_outcome(result, limit)
    return answers


MARK = "=====import "
"""Begins a line between what the packages of one process print."""


def import_chain(names, limit, entries):
    """Import packages one after the other in one process, as a program does.

    Modules below them, and programs that want one, are tried in forks of it. What fails after
    the first package, and what comes later, is left out: each is tried in a process of its own.
    """
    tops = list(dict.fromkeys(name.split(".")[0] for name in names))

    def work(say):
        for top in tops:
            os.write(2, ("\n%s%s\n" % (MARK, top)).encode("ascii", "replace"))
            if not attempt_import(top, lambda document: say({"name": top, "answer": document})):
                return
            sys.stdout.flush()
            below = [name for name in names if name.startswith(top + ".")]
            found = import_all(below, limit)
            found.update(try_entries([one for one in entries if host_of(one) == top], limit))
            for name, document in found.items():
                say({"name": name, "answer": document, "top": top})

    result = in_child(work, limit)
    printed = dict.fromkeys(tops, ())
    for part in "\n".join(result["noise"]).split(MARK)[1:]:
        lines = part.splitlines()
        printed[lines[0]] = lines[1:]
    answers = {}
    for line in result["lines"]:
        name, document = line["name"], line["answer"]
        LOADED.update(document.pop("loaded", ()))
        if name in tops:
            find_printed(document, printed[name])
        sure = document["ok"] or line.get("top", name) == tops[0]
        if sure and (name in names or name.startswith("entry:")):
            answers[name] = document
    return answers


def host_of(entry):
    """The package in whose process a program is tried; "" where it needs one of its own."""
    if entry["after"]:
        return entry["after"]
    used = entry["takes"] or entry["calls"] or entry["written"]
    return entry["module"].split(".")[0] if used and not entry["driver"] else ""


def wanted_modules(records):
    """The framework's module or None, all to import, those the recipe asks for, those guessed."""
    candidates = PARAMETERS["frameworks"]
    found = [name for name in candidates if owners(records, name)]
    if len(candidates) == 1 and module_file(candidates[0]):
        found = candidates  # expected, and there without a distribution that says so
    direct = PARAMETERS["direct"]
    alone = direct is None
    direct = likely_direct(records) if alone else direct
    named = direct_imports(records, direct)
    names, every = [], []
    for name in direct:
        names += named.get(name, ())
    used = [name for name in PARAMETERS["uses"] if is_held(records, name)]
    asked = found[:1] + names + PARAMETERS["modules"]
    programs = [] if alone else list_programs(records, direct)
    asked += [name for name in programs if name.split(".")[0] in names]
    for name in asked + used:
        if name not in every:
            every.append(name)
    return (found[0] if found else None), every, asked, names if alone else programs


def list_programs(records, direct):
    """The modules of the programs that direct requirements install; none of a framework."""
    found, heavy = [], set()
    for name in PARAMETERS["frameworks"]:
        heavy.update(one["name"] for one in owners(records, name))
    for item, _ in records:
        if item["name"] not in direct or item["shadowed"]:
            continue
        if item["name"] in heavy or heavy & {name for name, _ in list_requirements(item)}:
            continue
        listed = read(os.path.join(item["info"], "entry_points.txt")).split("[console_scripts]")
        lines = listed[-1].split("\n[")[0] if len(listed) > 1 else ""
        found += re.findall(r"^[^=\n]+=\s*([\w.]+)\s*:", lines, re.M)[:MOST_PROGRAMS]
    return [name for name in dict.fromkeys(found) if "." in name and "__main__" not in name]


def is_absent(records, name):
    """Whether neither a distribution nor the Python itself has a module."""
    if is_held(records, name):
        return False
    try:
        return importlib.util.find_spec(name.split(".")[0]) is None
    except (ImportError, ValueError):
        return False  # what is set up by hand in sys.modules is there


def has_working_sibling(records, name, answers):
    """Whether another module of the same distribution imports: this one may be a script beside it."""
    holders = {one["name"] for one in owners(records, name)}
    working = [other for other in answers if other != name and answers[other]["ok"]]
    return any(holders & {one["name"] for one in owners(records, other)} for other in working)


def lacks_optional_module(records, name, document):
    """Whether a module fails for want of another one that its package may do without.

    What is called like its distribution has to import, and what a
    distribution requires without a condition has to be there.
    """
    lacking = re.search(r"No module named '([\w.]+)'", document.get("error", ""))
    if document.get("kind") != "ModuleNotFoundError" or lacking is None or lacking.group(1) == name:
        return False
    holders = owners(records, name)
    if any(one["name"].replace("-", "_") == name.lower() for one in holders):
        return False
    wanted = canonical(lacking.group(1).split(".")[0])
    names = {one["name"] for one in holders}
    for item, _ in records:
        if item["name"] in names and any(
            required == wanted and ";" not in rest for required, rest in list_requirements(item)
        ):
            return False
    return True


def likely_direct(records):
    """Distributions that somebody asked for, as far as an image shows: no other asks for them."""
    wanted, candidates = set(), []
    frameworks = set()
    for module in PARAMETERS["frameworks"]:
        frameworks.update(one["name"] for one in owners(records, module))
    for item, _ in records:
        asked = {name for name, rest in list_requirements(item) if "extra ==" not in rest}
        wanted |= asked
        compiled = any(path.endswith(".so") or ".so." in path for path in item["paths"])
        if compiled or asked & frameworks:
            candidates.append(item)
    return [
        item["name"]
        for item in candidates
        if item["name"] not in wanted
        and not item["shadowed"]
        and not item["name"].startswith("nvidia-")
    ][:MOST_ALONE]


def main():
    os.environ.update(PARAMETERS["environment"])
    records = all_records()
    framework, names, asked, guessed = wanted_modules(records)
    note_emptied(records, names)
    limit = PARAMETERS["limit"]
    entries = entries_to_try(records)
    late = [entry for entry in entries if framework and entry["after"] == framework]
    answers = import_chain(names, limit, entries)
    answers.update(import_all([name for name in names if name not in answers], limit))
    if framework and not answers[framework]["ok"]:
        entries = [entry for entry in entries if entry["after"] != framework]
    left = [entry for entry in entries if "entry:" + entry["name"] not in answers]
    answers.update(try_entries(left, limit))
    tried = [name for name in answers if name.startswith("entry:")]
    programs = {name.partition(":")[2]: answers.pop(name) for name in tried}
    for name in set(answers) - set(PARAMETERS["modules"]):
        doubtful = name in guessed or has_working_sibling(records, name, answers)
        optional = doubtful and lacks_optional_module(records, name, answers[name])
        if name in guessed and "." in name:  # what a program wants more, it says itself
            said = answers[name].get("error", "")
            optional = optional or re.search("install|SystemExit", said)
        if optional:
            del answers[name]
    for name, document in answers.items():
        if not document["ok"]:
            document["used"] = document.get("used", False) or name not in asked
            document["blame"] = find_blamed(records, name, document)
            blame_variable(document, functools.partial(attempt_import, name), limit)
    for entry in [one for one in entries if one["name"] in programs]:
        blame_variable(programs[entry["name"]], functools.partial(attempt_entry, entry), limit)
    absent = [name for name in PARAMETERS["needed"] if is_absent(records, name)]
    here = [item["name"] for item, _ in records if LOADED & set(packages(item["paths"]))]
    answer({"modules": answers, "entries": programs, "absent": absent, "loaded": here})


main()
