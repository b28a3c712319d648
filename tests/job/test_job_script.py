"""The scripts: every shipped site in every situation, compared whole; what a site cannot say is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from envbuild.errors import UsageError
from envbuild.job.compose import JobDraft, compose_job
from envbuild.job.render.script import receipt_pattern, render
from envbuild.job.request.intent import Flags, make_intent
from envbuild.job.schedulers import scheduler_of
from envbuild.job.schedulers.protocol import script_text
from envbuild.job.sites.find import load_site, site_files
from envbuild.recipe.model import JobSection
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings, load_settings
from tests.job.situations import (
    EVERY,
    IMAGE,
    REFUSED,
    SCRIPTS,
    SITUATIONS,
    plan,
    script,
    written,
)
from tests.support import Golden, needs

GOLDEN = Path(__file__).parents[1] / "golden/job"
SITES = [name for name, path in site_files(load_settings({}, Path("/"))).items() if path is None]


def refused(error: UsageError) -> str:
    hint = "\n".join(f"  {line}" for line in (error.hint or "").splitlines())
    return f"{error}\n{hint}\n"


@pytest.mark.parametrize(("site", "situation"), SCRIPTS)
def test_every_scheduler_with_every_launcher(
    site: str, situation: str, user_settings: Settings, golden: Golden
) -> None:
    """One script of each scheduler whole, and what differs from it with each launcher."""
    text = written(site, situation, user_settings)
    if situation == "full":
        golden(f"job/{site}.full.sh", text)
    else:
        golden(f"job/{site}.{situation}.diff", text, beside=written(site, "full", user_settings))


@pytest.mark.parametrize(("site", "situation"), REFUSED)
def test_a_launcher_that_a_scheduler_cannot_have(
    site: str, situation: str, user_settings: Settings, golden: Golden
) -> None:
    with pytest.raises(UsageError) as error:
        script(site, situation, user_settings)
    golden(f"job/{site}.{situation}.refused", refused(error.value))


@pytest.mark.parametrize("site", SITES)
def test_what_each_site_is_asked_in_every_situation(
    site: str, user_settings: Settings, golden: Golden
) -> None:
    """The scheduler's lines, the modules, what the image sees, and who starts the command."""
    parts = []
    for situation in SITUATIONS:
        try:
            lines = written(site, situation, user_settings).splitlines()
        except UsageError as error:
            text = refused(error)
        else:
            text = "\n".join([*(line for line in lines if OF_SITE.match(line)), lines[-2], ""])
        parts.append(f"== {situation}\n{text}")
    # the terminal's client gets what the script's head would have said, but no log and no array
    situation = "cpu" if site == "openpbs-compose" else "single"
    job, found = plan(site, situation, user_settings, interactive=True)
    line = " ".join(scheduler_of(found).interactive("S.sh", job, found))
    assert "logs" not in line
    parts.append(f"== interactive\n{line}\n")
    golden(f"job/{site}.txt", "\n".join(parts))


OF_SITE = re.compile(
    r"#(SBATCH|PBS|\$) |  (module load|source|--bind|export APPTAINERENV_[A-Z]|value=\")"
)


def test_no_golden_is_left_over() -> None:
    names = {f"{site}.{situation}" for site, situation in EVERY} | set(SITES)
    found = [path.name.rpartition(".")[0] for path in GOLDEN.glob("*.*")]
    assert sorted(found) == sorted(names)


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


def test_the_arguments_of_mpirun_reach_other_nodes_with_each_launcher(
    user_settings: Settings,
) -> None:
    """An Open MPI that does not know PBS is told how to reach them, also where it starts torchrun."""
    for launcher in ("torchrun-nodes", "lightning"):
        job, site = plan("abci3", launcher, user_settings)
        mpi = msgspec.structs.replace(
            site.mpi, arguments=("--mca plm_rsh_agent pbs_tmrsh",), environment={"A": "b c"}
        )
        text = render(job, msgspec.structs.replace(site, mpi=mpi), scheduler_of(site))
        assert "\nexport A='b c'\n" in text
        [line] = [line for line in text.splitlines() if line.startswith("supervise mpirun ")]
        assert " --mca plm_rsh_agent pbs_tmrsh bash -c " in line


