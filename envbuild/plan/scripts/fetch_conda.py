"""Download conda packages and verify their sha256.

The address of a channel comes from ENVBUILD_CHANNEL_NAME.
"""

import base64
import hashlib
import os
import re
import sys
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

CHUNK = 1 << 20


def channel_address(name):
    """Return the URL of a channel, and the header with its password if it has one."""
    variable = "ENVBUILD_CHANNEL_" + re.sub("[^A-Z0-9]", "_", name.upper())
    if not os.environ.get(variable):
        raise SystemExit(f"set {variable} to the address of the conda channel {name}")
    parts = urllib.parse.urlsplit(os.environ[variable])
    user, _, host = parts.netloc.rpartition("@")
    headers = {}
    if user:
        secret = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        headers = {"Authorization": "Basic " + secret}
    return urllib.parse.urlunsplit(parts._replace(netloc=host)).rstrip("/"), headers


def fetch_file(url, headers, path, sha256):
    """Download a file and verify it; a password never follows a redirection."""
    request = urllib.request.Request(url)
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    digest = hashlib.sha256()
    with urllib.request.urlopen(request, timeout=60) as source, open(path, "wb") as out:
        for block in iter(lambda: source.read(CHUNK), b""):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != sha256:
        name = os.path.basename(path)
        raise SystemExit(f"{name}: sha256 is {digest.hexdigest()}, the lock says {sha256}")


def main(target, listing):
    """Fetch all files of the list into a folder; a line is sha256, channel, path in the channel."""
    with open(listing) as lines:
        rows = [line.split() for line in lines]
    channels = {name: channel_address(name) for name in {row[1] for row in rows}}

    def fetch(row):
        sha256, name, path = row
        address, headers = channels[name]
        url = address + "/" + urllib.parse.quote(path)
        fetch_file(url, headers, os.path.join(target, os.path.basename(path)), sha256)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(fetch, rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
