"""Download Debian packages and verify their sha256.

They come from DEBIAN_MIRROR, else from the first mirror of this system.
"""

import glob
import os
import re
import sys

from fetch_packages import fetch_file

# of both forms of sources.list(5): one line a source, and deb822
SOURCE = re.compile(r"^(?:deb\s+(?:\[[^\]\n]*\]\s+)?|URIs:\s*)(\S+)", re.MULTILINE)


def find_mirror(folder="/etc/apt"):
    """Return DEBIAN_MIRROR, else the first mirror that apt is configured for."""
    if os.environ.get("DEBIAN_MIRROR"):
        return os.environ["DEBIAN_MIRROR"]
    lists = [folder + "/sources.list", *sorted(glob.glob(folder + "/sources.list.d/*"))]
    for path in filter(os.path.isfile, lists):
        with open(path) as file:
            found = SOURCE.search(file.read())
        if found:
            return found.group(1)
    raise SystemExit("this system names no Debian mirror: set DEBIAN_MIRROR")


def main(target, listing):
    """Fetch all files of the list into a folder; a line is a sha256 and a path below the mirror."""
    mirror = find_mirror().rstrip("/")
    with open(listing) as lines:
        for line in lines:
            sha256, path = line.split()
            fetch_file(f"{mirror}/{path}", os.path.join(target, os.path.basename(path)), sha256)


if __name__ == "__main__":
    main(*sys.argv[1:])
