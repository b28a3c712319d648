"""For which GPUs shared objects hold code, by their fatbinary headers: no GPU, toolkit or import.

Layout as observed (not published): a region starts with the magic number, version 1, header size 16
and the size of what follows; in it are entries: kind (1 portable code, PTX; 2 machine code, SASS),
header size, size, and the capability times ten at byte 28, and flags at byte 40, of which bit 20 is
the "a" of sm_90a and bit 21 the "f" of sm_100f (as nvcc 13.0 writes them and cuobjdump reads them).
Of an ELF file with a section of such regions only that is read, and of a region only its headers.

Parameters: ``files`` (shell patterns over paths relative to site-packages), ``prefix`` (a conda
environment whose packages are read too, each as one; "" for none), ``left_out`` (names of packages
that are not), ``limit`` (seconds for all).
"""

import collections
import fnmatch
import glob
import site
import struct
import time

MAGIC = b"\x50\xed\x55\xba"
PTX, SASS, EXACT, FAMILY = 1, 2, 3, 4
ONE_GPU, ONE_FAMILY = 1 << 20, 1 << 21
PIECE = 4 << 20
MOST = 20000


def fatbin_sections(fd, size):
    """(offset, size) of the sections that hold regions; the whole file where no table is."""
    head = os.pread(fd, 64, 0)
    if len(head) < 64 or head[:4] != b"\x7fELF" or head[4] != 2:
        return []
    (offset,) = struct.unpack_from("<Q", head, 40)
    entry, count, names_at = struct.unpack_from("<HHH", head, 58)
    table = os.pread(fd, entry * count, offset)
    if not count or entry < 64 or len(table) < entry * count or names_at >= count:
        return [(0, size)]
    # of Elf64_Shdr (elf.h): where the name begins, then where the section is and its size
    rows = []
    for at in range(0, entry * count, entry):
        name_at, _, _, _, start, length = struct.unpack_from("<IIQQQQ", table, at)
        rows.append((name_at, start, length))
    _, start, length = rows[names_at]
    names = os.pread(fd, min(length, 1 << 20), start)
    found = []
    for name_at, start, length in rows:
        name = names[name_at:].split(b"\0", 1)[0]
        if name in (b".nv_fatbin", b"__nv_relfatbin") and start + length <= size:
            found.append((start, length))
    return found


def read_region(fd, at, size):
    """(end, kinds and capabilities) of the region at an offset; None where there is none."""
    head = os.pread(fd, 16, at)
    if len(head) < 16:
        return None
    _, version, header, length = struct.unpack("<IHHQ", head)
    end = at + header + length
    if version != 1 or header != 16 or end > size:
        return None
    found, here = set(), at + header
    while here + 64 <= end:
        entry = os.pread(fd, 32, here)
        if len(entry) < 32:
            break
        kind, _, header, length = struct.unpack_from("<HHIQ", entry)
        if kind not in (1, 2) or header < 32 or here + header + length > end:
            break
        (flags,) = struct.unpack("<I", os.pread(fd, 4, here + 40))
        found.add((classify_entry(kind, flags), struct.unpack_from("<I", entry, 28)[0]))
        here += header + length
    return end, frozenset(found)


def classify_entry(kind, flags):
    """An entry's kind: sm_90a runs on its GPU alone, sm_100f on its family like plain code."""
    if flags & ONE_GPU:
        return EXACT
    return FAMILY if kind == PTX and flags & ONE_FAMILY else kind


def scan_file(path, deadline):
    """Count the regions of one file by the set of their kinds and capabilities."""
    counts = collections.Counter()
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        for start, length in fatbin_sections(fd, size):
            at, end = start, start + length
            while at < end and time.time() < deadline:
                piece = os.pread(fd, min(PIECE, end - at), at)
                if not piece:
                    break
                at = count_regions(fd, piece, at, size, counts)
    finally:
        os.close(fd)
    return size, counts


def count_regions(fd, piece, base, size, counts):
    """Count the regions that begin in a piece; returns where to read on."""
    here = 0
    while True:
        found = piece.find(MAGIC, here)
        if found < 0:
            return base + max(len(piece) - len(MAGIC) + 1, 1)
        seen = read_region(fd, base + found, size)
        if seen is None:
            here = found + 4
            continue
        counts[seen[1]] += 1
        here = seen[0] - base
        if here >= len(piece):
            return seen[0]


def find_files(patterns):
    """Files below site-packages whose relative path matches."""
    folders = [f for f in sys.path if os.path.basename(f) in ("site-packages", "dist-packages")]
    found, seen = [], set()
    tops = {pattern.split("/", 1)[0] for pattern in patterns}
    for folder in folders + list(getattr(site, "getsitepackages", lambda: [])()):
        real = os.path.realpath(folder)
        if real in seen or not os.path.isdir(real):
            continue
        seen.add(real)
        for top in sorted(os.listdir(real)):
            if not any(fnmatch.fnmatch(top, pattern) for pattern in tops):
                continue
            for parent, _, names in os.walk(os.path.join(real, top)):
                for name in sorted(names):
                    path = os.path.join(parent, name)
                    relative = os.path.relpath(path, real)
                    if os.path.isfile(path) and any(
                        fnmatch.fnmatch(relative, pattern) for pattern in patterns
                    ):
                        found.append((relative, path))
    return found


def find_conda_files(prefix, left_out):
    """Shared objects and programs of conda packages, by the package's name."""
    found = []
    for record in sorted(glob.glob(os.path.join(prefix, "conda-meta/*.json"))):
        try:
            with open(record, encoding="utf-8") as text:
                package = json.load(text)
            name, paths = package["name"], package["files"]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if name in left_out:
            continue
        for path in paths:
            if ".so" not in path and not path.startswith("bin/"):
                continue
            full = os.path.join(prefix, path)
            if os.path.isfile(full) and not os.path.islink(full):
                found.append((name, full))
    return found


def describe_code(code, count):
    """The capabilities in a region by the kind of code, and how many such regions there are."""
    sass = {number for kind, number in code if kind in (SASS, FAMILY)}
    ptx = [number for kind, number in code if kind == PTX]
    exact = {number for kind, number in code if kind == EXACT}
    return {"count": count, "sass": sorted(sass), "ptx": sorted(ptx), "exact": sorted(exact)}


def main():
    started = time.time()
    deadline = started + PARAMETERS["limit"]
    codes, total, unread = {}, 0, []
    files = find_files(PARAMETERS["files"])
    if PARAMETERS["prefix"]:
        files += find_conda_files(PARAMETERS["prefix"], PARAMETERS["left_out"])
    for name, path in files[:MOST]:
        if time.time() > deadline:
            unread.append(name)
            continue
        size, counts = scan_file(path, deadline)
        total += size
        if counts:
            codes.setdefault(name, collections.Counter()).update(counts)
    found = []
    for name, counts in codes.items():
        regions = [describe_code(code, count) for code, count in counts.most_common(50)]
        found.append({"path": name, "regions": regions})
    took = time.time() - started
    answer({"files": found, "unread": unread, "bytes": total, "seconds": round(took, 3)})


main()
