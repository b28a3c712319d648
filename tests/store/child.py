"""A fetching process for tests to interrupt, kill and race: argv is INDEX STORE and then FILE SIZE SHA256."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from envbuild.context import Context
from envbuild.errors import INTERRUPTED, EnvbuildError
from envbuild.net.fetch import Artifact, fetch_artifacts
from envbuild.progress import Silent
from envbuild.run import LocalRunner
from envbuild.settings import load_settings
from envbuild.store.layout import Store


def main() -> int:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # test workers side by side ignore it, and we inherit that
    index, folder, file, size, sha256 = sys.argv[1:]
    settings = load_settings({"ENVBUILD_INDEX": index, "HOME": folder}, Path(folder))
    item = Artifact(file=file, size=int(size), sha256=sha256, kind="python", project="demo")
    try:
        fetch_artifacts(
            [item],
            Context(
                settings=settings, runner=LocalRunner(), store=Store(Path(folder)), report=Silent()
            ),
        )
    except EnvbuildError as error:
        print(error)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
