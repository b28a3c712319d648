"""The scripts: every shipped site in every situation, compared whole; what a site cannot say is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild import __version__
from envbuild.errors import UsageError
from envbuild.job.schedulers import scheduler_of
from envbuild.job.sites import site_files
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings, load_settings
from tests.job.situations import SITUATIONS, plan, script
from tests.support import needs

GOLDEN = Path(__file__).parents[1] / "golden/job"
SITES = [name for name, path in site_files(load_settings({}, Path("/"))).items() if path is None]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_site_in_every_situation(
    site: str, situation: str, user_settings: Settings, golden: Callable[[str, str], None]
) -> None:
    try:
        text = script(site, situation, user_settings)
    except UsageError as error:
        hint = "\n".join(f"  {line}" for line in (error.hint or "").splitlines())
        golden(f"job/{site}.{situation}.refused", f"{error}\n{hint}\n")
        return
    golden(
        f"job/{site}.{situation}.sh", text.replace(f"envbuild {__version__} ", "envbuild VERSION ")
    )


def test_no_golden_is_left_over() -> None:
    names = {f"{site}.{situation}" for site in SITES for situation in SITUATIONS}
    found = [
        path.name.removesuffix(".sh").removesuffix(".refused") for path in GOLDEN.glob("*.*.*")
    ]
    assert sorted(found) == sorted(names)


@pytest.mark.parametrize("site", SITES)
def test_interactive_command_lines(site: str, user_settings: Settings) -> None:
    """The terminal's client gets what the script's head would have said, but no log and no array."""
    job, found = plan(
        site, "cpu" if site == "openpbs-compose" else "single", user_settings, interactive=True
    )
    line = " ".join(scheduler_of(found).interactive("S.sh", job, found))
    expected = {
        "amane": "srun --job-name=keras-bert --nodes=1 --ntasks-per-node=1 --gpus=1 --time=02:00:00 --pty bash S.sh",
        "tsubame4": "qrsh -now n -w e -g my-lab -N keras-bert -cwd -l gpu_1=1 -l h_rt=02:00:00 bash S.sh",
        "abci3": "qsub -I -N keras-bert -q rt_HG -P my-lab -l select=1 -l walltime=02:00:00",
        "local": "bash S.sh",
    }
    assert line == expected.get(site, line)
    assert "logs" not in line


def test_accounts_of_grid_engine_go_on_the_command_line(user_settings: Settings) -> None:
    job, site = plan("tsubame4", "single", user_settings)
    assert scheduler_of(site).submit("S.sh", job, site) == (
        "qsub",
        "-terse",
        "-w",
        "e",
        "-g",
        "my-lab",
        "S.sh",
    )
    assert "my-lab" not in script("tsubame4", "single", user_settings)


def test_every_script_parses() -> None:
    scripts = sorted(GOLDEN.glob("*.sh"))
    assert len(scripts) > 40
    loop = 'for file; do bash -n "$file" || exit 1; done'
    LocalRunner()(Command(argv=("bash", "-c", loop, "bash", *map(str, scripts)), timeout=60))


@pytest.mark.live
@needs("shellcheck")
def test_shellcheck_has_nothing_to_say() -> None:
    result = LocalRunner()(
        Command(argv=("shellcheck", *map(str, sorted(GOLDEN.glob("*.sh"))))), check=False
    )
    assert result.stdout == ""


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sh")), ids=lambda path: path.name)
def test_what_every_script_has(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    head = [line for line in lines if re.match(r"#(SBATCH|PBS|\$) ", line)]
    assert lines[0] == "#!/bin/bash"
    assert lines[1 : 1 + len(head)] == head, "directives stand before the first command"
    assert lines.index("set -u") < min(n for n, line in enumerate(lines) if line.startswith("cd "))
    assert "trap finish EXIT" in lines
    assert "trap 'stop TERM' TERM" in lines
    assert "--cleanenv" in text
    assert ("--containall --no-home" in text) == (
        ".mpi." not in path.name and ".lightning." not in path.name
    )
    assert ("--nv" in text) == (".cpu." not in path.name and "openpbs" not in path.name)
    assert not [
        line
        for line in head
        if "$" in line.removeprefix("#$").replace("$JOB_ID", "").replace("$TASK_ID", "")
    ]
    assert "MASTER_PORT=2" not in text
