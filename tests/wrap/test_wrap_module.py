"""``envbuild module``: what is written, what a wrapper hands to the runtime, and what is refused."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from envbuild import __version__
from envbuild.job.sites.find import load_site
from envbuild.run import Command, LocalRunner
from envbuild.settings import load_settings
from envbuild.wrap.modulefile import Modulefile, render_default, render_lua, render_tcl
from envbuild.wrap.script import Wrapper, render_wrapper
from tests.project import shared_store
from tests.support import SIF, Golden, needs
from tests.wrap.conftest import call, envbuild, environment, inside
from tests.wrap.jupyter_image import put_jupyter_image

WRAPPER = Wrapper(
    name="keras-bert",
    verb="module",
    image="/shared/images/it's.sif",
    stamp="123 456",
    mark="0123456789abcdef",
    command=("python", "train.py", "two words"),
    binds=((Path("/data, old"), "/data", False),),
    variables=(("MODE", "it's"),),
    passed=("WANDB_*",),
    kept=(".insightface",),
)
MODULE = Modulefile(
    name="keras-bert",
    version="1.0",
    summary='sentences; "quoted" [exec id] $HOME {',
    image="/shared/images/a b.sif",
    programs="/shared/modules/programs/keras-bert/1.0/bin",
    commands=("pip", "python"),
    modules=("apptainer/1.4",),
    lock="sha256:" + "0" * 64,
)


def write(project: Path, *words: str) -> Path:
    """Write the module below the folder that holds the project; return the folder of its programs."""
    result = envbuild(project, "module", "tiny", "-o", "../modules", "--version", "1", *words)
    assert result.code == 0, result.stderr
    return project.parent / "modules/programs/tiny/1"


def wrapper_texts() -> list[str]:
    """Return a wrapper of a recipe, and one of a site."""
    site = load_site("tsubame4", load_settings({}, Path("/")))
    of_site = Wrapper(
        name="a", verb="kernel", image="/a.sif", stamp="1 2", mark="0", site=site, kept=None
    )
    return [
        render_wrapper(wrapper).replace(f"envbuild {__version__} ", "envbuild VERSION ")
        for wrapper in (WRAPPER, of_site)
    ]


def test_the_files_are_as_expected(golden: Golden) -> None:
    texts = wrapper_texts()
    golden("wrap/wrapper.sh", texts[0])
    golden("wrap/wrapper-tsubame4.diff", texts[1], beside=texts[0])
    golden("wrap/module.lua", render_lua(MODULE))
    golden("wrap/module.tcl", render_tcl(MODULE))
    golden("wrap/module.version", render_default(MODULE.version))


@pytest.mark.live
@needs("shellcheck")
@pytest.mark.parametrize("number", [0, 1])
def test_shellcheck_finds_nothing_in_a_wrapper(number: int, tmp_path: Path) -> None:
    path = tmp_path / "wrapper.sh"
    path.write_text(wrapper_texts()[number])
    result = LocalRunner()(Command(argv=("shellcheck", str(path)), timeout=60), check=False)
    assert result.code == 0, result.stdout


def test_each_command_gets_a_wrapper(project: Path) -> None:
    result = envbuild(project, "module", "tiny", "-o", "../modules", "--command", "ls")
    assert result.code == 0, result.stderr
    [version] = (project.parent / "modules/programs/tiny").iterdir()
    made = sorted(path.name for path in (version / "bin").iterdir())
    assert made == ["ls", "pip", "pip3", "python", "python3", "tiny", "tool"]
    [use, load] = result.stdout.splitlines()
    assert use == f"module use {project.parent}/modules/modulefiles"
    assert load == f"module load tiny/{version.name}"


def test_a_command_that_hides_one_of_the_machine_is_left_out(project: Path) -> None:
    programs = write(project)
    assert not (programs / "bin/ls").exists()
    assert "ls is a command of this machine too" in envbuild(project, "module", "tiny").stderr


def test_a_wrapper_runs_the_command_sealed(project: Path) -> None:
    programs = write(
        project, "--env", "MODE=it's", "--env", "WANDB_*", "--bind", "/var/log:/logs:ro"
    )
    result = call(
        programs / "bin/python",
        *("-c", "two words", "*"),
        cwd=project,
        **environment(project, WANDB_MODE="offline", SECRET="hush", SLURM_PROCID="3"),
        APPTAINER_BIND="/nowhere",
    )
    assert result.code == 7, result.stderr
    assert inside(result)[:4] == ["python", "-c", "two words", "*"]
    words = re.findall(r"^<(.*)>$", result.stdout, re.MULTILINE)
    assert {"--cleanenv", "--containall", "--no-home"} < set(words)
    assert f"{project}:{project}:rw" in words
    assert "/var/log:/logs:ro" in words
    assert f"{project.parent}/.cache/envbuild-caches/home/.own:/tmp/.own:rw" in words
    assert words[words.index("--pwd") + 1] == str(project)
    variables = dict(re.findall(r"^APPTAINERENV_(\w+)=(.*)$", result.stdout, re.MULTILINE))
    assert variables["MODE"] == "it's"
    assert (variables["WANDB_MODE"], variables["SLURM_PROCID"]) == ("offline", "3")
    assert variables["HF_HOME"] == "/tmp/.cache/huggingface"
    assert "SECRET" not in variables


def test_the_recipes_own_command_has_the_recipes_name(project: Path) -> None:
    result = call(write(project) / "bin/tiny", "--epochs", "3", cwd=project)
    assert inside(result)[:4] == ["python", "it's $HOME.py", "--epochs", "3"]


def test_pip_explains_instead_of_installing(project: Path) -> None:
    pip = write(project) / "bin/pip"
    refused = call(pip, "install", "x", cwd=project)
    assert refused.code == 1
    assert "envbuild add --dev tiny PACKAGE" in refused.stderr
    assert inside(call(pip, "list", cwd=project))[:2] == ["pip", "list"]


def test_what_an_ended_call_left_is_removed_by_the_next(project: Path) -> None:
    python = write(project) / "bin/python"
    for _ in range(2):
        call(python, cwd=project)
    [top] = (project.parent / "tmp").iterdir()
    assert len(list(top.iterdir())) == 1
    assert top.stat().st_mode & 0o777 == 0o700


def test_a_changed_image_is_refused(project: Path) -> None:
    python = write(project) / "bin/python"
    (project / "tiny.sif").write_bytes(SIF * 2)
    result = call(python, cwd=project)
    assert result.code == 125
    assert "has changed since this was written" in result.stderr
    (project / "tiny.sif").unlink()
    assert "the image is not there" in call(python, cwd=project).stderr


def test_folders_that_the_runtime_cannot_bind(project: Path) -> None:
    python = write(project) / "bin/python"
    odd = project / "a,b"
    odd.mkdir()
    result = call(python, cwd=odd)
    assert (result.code, "cannot be bound" in result.stderr) == (125, True)
    for variable in ("TMPDIR", "ENVBUILD_CACHES"):
        told = call(python, cwd=project, **{**environment(project), variable: str(odd)})
        assert (told.code, "cannot be bound" in told.stderr) == (125, True)
    words = re.findall(r"^<(.*)>$", call(python, cwd=Path("/usr/lib")).stdout, re.MULTILINE)
    assert words[words.index("--pwd") + 1] == "/tmp"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--version", "../../x"), "is not a valid module version"),
        (("--version", "default"), "is not a valid module version"),
        (("--version", "1.lua"), "is not a valid module version"),
        (("--command", "../x"), "is not a valid command name"),
        (("--env", "A B=1"), "--env takes KEY"),
        (("--env", "*"), "--env takes KEY"),
        (("--bind", "/no/such/folder"), "does not exist"),
        (("-o", "a:b"), "cannot be in a folder with such a name"),
        (("-o", "a $(id)"), "cannot be in a folder with such a name"),
        (("--for", "nowhere"), "there is no site"),
    ],
)
def test_hostile_words_are_refused(project: Path, words: tuple[str, ...], said: str) -> None:
    result = envbuild(project, "module", "tiny", *words)
    assert result.code == 2
    assert said in result.stderr
    assert not (project.parent / ".local").exists()


def test_a_module_of_somebody_else_is_left_alone(project: Path) -> None:
    path = project.parent / "modules/modulefiles/tiny/1.lua"
    path.parent.mkdir(parents=True)
    path.write_text("-- of the staff\n")
    for words in (("--version", "1"), ("--remove",)):
        result = envbuild(project, "module", "tiny", "-o", "../modules", *words)
        assert (result.code, "envbuild did not make it" in result.stderr) == (2, True)
    assert path.read_text() == "-- of the staff\n"


def test_it_is_removed_without_a_trace(project: Path) -> None:
    write(project)
    (project / "tiny.sif").unlink()
    result = envbuild(project, "module", "tiny", "-o", "../modules", "--remove")
    assert result.code == 0, result.stderr
    left = [path for path in (project.parent / "modules").rglob("*") if not path.is_dir()]
    assert left == []
    again = envbuild(project, "module", "tiny", "-o", "../modules", "--remove")
    assert (again.code, "there is no such module" in again.stderr) == (2, True)
    evil = envbuild(project, "module", "..", "-o", "../modules", "--remove")
    assert evil.code == 2


USE = """\
set -e
module use "$1"
module load nb
python -c 'import six, sys, humanize; print("six", six.__version__, sys.prefix)'
nb
pip install x || true
command -v jupyter-lab
module unload nb
command -v jupyter-lab || echo gone
"""


def module_commands() -> dict[str, str]:
    """Return the line that makes ``module`` known, by kind, for those that are here."""
    lmod = sorted(Path("/usr/share/lmod").glob("*/init/bash"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tcl = sorted((cache / "envbuild-tests/environment-modules").glob("usr/lib/*/modulecmd.tcl"))
    found = {}
    if lmod:
        found["lmod"] = f". {lmod[0]}"
    if tcl:
        found["environment-modules"] = f'eval "$(tclsh8.6 {tcl[0]} bash autoinit)"'
    return found


@pytest.mark.live
@needs("apptainer", "mmdebstrap")
@pytest.mark.parametrize("kind", ["lmod", "environment-modules"])
def test_module_load_is_enough(kind: str, tmp_path: Path) -> None:
    known = module_commands()
    if kind not in known:
        pytest.skip(f"not installed here: {kind} (scripts/test.sh)")
    put_jupyter_image(tmp_path)
    (tmp_path / "home").mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"}
    words = ("module", "nb", "-o", "my-modules", "--with", "humanize==4.9.0")
    argv = (sys.executable, "-m", "envbuild", *words)
    store = {"ENVBUILD_STORE": str(shared_store())}
    LocalRunner()(Command(argv=argv, cwd=tmp_path, env={**env, **store}, timeout=300))
    folder = f"{tmp_path}/my-modules/modulefiles"
    shell = ("bash", "-c", f"{known[kind]}\n{USE}", "bash", folder)
    result = LocalRunner()(Command(argv=shell, cwd=tmp_path, env=env, timeout=120), check=False)
    lines = result.stdout.splitlines()
    assert "six 1.16.0 /usr" in lines, result.stderr
    assert "the default command" in lines
    assert "to keep a package:  envbuild add nb PACKAGE" in result.stderr
    assert f"{tmp_path}/my-modules/programs/nb/" in lines[-2]
    assert lines[-1] == "gone"


WITH_KFD = (
    "mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && ln -s /proc/self/fd /dev/fd"
    ' && : >/dev/kfd && exec "$@"'
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a /dev of its own")
def test_an_amd_gpu_of_the_node_is_handed_in(project: Path) -> None:
    """Only that there is one: no AMD GPU was here."""
    assert envbuild(project, "kernel", "tiny").code == 0
    program = project.parent / ".local/share/jupyter/kernels/envbuild-tiny/in-image"
    for before, wanted in (((), False), (("unshare", "-m", "sh", "-c", WITH_KFD, "sh"), True)):
        argv = (*before, str(program), "python3")
        command = Command(argv=argv, cwd=project, env=environment(project), timeout=30)
        result = LocalRunner()(command, check=False)
        assert result.code == 7, result.stderr
        assert ("<--rocm>" in result.stdout) is wanted
