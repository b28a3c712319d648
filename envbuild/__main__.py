"""Run the command line: ``python -m envbuild``."""

import sys


def main() -> None:
    """Run the command line and exit with its documented code."""
    from envbuild.cli import run_cli

    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
