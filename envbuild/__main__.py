"""Run the command line: ``python -m envbuild``."""

import os
import sys


def main() -> None:
    """Run the command line and exit with its documented code, also while it is still imported."""
    _open_closed_streams()
    try:
        from envbuild.cli import run_cli

        code = run_cli(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130  # INTERRUPTED of errors, which may not be imported yet
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open what a shell has closed (``>&-``).

    The next file to be opened would take its place, and all that is said.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)  # the first free number is this one
            os.set_inheritable(nothing, True)
            setattr(sys, name, os.fdopen(nothing, "w" if number else "r"))


if __name__ == "__main__":
    main()
