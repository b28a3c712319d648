"""Run the command line: ``python -m envbuild``."""

import sys


def main() -> None:
    """Run the command line and exit with its documented code, also while it is still imported."""
    try:
        from envbuild.cli import run_cli

        code = run_cli(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130  # INTERRUPTED of errors, which may not be imported yet
    sys.exit(code)


if __name__ == "__main__":
    main()
