"""Tell where this Python installs packages, by the rule that installers follow; argv is the file to write (JSON), and "real" where links are to be followed."""

import json
import os
import sys
import sysconfig


def by_sysconfig():
    preferred = getattr(sysconfig, "get_preferred_scheme", None)
    return sysconfig.get_paths(preferred("prefix")) if preferred else sysconfig.get_paths()


def by_distutils():
    from distutils.command.install import install
    from distutils.dist import Distribution

    command = install(Distribution({"name": "x"}))
    command.finalize_options()
    return {
        "purelib": command.install_purelib,
        "platlib": command.install_platlib,
        "scripts": command.install_scripts,
        "data": command.install_data,
        "include": os.path.dirname(command.install_headers.rstrip("/")),
    }


def main():
    paths = by_sysconfig()
    if sys.version_info < (3, 10):
        try:
            paths = by_distutils()
        except Exception:
            pass
    path_of = os.path.realpath if sys.argv[2:] == ["real"] else os.path.abspath
    told = {
        name: path_of(paths[name]) for name in ("purelib", "platlib", "scripts", "data", "include")
    }
    told["path"] = [path_of(path) for path in sys.path[1:] if path]
    with open(sys.argv[1], "w") as file:
        json.dump(told, file)


main()
