"""Download every file of the given lists from the package index and verify its sha256."""

import base64
import hashlib
import html
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

# the lines that envbuild writes: NAME==VERSION --hash=sha256:SUM  # FILE @INDEX
LINE = re.compile(r"^(\S+)==\S+ --hash=sha256:(\w+)  # (\S+)(?: @(\S+))?$")
LINK = re.compile(r"""href\s*=\s*["']([^"']+)["']""")
CHUNK = 1 << 20

# Authorization headers by host
passwords = {}


def default_index():
    """Return the index that this image's pip is configured for, else pip's own default."""
    ask = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    asked = subprocess.run(
        ask, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True
    )
    if asked.returncode == 0 and asked.stdout.strip():
        return asked.stdout.strip()
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


def index_address(name):
    """Return the URL of an index without its password."""
    if not name:
        return without_password(os.environ.get("PIP_INDEX_URL") or default_index())
    return named_address("INDEX", name, f"the package index that the recipe calls {name}")


def named_address(kind, name, meaning):
    """Return the URL that ENVBUILD_KIND_NAME has, without its password."""
    variable = f"ENVBUILD_{kind}_" + re.sub("[^A-Z0-9]", "_", name.upper())
    if not os.environ.get(variable):
        raise SystemExit(f"set {variable} to the address of {meaning}")
    return without_password(os.environ[variable])


def without_password(url):
    """Return a URL without its password, which is kept for its host alone."""
    parts = urllib.parse.urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    if user:
        secret = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        passwords[host] = "Basic " + secret
    return urllib.parse.urlunsplit(parts._replace(netloc=host)).rstrip("/")


def open_url(url):
    """Open a URL; a password goes to its own host only, and never along a redirection."""
    request = urllib.request.Request(url, headers={"Accept": "text/html"})
    host = urllib.parse.urlsplit(url).netloc
    if host in passwords:
        request.add_unredirected_header("Authorization", passwords[host])
    return urllib.request.urlopen(request, timeout=60)


def find_file(index, project, file):
    """Return the URL of a file of a project, from the project's page of the index (PEP 503)."""
    canonical = re.sub("[-_.]+", "-", project).lower()
    page_url = f"{index}/{canonical}/"
    page = open_url(page_url).read().decode()
    for link in LINK.findall(page):
        url = urllib.parse.urljoin(page_url, html.unescape(link)).split("#")[0]
        name = url.rsplit("/", 1)[1].split("?")[0]
        if urllib.parse.unquote(name) == file:
            return url
    raise SystemExit(f"{file} is not on the package index any more")


def fetch_file(url, path, sha256):
    """Download a file and verify it."""
    digest = hashlib.sha256()
    with open_url(url) as source, open(path, "wb") as out:
        for block in iter(lambda: source.read(CHUNK), b""):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != sha256:
        name = os.path.basename(path)
        raise SystemExit(f"{name}: sha256 is {digest.hexdigest()}, the lock says {sha256}")


def main(target, *lists):
    """Fetch all files of the lists into the folder ``target``, six at a time."""
    wanted = []
    for path in lists:
        with open(path) as lines:
            wanted += [found.groups() for found in map(LINE.match, lines) if found]
    indexes = {name: index_address(name) for name in {row[3] for row in wanted}}

    def fetch(row):
        project, sha256, file, name = row
        fetch_file(find_file(indexes[name], project, file), os.path.join(target, file), sha256)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(fetch, wanted))


if __name__ == "__main__":
    main(*sys.argv[1:])
