"""Site files that came with a copied folder: what they run or show outside of an image needs the user's word."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.app.site import find_job_site
from envbuild.context import Context, open_context
from envbuild.errors import UsageError
from envbuild.job.sites.believe import powerful_keys
from envbuild.job.sites.find import load_site, own_folder
from envbuild.progress import Silent
from envbuild.settings import load_settings
from tests.support import ScriptedRunner

PLAIN = '[site]\nname = "lab"\nscheduler = "slurm"\n'
POWERFUL = {
    "[runtime] environment": '[runtime.environment]\nLD_PRELOAD = "/work/theirs.so"\n',
    "[runtime] flags": '[runtime]\nflags = ["--bind=/"]\n',
    "[runtime] binds": '[runtime]\nbinds = ["$HOME"]\n',
    "[modules] init": '[modules]\ninit = "source /work/theirs.sh"\n',
    "[mpi] environment": '[mpi.environment]\nLD_PRELOAD = "/work/theirs.so"\n',
    "[mpi] arguments": '[mpi]\narguments = ["--mca=x"]\n',
    "[fields] options": '[fields]\noptions = ["--task-prolog=/work/theirs.sh"]\n',
    "[folders] caches": '[folders.caches]\nLD_PRELOAD = "/work/theirs.so"\n',
    "[pbs] chunk": '[pbs]\nchunk = ["host=theirs"]\n',
}


class KeptNotes(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A user in a folder of a stranger's with a folder sites."""
    project = tmp_path / "project"
    (project / "sites").mkdir(parents=True)
    environment = {"HOME": str(tmp_path / "home"), "ENVBUILD_STORE": str(tmp_path / "store")}
    return open_context(load_settings(environment, project), ScriptedRunner({}), Silent())


def write_site(context: Context, text: str, name: str = "lab") -> Path:
    path = context.settings.cwd / f"sites/{name}.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("key", POWERFUL)
def test_no_job_goes_by_keys_that_act_outside_of_the_image(key: str, context: Context) -> None:
    write_site(context, PLAIN + POWERFUL[key])
    for named in ("lab", None):  # also where it is the only one
        with pytest.raises(UsageError) as told:
            find_job_site(named, context)
        assert key in str(told.value)
        assert "--on sites/lab.toml" in (told.value.hint or "")
    # facts of its nodes, and `site show`, are no harm
    assert powerful_keys(load_site("lab", context.settings)) == [key]


def test_naming_it_by_its_path_is_the_users_word_until_it_changes(context: Context) -> None:
    path = write_site(context, PLAIN + POWERFUL["[runtime] flags"])
    assert find_job_site("sites/lab.toml", context).runtime.flags == ("--bind=/",)
    assert find_job_site("lab", context).name == "lab"
    path.write_text(path.read_text().replace("--bind=/", "--bind=/etc"))
    with pytest.raises(UsageError, match=r"\[runtime\] flags"):
        find_job_site("lab", context)


def test_the_users_own_folder_needs_no_word(context: Context) -> None:
    folder = own_folder(context.settings)
    folder.mkdir(parents=True)
    (folder / "lab.toml").write_text(PLAIN + POWERFUL["[runtime] flags"])
    assert find_job_site("lab", context).runtime.flags == ("--bind=/",)


def test_a_site_that_hides_another_is_told(context: Context) -> None:
    notes = KeptNotes()
    context = open_context(context.settings, context.runner, notes)
    write_site(context, PLAIN.replace("lab", "amane"), "amane")
    assert find_job_site("amane", context).site.summary == ""
    told = "note: sites/amane.toml of this folder is used, and hides the one that envbuild ships"
    assert told in notes.lines
