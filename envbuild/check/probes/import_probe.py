"""Import modules, each in a process of its own, with its time and its traceback's last line.

Parameters: ``frameworks`` (modules of which the first that is installed is imported once and then
shared by the processes of the others, because several of them need it and it is slow), ``direct``
(distributions whose modules are imported; None: those that no other one asks for and that hold
compiled code or use a framework), ``modules`` (further import names), ``entries`` (programs for
packages that open more when they run, data/entry_points.toml; those that want a driver get the one
of stub_driver), ``uses`` (module -> names in it that
the project takes; tried where a distribution has that module or what it lies in), ``lines``
(what packages print where their import is good for nothing, data/import_lines.toml),
``limit`` (seconds for each).
A process that crashes, hangs or prints without end is an answer, not an accident.
"""

import fnmatch
import re
import select
import signal
import time
import traceback

KEPT = 16384
MOST_ALONE = 20
"""Distributions that are imported at most where nothing says what was asked for."""
LACKING = re.compile(
    r"cannot import name '\w+' from (?:partially initialized module )?'([\w.]+)'"
    r"|module '([\w.]+)' has no attribute|No module named '([\w.]+)'"
    r"|\b(numpy)\.(?:dtype size changed|core\.multiarray failed)|using (NumPy) 1"
)
"""The module that lacks what another one wants of it, as Python and numpy say it."""


ADVICE = re.compile(
    r"[\W_]*$|\[?(?:end|start) of|\W*(?:try|please|see|for more|more information|note|hint"
    r"|important|you can|if you|https?)\b",
    re.IGNORECASE,
)
"""Lines of a message that say what to do, and not what is wrong; rules of signs."""


def format_error(error):
    """The kind of an error and the line of its message that says what is wrong.

    That is the first one, unless it only announces another error: then the last.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not ADVICE.match(line)] or lines[:1]
    if not telling:
        return type(error).__name__
    announces = telling[0].endswith(":") or "following error" in telling[0]
    if announces or any("riginal error" in line for line in telling):
        chosen = telling[-1]
    else:
        chosen = telling[0]
    return ("%s: %s" % (type(error).__name__, chosen))[:500]


def list_files(error):
    """The files of a traceback and of those behind it, innermost first, each once."""
    found, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        lines = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        found += reversed(lines)
        error = error.__cause__ or error.__context__
    return [path for number, path in enumerate(found) if path not in found[:number]]


def find_blamed(records, paths, name, error):
    """The distributions to look at for a failure, nearest first.

    That is the owner of the module that the error names (a newer release may have taken away what
    is wanted), then the owners of the traceback's files in its order, then those of the module
    itself.
    """
    owner = {}
    for item, _ in records:
        for path in item["paths"]:
            owner.setdefault(os.path.join(item["folder"], path), item["name"])
    lacking = LACKING.search(error)
    names = []
    for group in lacking.groups() if lacking else ():
        if group:
            names += nearest_owners(records, group.lower())
    names += [owner[path] for path in paths if path in owner]
    names += nearest_owners(records, name)
    return [item for number, item in enumerate(names) if item not in names[:number]]


def nearest_owners(records, module):
    """Names of a module's owners, else of those of the nearest one above it that has any."""
    while module:
        found = [item["name"] for item in owners(records, module)]
        if found:
            return found
        module = module.rpartition(".")[0]
    return []


def attempt_import(name, say):
    """Import one module and say how it went."""
    started = time.time()
    imported = False
    try:
        __import__(name)
        module = sys.modules.get(name)
        imported = True
        if getattr(module, "__file__", None) is None and name in EMPTIED:
            raise ImportError("%s/__init__.py is gone: an uninstall took it away" % name)
        take_names(module, name, PARAMETERS["uses"].get(name, ()))
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
        }
        document["used"] = imported
    document["seconds"] = round(time.time() - started, 3)
    say(document)
    return document["ok"]


