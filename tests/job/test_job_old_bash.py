"""Scripts under the bash of RHEL 7 and its kin, 4.2: NODE_BASH names one, and is then that of the live tests' nodes, too."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from envbuild.job.schedulers import SCHEDULERS
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings
from tests.job.situations import SCRIPTS, WHOLE, written

NODE_BASH = os.environ.get("NODE_BASH")
NEWER = {
    "values for reading, ${x@Q} (4.4)": r"\$\{\w+(?:\[[@*]\])?@[A-Za-z]\}",
    "names of variables (4.3)": r"\b(?:local|declare|typeset) -\w*n",
    "waiting for any child (4.3)": r"\bwait -[nfp]",
    "lines that end otherwise (4.4)": r"\b(?:mapfile|readarray) -\w*d",
    "writing from the end of an array (4.3)": r"\w\[-\d+\]=|\bunset '?\w+\[-",
    "variables of bash 5": r"\$\{?(?:EPOCH|SRANDOM|BASH_ARGV0)",
    "local settings (4.4)": r"\blocal -(?:\s|$)",
}
"""What bash 4.2 does not have, each as a pattern."""
NEVER_EMPTY = {"command", "hosts", "watch"}
"""Arrays with an element wherever all of it is taken; an empty one ends a script before bash 4.4 (set -u)."""


def test_there_are_scripts_of_all_schedulers() -> None:
    assert set(WHOLE.values()) == set(SCHEDULERS)


@pytest.mark.parametrize(("site", "situation"), SCRIPTS)
def test_an_old_bash_reads_all_scripts(
    site: str, situation: str, tmp_path: Path, user_settings: Settings
) -> None:
    text = written(site, situation, user_settings)
    assert [name for name, pattern in NEWER.items() if re.search(pattern, text)] == []
    whole = set(re.findall(r"(?<!\+)\"\$\{(\w+)\[@\]\}\"", text))
    assert whole <= NEVER_EMPTY
    if NODE_BASH is None:
        return
    path = tmp_path / "job.sh"
    path.write_text(text)
    done = LocalRunner()(Command(argv=(NODE_BASH, "-n", str(path)), timeout=60), check=False)
    assert (done.code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "echo ${x@Q} ${y[@]@Q}",
        "local -n x=y",
        "wait -n",
        "mapfile -td '' x",
        "a[-1]=3",
        "unset 'a[-1]'",
        "echo $EPOCHSECONDS",
    ],
)
def test_what_an_old_bash_does_not_know_is_seen(line: str) -> None:
    assert [name for name, pattern in NEWER.items() if re.search(pattern, line)]
