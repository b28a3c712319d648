"""Shell that is no file of its own goes under shellcheck too: texts of tables, and of strings in Python.

Scripts that are put together of several parts are checked whole where they are made (tests/job, tests/wrap, tests/plan).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from envbuild import run
from envbuild.base.model import DebianPackage
from envbuild.build.image import runtime_files
from envbuild.build.in_base.overlay_run import debian_install_script, post_script
from envbuild.job.schedulers import SCHEDULERS
from envbuild.job.schedulers.protocol import Scheduler
from envbuild.job.sites.detect import PROBE
from envbuild.plan.scripts.activate_conda import PROGRAM
from envbuild.run import Command, LocalRunner
from envbuild.store.layout import Store
from tests.support import needs

BASH, SHELL = "#!/bin/bash", "#!/bin/sh"
LEFT_OUT = "SC1090,SC2013,SC2034,SC2154,SC2317"
"""Files of the image, names of apt's lists, which have no spaces; and what is told of a part for want of the rest."""


def scheduler_script(scheduler: Scheduler) -> str:
    """Return the bash of a scheduler's table as one script, its placeholders replaced."""
    shell = msgspec.structs.asdict(scheduler.features.shell)
    patterns = {"passed", "ignored", "number"}
    lines = [text for name, text in shell.items() if text and name not in patterns]
    lines.append(f'cd "{shell["folder"]}" || exit')
    lines.remove(shell["folder"])
    return "\n".join(lines).replace("@name@", "gpu").replace("@script@", "job.sh")


def shell_texts(store: Store) -> Iterator[tuple[str, str]]:
    """Yield a name for each text, and the text with its first line."""
    for name, scheduler in SCHEDULERS.items():
        yield f"schedulers-{name}", f"{BASH}\n{scheduler_script(scheduler)}"
    yield "site-probe", f"{BASH}\n{PROBE[-1]}"
    yield "run-guard", f"{SHELL}\n{run.GUARD}"
    yield "conda-activation", f"{SHELL}\n{PROGRAM}"
    yield "image-libraries", f"{SHELL}\n{runtime_files.LIBRARIES}"
    for name, line in runtime_files.ACTIONS.items():
        yield f"image-action-{name}", runtime_files.ACTION + line
    package = DebianPackage(
        name="tree",
        version="2.1",
        architecture="amd64",
        group="system",
        path="pool/t/tree.deb",
        size=1,
        sha256="0" * 64,
    )
    for script in (
        debian_install_script([package], store, 0),
        post_script(["true"], old_cuda=True),
    ):
        yield script.name, "\n".join((SHELL, *script.script))


@needs("shellcheck")
def test_shellcheck_has_nothing_to_say_of_shell_in_tables_and_strings(tmp_path: Path) -> None:
    for name, text in shell_texts(Store(tmp_path)):
        (tmp_path / f"{name}.sh").write_text(text)
    paths = tmp_path.glob("*.sh")
    exclude = f"--exclude={LEFT_OUT}"
    argv = ("shellcheck", exclude, *map(str, paths))
    result = LocalRunner()(Command(argv=argv, timeout=300), check=False)
    assert result.stdout == ""