def take_names(module, name, wanted):
    """Take names as "from module import name" does: attributes, else modules below it."""
    for one in wanted:
        if not hasattr(module, one):
            try:
                __import__(name + "." + one)
            except ImportError as error:
                if getattr(error, "name", None) != name + "." + one:
                    raise
                getattr(
                    module, one
                )  # says why: a module that loads its parts late raises its own error here
                raise ImportError("cannot import name %r from %r" % (one, name))


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
    scope = {"note": ""}
    try:
        if entry["driver"] and not load_stub_driver():
            raise NameError("no driver can be played here")
        exec(compile(entry["code"], "<%s>" % entry["name"], "exec"), scope)
        document = {"ok": True, "note": scope["note"] or ""}
    except UNKNOWN_NAME as error:
        document = {
            "ok": not entry["strict"],
            "error": format_error(error),
            "kind": type(error).__name__,
        }
    except BaseException as error:
        document = {
            "ok": False,
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
        if entry["when"] and not os.environ.get(entry["when"]):
            continue
        if owners(records, entry["module"]) or module_file(entry["module"]):
            found.append(entry)
    return found


def in_child(work, limit):
    """Run ``work(say)`` in a forked process; returns what it said, or how it ended instead."""
    said_r, said_w = os.pipe()
    noise_r, noise_w = os.pipe()
    started = time.time()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            for fd in (1, 2):
                os.dup2(noise_w, fd)
            os.close(said_r)
            os.close(noise_r)

            def say(document):
                data = (json.dumps(document) + "\n").encode("ascii")
                while data:
                    data = data[os.write(said_w, data) :]

            work(say)
            status = 0
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass
            os._exit(status)  # no exit handlers: some frameworks hang or crash in theirs
    os.close(said_w)
    os.close(noise_w)
    said, noise, timed_out = drain_pipes(said_r, noise_r, started + limit)
    if timed_out:
        os.killpg(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    result = {
        "lines": [
            json.loads(line) for line in said.decode("ascii", "replace").splitlines() if line
        ],
        "noise": noise.decode("utf-8", "replace").splitlines(),
        "seconds": round(time.time() - started, 3),
        "timed_out": timed_out,
    }
    if os.WIFSIGNALED(status) and not timed_out:
        result["signal"] = os.WTERMSIG(status)
    elif os.WIFEXITED(status):
        result["code"] = os.WEXITSTATUS(status)
    return result


def drain_pipes(said_r, noise_r, deadline):
    """Read both pipes until the child's end of the first closes; keeps the end of the noise."""
    said, noise, timed_out = b"", b"", False
    open_fds = [said_r, noise_r]
    while said_r in open_fds:
        left = deadline - time.time()
        if left <= 0:
            timed_out = True
            break
        for fd in select.select(open_fds, [], [], min(left, 1.0))[0]:
            chunk = os.read(fd, 65536)
            if not chunk:
                open_fds.remove(fd)
            elif fd == said_r:
                said += chunk
            else:
                noise = (noise + chunk)[-KEPT:]
    while noise_r in open_fds and not timed_out and select.select([noise_r], [], [], 0)[0]:
        chunk = os.read(noise_r, 65536)
        if not chunk:
            break
        noise = (noise + chunk)[-KEPT:]
    os.close(said_r)
    os.close(noise_r)
    return said, noise, timed_out


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


def with_first(first, names, limit, entries):
    """Import ``first`` once; the others, and programs that want it, in forks of that process."""

    def work(say):
        say({"name": first, "answer": None})
        if attempt_import(first, lambda document: say({"name": first, "answer": document})):
            for name in names:
                result = in_child(lambda inner, name=name: attempt_import(name, inner), limit)
                say({"name": name, "answer": read_outcome(result, limit)})
            for name, document in try_entries(entries, limit).items():
                say({"name": name, "answer": document})

    result = in_child(work, limit * (len(names) + len(entries) + 1))
    answers = {line["name"]: line["answer"] for line in result["lines"] if line["answer"]}
    if first not in answers:
        answers[first] = read_outcome(dict(result, lines=[]), limit)
    else:
        find_printed(answers[first], result["noise"])
    return answers


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
    used = [name for name in PARAMETERS["uses"] if owners(records, name.split(".")[0])]
    for name in found[:1] + names + PARAMETERS["modules"] + used:
        if name not in every:
            every.append(name)
    asked = set(found[:1] + names + PARAMETERS["modules"])
    return (found[0] if found else None), every, asked, set(names) if alone else set()


def list_requirements(item):
    """What a distribution requires: canonical names, and what stands behind each."""
    head = read(os.path.join(item["info"], "METADATA")).split("\n\n", 1)[0]
    lines = re.findall(r"^Requires-Dist:[ \t]*([\w.-]+)([^\n]*)", head, re.M | re.I)
    return [(canonical(name), rest) for name, rest in lines]


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
    records = all_records()
    framework, names, asked, guessed = wanted_modules(records)
    note_emptied(records, names)
    limit = PARAMETERS["limit"]
    entries = entries_to_try(records)
    late = [entry for entry in entries if entry["after"] and entry["after"] == framework]
    first = framework if len(names) > 1 or late else None
    rest = [name for name in names if name != first]
    answers = with_first(first, rest, limit, late) if first else {}
    left = [name for name in rest if name not in answers]
    answers.update(import_all(left, limit))
    early = [entry for entry in entries if "entry:" + entry["name"] not in answers]
    broken = first is not None and not answers[first]["ok"]
    answers.update(try_entries([one for one in early if not (broken and one in late)], limit))
    tried = {name: answers.pop(name) for name in list(answers) if name.startswith("entry:")}
    for name in set(answers) - set(PARAMETERS["modules"]):
        doubtful = name in guessed or has_working_sibling(records, name, answers)
        if doubtful and lacks_optional_module(records, name, answers[name]):
            del answers[name]
    for name, document in answers.items():
        if not document["ok"]:
            document["used"] = document.get("used", False) or name not in asked
            blamed = find_blamed(records, document.get("blame", ()), name, document["error"])
            printed = document.pop("printed", None)
            if printed:
                blamed = [printed, *(one for one in blamed if one != printed)]
            document["blame"] = blamed
    programs = {name.partition(":")[2]: document for name, document in tried.items()}
    answer({"modules": answers, "entries": programs})


main()