@pytest.fixture
def script_files(tmp_path: Path, user_settings: Settings) -> list[str]:
    """Every script, each in a file."""
    for site, situation in SCRIPTS:
        text = written(site, situation, user_settings)
        (tmp_path / f"{site}.{situation}.sh").write_text(text)
    return sorted(map(str, tmp_path.glob("*.sh")))


def test_every_script_parses(script_files: list[str]) -> None:
    loop = 'for file; do bash -n "$file" || exit 1; done'
    LocalRunner()(Command(argv=("bash", "-c", loop, "bash", *script_files), timeout=60))


@pytest.mark.live
@needs("shellcheck")
def test_shellcheck_has_nothing_to_say(script_files: list[str]) -> None:
    result = LocalRunner()(Command(argv=("shellcheck", *script_files)), check=False)
    assert result.stdout == ""


@pytest.mark.parametrize(("site", "situation"), SCRIPTS)
def test_what_every_script_has(site: str, situation: str, user_settings: Settings) -> None:
    text = written(site, situation, user_settings)
    lines = text.splitlines()
    head = [line for line in lines if re.match(r"#(SBATCH|PBS|\$) ", line)]
    assert lines[0] == "#!/bin/bash"
    assert lines[1 : 1 + len(head)] == head, "directives stand before the first command"
    assert lines.index("set -u") < min(n for n, line in enumerate(lines) if line.startswith("cd "))
    assert "trap finish EXIT" in lines
    assert "trap 'stop TERM' TERM" in lines
    assert "--cleanenv" in text
    assert ("--containall --no-home" in text) == (situation not in ("mpi", "lightning"))
    assert "--nv" in text
    assert not [
        line
        for line in head
        if "$" in line.removeprefix("#$").replace("$JOB_ID", "").replace("$TASK_ID", "")
    ]
    assert "MASTER_PORT=2" not in text


def test_the_gpus_of_a_receipt_are_those_of_the_job(tmp_path: Path) -> None:
    """Where devices are not fenced off, nvidia-smi shows all of the node."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase "$*" in *driver*) echo 535.1 ;; "-i 1,3 "*) echo A100 ;; esac\n'
    )
    tool.chmod(0o755)
    start = "id=1 task= started=now name=x site=y commit=none image=\n"
    text = start + script_text("report.sh") + "describe_job\n"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "1,3"}
    told = LocalRunner()(Command(argv=("bash", "-c", text), env=environment)).stdout
    assert 'envbuild: GPU "A100", driver 535.1' in told.splitlines()


@pytest.mark.parametrize(
    ("value", "line"),
    [("def-lab", "#SBATCH --account=def-lab"), ("x\ntouch pwned", None), ("", None)],
)
def test_the_account_that_a_sites_guide_tells_to_set(
    value: str, line: str | None, user_settings: Settings
) -> None:
    settings = replace(user_settings, environment={"SBATCH_ACCOUNT": value})
    site = load_site("amane", settings)
    fields = msgspec.structs.replace(site.fields, account="--account")
    site = msgspec.structs.replace(site, fields=fields)
    intent = make_intent(JobSection(), Flags(gpus="1"))
    job = compose_job(JobDraft(name="x", argv=("true",), intent=intent), site, settings)
    text = render(job, site, scheduler_of(site))
    assert (line in text.splitlines()) if line else ("--account" not in text)


@pytest.mark.parametrize(
    ("output", "array", "receipt"),
    [
        (None, None, "train-{id}.receipt.json"),
        ("logs/run.{id}", None, "train-{id}.receipt.json"),
        ("logs/run.{id}", "1-3", "train-{id}.receipt-{task}.json"),
    ],
)
def test_no_two_jobs_of_a_script_share_a_receipt(
    output: str | None, array: str | None, receipt: str, user_settings: Settings
) -> None:
    flags = Flags(gpus="1", walltime="1h", array=array, output=output)
    site = load_site("amane", user_settings)
    intent = make_intent(JobSection(), flags)
    draft = JobDraft(name="train", argv=("true",), intent=intent, image=IMAGE)
    job = compose_job(draft, site, user_settings)
    assert receipt_pattern(job) == f".envbuild/jobs/{receipt}"
