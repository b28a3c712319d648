"""Download conda packages and verify their sha256.

The address of a channel comes from ENVBUILD_CHANNEL_NAME.
"""

import os
import sys
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

from fetch_packages import fetch_file, named_address


def main(target, listing):
    """Fetch all files of the list into a folder; a line is sha256, channel, path in the channel."""
    with open(listing) as lines:
        rows = [line.split() for line in lines]
    names = {row[1] for row in rows}
    channels = {name: named_address("CHANNEL", name, f"the conda channel {name}") for name in names}

    def fetch(row):
        sha256, name, path = row
        url = channels[name] + "/" + urllib.parse.quote(path)
        fetch_file(url, os.path.join(target, os.path.basename(path)), sha256)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(fetch, rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
