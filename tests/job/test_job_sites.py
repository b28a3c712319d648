"""Site files: those shipped are whole, a user's own hide them, broken ones are refused naming line and key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.errors import HostError, UsageError
from envbuild.job.schedulers.gridengine import GridEngine
from envbuild.job.sites.detect import detect, probed_sections, site_text, with_facts
from envbuild.job.sites.find import load_site, site_files
from envbuild.job.sites.site import Site
from envbuild.settings import Settings
from envbuild.toml import convert, parse_toml
from tests.support import ScriptedRunner, context_for

BROKEN = Path(__file__).parents[1] / "broken/site"
SHIPPED = (
    *("abci2", "abci3", "alliance-cedar", "amane", "local"),
    *("neuron", "openpbs-compose", "plai", "tsubame3", "tsubame4"),
)


def test_what_is_shipped(user_settings: Settings) -> None:
    assert tuple(site_files(user_settings)) == SHIPPED
    for name in SHIPPED:
        site = load_site(name, user_settings)
        assert site.site.source, name
        assert site.site.summary, name


def test_own_files_hide_shipped_ones(user_settings: Settings, tmp_path: Path) -> None:
    own = tmp_path / "home/.config/envbuild/sites"
    own.mkdir(parents=True)
    (own / "amane.toml").write_text(
        '[site]\nname = "amane"\nscheduler = "slurm"\nsummary = "of the user"\n'
    )
    assert load_site("amane", user_settings).site.summary == "of the user"
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/amane.toml").write_text(
        '[site]\nname = "amane"\nscheduler = "pbs"\nsummary = "of the project"\n'
    )
    assert load_site("amane", user_settings).site.summary == "of the project"
    assert load_site("sites/amane.toml", user_settings).site.scheduler == "pbs"
    elsewhere = replace(
        user_settings, environment={"ENVBUILD_CONFIG": str(tmp_path / "sites/../config.toml")}
    )
    assert load_site("amane", elsewhere).site.summary == "of the project"


def test_an_unknown_site(user_settings: Settings) -> None:
    with pytest.raises(UsageError) as told:
        load_site("tsubame5", user_settings)
    assert told.value.what == 'there is no site called "tsubame5"; did you mean "tsubame4"?'


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "not-toml",
            "line 1, column 6: is not valid TOML: Expected ']' at the end of a table declaration",
        ),
        ("unknown-key", "line 5: unknown key 'gpus' in [resources]; did you mean \"gpu\"?"),
        ("unknown-scheduler", "line 3: there is no scheduler 'slurmm'; did you mean \"slurm\"?"),
        ("other-name", 'line 2: [site] name is "another", but the file is called other-name.toml'),
        (
            "wrong-dialect",
            'line 5: [resources] gpu = "gres" is not for pbs; known there: ngpus, type, none',
        ),
        ("type-without-types", 'line 5: [resources] gpu = "type" needs at least one [[type]]'),
        ("bare-number", "line 5: '24' is no time"),
        (
            "newline-in-option",
            "line 5: fields.options: takes text that matches '^[^\\\\x00-\\\\x1f\\\\x7f]*\\\\Z'",
        ),
        ("shell-in-bind", "line 5: runtime.binds: takes text that matches"),
        ("shell-in-cache", "line 6: folders.caches: takes text that matches"),
        ("shell-in-module", "line 5: modules.load: takes text that matches"),
        ("empty", "line 1: 'site' is missing"),
        ("bare-word-walltime", "line 5: limits.walltime: takes text, not a whole number"),
        ("no-nodes", "line 5: limits.nodes: takes a whole number >= 1"),
        ("negative-gpus", "line 5: limits.gpus: takes a whole number >= 1"),
        ("no-build-cpus", "line 5: build.cpus: takes a whole number >= 1"),
        ("partition-twice", "[[partition]] a: is there twice"),
        ("build-of-no-type", 'line 5: [build] type = "b": no [[type]] is called so'),
        ("driver-word", "line 5: host.driver: takes text that matches"),
        ("open-quote", 'line 5: "--comment=\'x" has a quote that does not close'),
        ("owned-option", "line 5: '--output=x' is an option that envbuild itself gives to Slurm"),
        ("blank-in-chunk", "line 5: pbs.chunk: takes text that matches"),
    ],
)
def test_broken_files(user_settings: Settings, name: str, message: str) -> None:
    with pytest.raises(UsageError) as told:
        load_site(str(BROKEN / f"{name}.toml"), user_settings)
    assert str(told.value).startswith(f"{BROKEN / name}.toml, {message}")
    assert told.value.code == 2


def test_every_broken_file_is_tested() -> None:
    assert {path.stem for path in BROKEN.glob("*.toml")} == {
        mark[0]
        for mark in test_broken_files.pytestmark[0].args[1]  # type: ignore[attr-defined]
    }


def runner(**answers: str) -> ScriptedRunner:
    """Answer clients by name; others are there and say nothing of use."""
    table = {key.replace("_", " "): (0, text, "") for key, text in answers.items()}
    return ScriptedRunner({**table, "": (1, "", "no such option")})


SINFO = "gpu*|1-12:00:00|gpu:v100:4(S:0-1)|8\nlong|infinite|(null)|2\n"
COMPLEXES = "arch a RESTRING == YES NO NONE 0\ngpu gpu INT <= YES YES 0 0\n"
NODES = "n1\n     resources_available.ngpus = 4\n"


def read(text: str) -> Site:
    return convert(parse_toml(text, "x"), Site, text=text, where="x")


def test_a_slurm_site_describes_itself(user_settings: Settings) -> None:
    fake = runner(sbatch="slurm 23.11.4\n", sinfo=SINFO)
    context = context_for(user_settings, fake)
    found = detect(context)
    assert (found.scheduler, found.version) == ("slurm", "slurm 23.11.4")
    site = read(site_text("mine", found, context))
    assert (site.resources.gpu, site.resources.gpu_types, site.resources.gpus_per_node) == (
        "gres",
        ("v100",),
        4,
    )
    assert [(row.name, row.walltime) for row in site.partition] == [
        ("gpu", "1d12h"),
        ("long", None),
    ]


def test_a_grid_engine_site_says_what_a_gpu_is_counted_by(user_settings: Settings) -> None:
    fake = runner(
        **{
            "qstat_-help": "SGE 8.1.9\nusage: …",
            "qconf_-sc": COMPLEXES,
            "qconf_-spl": "make\nsmp\n",
        }
    )
    context = context_for(user_settings, fake)
    found = detect(context)
    site = read(site_text("mine", found, context))
    assert (found.scheduler, site.resources.gpu, site.resources.gpu_per) == (
        "gridengine",
        "consumable",
        "slot",
    )
    assert site.resources.parallel_environment == "smp"


def test_a_pbs_site_describes_itself(user_settings: Settings) -> None:
    fake = runner(
        **{
            "qsub_--version": "pbs_version = 23.06.06\n",
            "qstat_-Qf": "Queue: workq\n    queue_type = Execution\n",
            "pbsnodes": NODES,
        }
    )
    context = context_for(user_settings, fake)
    site = read(site_text("mine", detect(context), context))
    assert (site.site.scheduler, site.resources.gpu) == ("pbs", "ngpus")
    assert [row.name for row in site.partition] == ["workq"]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"qsub_--version": "NQSV R1.09\n"}, "NQSV runs here, for which envbuild writes no jobs"),
        (
            {"qsub_--version": "Version: 6.1.3\nCommit: 7c4ca2d1"},
            "Torque runs here, for which envbuild writes no jobs",
        ),
        ({}, "no scheduler answers here (asked: sbatch, qstat, qsub)"),
    ],
)
def test_qsub_is_the_name_of_many(
    user_settings: Settings, answers: dict[str, str], message: str
) -> None:
    """Slurm ships a qsub of its own too; only what a client says of itself counts."""
    with pytest.raises(HostError) as told:
        detect(context_for(user_settings, runner(**answers)))
    assert told.value.what == message


LOG = """\
envbuild: job 5 on n1
runtime=apptainer version 1.3.6-1.el8
glibc=2.31
architecture=x86_64
gpu=450.80.02, Tesla V100S-PCIE-32GB, 7.0, 32510 MiB
gpu=450.80.02, Tesla V100S-PCIE-32GB, 7.0, 32510 MiB
gpu=$(id), x, y, z
"""


def test_a_probe_fills_in_the_facts_and_leaves_the_rest_as_written() -> None:
    text = '[site]\nname = "x" # mine\nscheduler = "slurm"\n\n[host]\ndriver = "1"\n\n[limits]\nnodes = 4\n'
    facts, gpus = probed_sections(LOG)
    written = with_facts(text, facts, gpus)
    assert written.startswith(
        '[site]\nname = "x" # mine\nscheduler = "slurm"\n\n[limits]\nnodes = 4\n'
    )
    site = read(written)
    assert (site.host.driver, site.host.glibc) == ("450.80.02", "2.31")
    assert site.host.runtime == "apptainer 1.3.6"
    assert [(gpu.name, gpu.capability, gpu.memory) for gpu in site.gpu] == [
        ("Tesla V100S-PCIE-32GB", 70, "32510MiB")
    ]
    assert with_facts(written, facts, gpus) == written


@pytest.mark.parametrize(
    ("answers", "runtime"),
    [
        ({"apptainer_--version": "apptainer version 1.3.6-1.el8\n"}, "apptainer 1.3.6"),
        ({"singularity_--version": "singularity-ce version 3.11.4-jammy\n"}, "singularity 3.11.4"),
        ({"singularity_--version": "login to load modules\n"}, ""),
        ({}, ""),
    ],
)
def test_a_site_names_the_runtime_of_its_login_node(
    user_settings: Settings, answers: dict[str, str], runtime: str
) -> None:
    fake = runner(sbatch="slurm 23.11.4\n", sinfo="\n", **answers)
    context = context_for(user_settings, fake)
    text = site_text("mine", detect(context), context)
    assert read(text).host.runtime == runtime


@pytest.mark.parametrize(
    ("program", "runtime", "closed"),
    [
        ("singularity", "", "Singularity"),
        ("any", "singularity 3.11.4", "Singularity 3.11.4"),
        ("any", "apptainer 1.3.6", "Apptainer 1.3.6"),
        ("singularity", "apptainer 1.4.5", None),
        ("apptainer", "apptainer 1.4", None),
        ("apptainer", "", None),
        ("any", "", None),
    ],
)
def test_a_runtime_that_opens_no_zstd_is_known(
    program: str, runtime: str, closed: str | None
) -> None:
    text = f'[site]\nname = "x"\nscheduler = "slurm"\n[runtime]\nprogram = "{program}"\n'
    site = read(f'{text}[host]\nruntime = "{runtime}"\n')
    assert site.runtime_without_zstd == closed


COMPLEX_LIST = """\
#name     shortcut type   relop requestable consumable default urgency
gpu       gpu      {type} <=    YES         {per}      NONE    0
h_vmem    h_vmem   MEMORY <=    YES         YES        0       0
"""


@pytest.mark.parametrize(
    ("kind", "per", "counted"),
    [("INT", "JOB", "job"), ("INT", "YES", "slot"), ("RSMAP", "HOST", "job")],
)
def test_gpus_of_grid_engine_are_found_in_its_complexes(kind: str, per: str, counted: str) -> None:
    """Univa's and Altair's are of the type RSMAP (complex(5))."""
    answers = {"-sc": COMPLEX_LIST.format(type=kind, per=per), "-sconf": "max_aj_tasks 75000"}
    lines = GridEngine().site_sections(lambda _, word, *more: answers.get(word, ""))
    assert 'gpu = "consumable"' in lines
    assert any(line.startswith(f'gpu-per = "{counted}"') for line in lines)
    assert 'memory = "h_vmem"' in lines
    assert "array = 75000" in lines
