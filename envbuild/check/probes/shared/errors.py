"""Comes after distributions: what an error says is wrong, and whose distributions are to blame."""

import re
import traceback

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
    while error.__cause__ is not None and "you should not try to import" in str(error):
        error = error.__cause__  # numpy guesses; what it was told stands behind
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


INSTALL = re.compile(
    r"\b(?:pip3?|conda to) install [`'\"]?(?!(?:it|this|them)\b)"
    r"[A-Za-z][\w.-]*(?:\[[\w,-]+\])?(?=[`'\"]|\s+-|[.,;)]?\s*(?:#|$))",
    re.M,
)
"""What a message says to install; not "pip install as follows"."""


def find_advice(error):
    """The words in which the message of an error says what to install; "" where it does not."""
    found = INSTALL.search(str(error))
    return found.group() if found else ""


def list_files(error):
    """The files of a traceback and of those behind it, innermost first, each once."""
    found, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        lines = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        found += reversed(lines)
        error = error.__cause__ or error.__context__
    return [path for number, path in enumerate(found) if path not in found[:number]]


def find_blamed(records, name, document):
    """The distributions to look at for a failure, nearest first.

    That is the one that printed it, then the owner of the module that the error names (a newer
    release may have taken away what is wanted), then the owners of the traceback's files in its
    order, then those of the module itself.
    """
    owner = {}
    for item, _ in records:
        for path in item["paths"]:
            owner.setdefault(os.path.join(item["folder"], path), item["name"])
    lacking = LACKING.search(document["error"])
    names = [document.pop("printed")] if "printed" in document else []
    for group in lacking.groups() if lacking else ():
        if group:
            names += nearest_owners(records, group.lower())
    names += [owner[path] for path in document.get("blame", ()) if path in owner]
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
