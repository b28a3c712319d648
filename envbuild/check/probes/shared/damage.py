"""Find files of any distribution that are empty, cut or gone; comes after distributions.

Images lose files on purpose (tests, headers, whole folders), lose symbols (strip) and get texts
that somebody mended: none of these is damage.
"""

import struct

ASIDE = re.compile(
    r"^\.\.|(^|/)(tests?|testing|docs?|examples?|include)/"
    r"|\.(pyc|pyi|pyx|pxd|c|h|hpp|cuh|md|rst|a)$",
    re.I,
)
"""Files that no program reads."""
ANOTHERS = re.compile(r"(^|/)(__init__|conftest|setup|tests?|test_\w+|\w+_test)\.py$", re.I)
"""Files that several distributions may have."""
DESCRIPTIONS = ("METADATA", "entry_points.txt")
"""What Python itself reads of a distribution."""
REWRITTEN = 65536
"""Bytes by which a new search path makes an object larger at most (patchelf)."""
SHT_SYMTAB = 2
QUOTED = re.compile("['\"/]([^'\"/\n]+)['\"]")
"""Names of files in the text of a program."""


def find_damage(records):
    """Distribution -> its damaged files, each with how it differs."""
    found = {}
    for item, rows in records:
        if item["shadowed"]:
            continue
        for path, digest, size in rows or ():
            if digest and size.isdigit() and size != "0":
                fault = judge_file(item, path, int(size))
                if fault:
                    found.setdefault(item["name"], {})[path] = fault
    if found:
        leave_out_others(records, found)
    return {name: sorted(files.items()) for name, files in found.items() if files}


def is_read(path):
    """Tell whether a program may read a file."""
    if ".dist-info/" in path:
        return path.endswith(DESCRIPTIONS)
    return not (ASIDE.search(path) or ANOTHERS.search(path))


def leave_out_others(records, found):
    """Take out what several distributions install, and what conda has changed after its RECORD."""
    for item, rows in records:
        if read(os.path.join(item["info"], "INSTALLER")).strip() == "conda":
            found.pop(item["name"], None)
        for name, files in found.items():
            if name == item["name"]:
                continue
            for row in rows or ():
                files.pop(row[0], None)


def judge_file(item, path, size):
    """How a file differs from the one that was installed; "" where it does not matter."""
    full = item["folder"] + "/" + path
    try:
        seen = os.stat(full).st_size
    except OSError:
        seen = None
    if seen == size or not is_read(path):
        return ""
    if seen is None:
        return "gone" if is_missed(item, full) else ""
    if seen == 0:
        return "empty"
    with open(full, "rb") as file:
        is_binary = b"\0" in file.read(4096)
    if is_binary:
        differs = not is_reworked(full, seen - size)
    else:
        differs = seen < size and is_cut(full)
    return "%d bytes, not %d" % (seen, size) if differs else ""


def is_cut(path):
    """Tell whether a text that was made shorter ends where no program would end it."""
    text = read(path)
    try:
        if path.endswith(".py"):
            compile(text, path, "exec")
            return not text.endswith("\n")
        if text.startswith(("{", "[")):
            json.loads(text)
    except (SyntaxError, ValueError):
        return True
    return False


def is_missed(item, full):
    """Tell whether anybody asks for a file that is gone, and not its whole folder."""
    folder, name = os.path.split(full)
    if not os.path.isdir(folder) or os.path.exists(full + "c"):
        return False
    if name in DESCRIPTIONS or name.endswith(".py"):
        return True
    if "quoted" not in item:
        item["quoted"] = set()
        for path in item["paths"]:
            if path.endswith(".py"):
                text = read(item["folder"] + "/" + path)
                item["quoted"].update(QUOTED.findall(text))
    return name in item["quoted"]


def is_reworked(path, more):
    """Tell whether an object was stripped, or got another search path."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return False
        if more > 0:
            return more < REWRITTEN
        (start,) = struct.unpack_from("<Q", head, 40)
        size, count = struct.unpack_from("<HH", head, 58)
        file.seek(start)
        table = file.read(size * count)
    kinds = []
    for at in range(0, len(table), size or 1):
        (kind,) = struct.unpack_from("<I", table, at + 4)
        kinds.append(kind)
    whole = len(kinds) == count
    return whole and SHT_SYMTAB not in kinds
