"""conda packages in a lock: how they get there, and what the verbs say of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envbuild.app.lock import LockRequest, read_target, resolve_lock, update_lock
from envbuild.build.fetch import fetch_files
from envbuild.cli import run_cli
from envbuild.conda.model import CondaFound, CondaSolution, GpuTarget
from envbuild.context import Context
from envbuild.errors import IntegrityError, NetworkError, NoSolutionError, UsageError
from envbuild.lock.cuda import cuda_of
from envbuild.lock.decide import decide
from envbuild.lock.decide.conda import locked_packages, require_channels
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.model import Lock
from envbuild.lock.read import parse_lock
from envbuild.lock.staleness import refuse_changed_files, stale_reasons
from envbuild.lock.write import write_lock
from envbuild.net.web import GoneError
from envbuild.recipe.find import find_recipe
from envbuild.recipe.model import Source, TargetSection
from envbuild.recipe.read import read_recipe
from envbuild.settings import load_settings
from tests.conda.asking import context_of, user_of
from tests.conda.channels import Package, Served, make_channel
from tests.resolve.conftest import SyntheticIndex

FACTS = {
    "image": "example/base:1",
    "python": "3.11.2",
    "machine": "x86_64",
    "glibc": "2.36",
    "created": "2026-01-10",
    "digest": "sha256:" + "a" * 64,
}
RECIPE = """
[recipe]
name = "cell"
[base]
image = "docker://example/base:1"
[conda]
channels = ["forge"]
dependencies = {conda}
[python]
dependencies = {python}
[target]
driver = "580"
gpu = ["H100"]
"""
Run = Callable[..., tuple[int, str, str]]


class Project:
    """A project of one recipe; the channel is real, Python's index is made up."""

    def __init__(self, folder: Path, channels: Served) -> None:
        self.folder = folder
        self.index = SyntheticIndex(folder / "index")
        self.index.wheel("uv", version("uv"))
        self.settings = user_of(
            folder, f'[indexes]\ndefault = "{self.index.url}"\n', forge=f"{channels.url}/forge"
        )
        self.context = context_of(self.settings)
        self.facts = folder / "facts.json"
        self.facts.write_text(json.dumps(FACTS))
        (folder / "recipes").mkdir()
        (folder / "lockfiles").mkdir()

    def write(self, *conda: str, python: tuple[str, ...] = ()) -> None:
        text = RECIPE.format(conda=json.dumps(conda), python=json.dumps(python))
        (self.folder / "recipes/cell.toml").write_text(text)

    def lock(self, *conda: str, python: tuple[str, ...] = (), **options: Any) -> Lock:
        """Lock the recipe against the facts and write the lock as the verb does."""
        self.write(*conda, python=python)
        source = find_recipe("cell", self.settings)
        target = GpuTarget(driver="580", capabilities=(90,))
        wish = LockOptions(target=target, **options)
        lock = resolve_lock(source, wish, self.context, self.facts)
        (self.folder / "lockfiles/cell.lock").write_text(write_lock(lock))
        return lock


@pytest.fixture
def project(tmp_path: Path, channels: Served) -> Project:
    return Project(tmp_path, channels)


@pytest.fixture
def run(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    for name in [name for name in os.environ if name.startswith(("ENVBUILD_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name in ("HOME", "ENVBUILD_CONFIG", "ENVBUILD_STORE"):
        monkeypatch.setenv(name, project.settings.environment[name])
    monkeypatch.chdir(project.folder)

    def verb(*arguments: str) -> tuple[int, str, str]:
        code = run_cli(["-q", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return verb


def test_a_lock_names_every_archive_and_no_host(project: Project, channels: Served) -> None:
    lock = project.lock("pytorch", "requests", "python 3.12.*")
    text = write_lock(lock)
    assert parse_lock(text, "x") == lock
    assert "127.0.0.1" not in text
    by_name = {package.name: package for package in lock.conda}
    torch = by_name["pytorch"]
    assert torch.file == f"pytorch-2.7.1-{torch.build}.conda"
    assert torch.build.startswith("cuda130_")
    assert (torch.via, by_name["numpy"].via) == (("(direct)",), ("pytorch",))
    assert (by_name["requests"].noarch, by_name["requests"].python) == ("python", "3.12")
    assert "__cuda=13.0" in lock.conda_virtual
    assert cuda_of(lock) == "13.0"
    assert lock.python_version == "3.12.4"
    assert lock.base.python == "3.11.2"
    assert lock.tools["py-rattler"] == version("py-rattler")


def test_an_environment_without_python_keeps_the_base_s(project: Project) -> None:
    project.index.wheel("tqdm", "4.0")
    lock = project.lock("r-base", "samtools", python=("tqdm",))
    assert [package.name for package in lock.conda] == ["libthing", "r-base", "samtools"]
    assert lock.python_version == "3.11.2"
    assert "tqdm" in [package.name for package in lock.installed]


def test_pip_on_top_never_replaces_what_conda_brings(project: Project) -> None:
    project.index.wheel("numpy", "2.9.0")
    project.index.wheel("torch", "9.0")
    project.index.wheel("course", "1.0", requires=("numpy>=1.20", "torch"))
    lock = project.lock("pytorch", "python 3.12.*", python=("course", "numpy"))
    assert [p.name for p in lock.installed] == ["course"]
    held = {provided.name: provided.version for provided in lock.provided}
    assert held == {"numpy": "1.26.4", "torch": "2.7.1"}
    project.index.wheel("newer", "1.0", requires=("numpy>=2",))
    with pytest.raises(NoSolutionError, match="numpy"):
        project.lock("pytorch", "python 3.12.*", python=("newer",))


def test_cuda_wheels_beside_conda_s_cuda_are_refused(project: Project) -> None:
    project.index.wheel("nvidia-cublas-cu13", "13.0.0")
    project.index.wheel("kernels", "1.0", requires=("nvidia-cublas-cu13",))
    with pytest.raises(NoSolutionError, match="kernels asks for the wheel nvidia-cublas-cu13"):
        project.lock("pytorch", "python 3.12.*", python=("kernels",))


def test_a_framework_of_the_base_s_python_is_refused(project: Project) -> None:
    project.write("python 3.12.*")
    path = project.folder / "recipes/cell.toml"
    text = path.read_text().replace(
        'image = "docker://example/base:1"', 'bootstrap = "debian:bookworm"\nframework = "torch"'
    )
    path.write_text(text)
    source = find_recipe("cell", project.settings)
    with pytest.raises(UsageError, match=r"conda. brings another"):
        resolve_lock(source, LockOptions(), project.context, project.facts)


def test_what_is_locked_stays_until_it_is_asked_for_anew(project: Project) -> None:
    first = project.lock("dated", "python 3.11.*", as_of="2026-03-01")
    assert {p.name: p.version for p in first.conda}["dated"] == "1.0"
    kept = project.lock("dated", "python 3.11.*", old=first)
    assert kept.conda == first.conda
    anew = project.lock("dated", "python 3.11.*", old=first, upgrade=("dated",))
    assert {p.name: p.version for p in anew.conda}["dated"] == "2.0"


def test_an_archive_that_was_replaced_is_refused(project: Project) -> None:
    lock = project.lock("samtools")
    first, *others = lock.conda
    replaced = msgspec.structs.replace(first, sha256="0" * 64)
    after = msgspec.structs.replace(lock, conda=(replaced, *others))
    refuse_changed_files(lock, lock)
    with pytest.raises(IntegrityError, match="now offers another file"):
        refuse_changed_files(lock, after)


def test_a_package_that_has_left_its_channel_is_named(project: Project, tmp_path: Path) -> None:
    lock = project.lock("samtools")
    empty = make_channel(tmp_path / "empty", [Package(name="other")])
    config = project.folder / "config.toml"
    config.write_text(re.sub(r'forge = ".*"', f'forge = "{empty.as_uri()}"', config.read_text()))
    context = context_of(load_settings(project.settings.environment, project.folder))
    # both files are gone, and they are fetched side by side
    gone = r"(libthing-2\.1|samtools-1\.21)-0\.conda is gone$"
    with pytest.raises(GoneError, match=gone) as caught:
        fetch_files(lock, context)
    name = "libthing" if "libthing" in str(caught.value) else "samtools"
    assert f"envbuild lock NAME --upgrade {name}" in (caught.value.hint or "")


def test_an_archive_that_the_channel_changed_is_refused(project: Project, tmp_path: Path) -> None:
    lock = project.lock("samtools")
    channel = make_channel(tmp_path / "changed", [Package(name="other")])
    for package in lock.conda:
        (channel / package.subdir / package.file).write_bytes(bytes(package.size))
    config = project.folder / "config.toml"
    config.write_text(re.sub(r'forge = ".*"', f'forge = "{channel.as_uri()}"', config.read_text()))
    context = context_of(load_settings(project.settings.environment, project.folder))
    with pytest.raises(IntegrityError, match=r"libthing-2\.1-0\.conda|samtools-1\.21-0\.conda"):
        fetch_files(lock, context)
    assert not any(context.store.artifact(package.sha256).exists() for package in lock.conda)


SITE = """
[site]
name = "{name}"
scheduler = "slurm"
[host]
driver = "{driver}"
[[gpu]]
name = "{card}"
capability = {capability}
partition = "gpu"
"""


def test_the_nodes_are_those_of_the_sites(project: Project) -> None:
    sites = project.folder / "sites"
    sites.mkdir()
    (sites / "old.toml").write_text(
        SITE.format(name="old", driver="525.60.13", card="V100", capability=70)
    )
    (sites / "new.toml").write_text(
        SITE.format(name="new", driver="580.65.06", card="H100", capability=90)
    )
    project.write("pytorch")
    recipe = find_recipe("cell", project.settings).recipe
    assert read_target(recipe, None, project.context) == GpuTarget(driver="580", capabilities=(90,))
    assert read_target(recipe, "old:gpu", project.context) == GpuTarget(
        driver="525.60.13", capabilities=(70,)
    )
    target = TargetSection(sites=("old:gpu", "new"))
    both = read_target(msgspec.structs.replace(recipe, target=target), None, project.context)
    assert both == GpuTarget(driver="525.60.13", capabilities=(70, 90))


def test_a_package_that_no_lock_may_hold_is_refused(project: Project) -> None:
    solution = CondaSolution(
        packages=(
            CondaFound(
                name="a",
                version="1",
                build="0",
                subdir="noarch",
                channel="forge",
                file="a-1-py3-none-any.whl",
                size=1,
                sha256="0" * 64,
                md5=None,
                noarch=None,
                license=None,
                depends=(),
            ),
        )
    )
    with pytest.raises(IntegrityError, match="no lock may hold"):
        locked_packages(solution, ("a",))


def test_a_changed_line_makes_the_lock_stale(project: Project) -> None:
    lock = project.lock("samtools")
    project.write("samtools", "r-base")
    recipe, _ = read_recipe(project.folder / "recipes/cell.toml")
    assert stale_reasons(recipe, lock) == ('conda package "r-base" was added',)
    path = project.folder / "recipes/cell.toml"
    project.write("samtools")
    path.write_text(path.read_text().replace("580", "550"))
    recipe, _ = read_recipe(path)
    assert "[target] was changed" in stale_reasons(recipe, lock)[0]


def test_why_and_diff_and_outdated(project: Project, run: Run) -> None:
    old = project.lock("dated", "r-base", as_of="2026-03-01")
    (project.folder / "old.lock").write_text(write_lock(old))
    code, out, _ = run("why", "libthing", "cell", "--offline")
    assert code == 0
    assert out.splitlines()[1] == "wanted by: the recipe -> r-base 4.4.1 -> libthing 2.1"
    code, out, _ = run("outdated", "cell")
    assert code == 0
    assert "dated    1.0     2.0" in out
    project.lock("dated 1.*", "samtools")
    _, out, _ = run("outdated", "cell")
    assert out.splitlines()[1].endswith('2.0     the recipe asks for "dated 1.*"')
    code, out, _ = run("show", "cell")
    assert (code, "conda          dated 1.*; samtools" in out) == (0, True)
    project.lock("dated", "samtools")
    code, out, _ = run("diff", "old.lock", "cell")
    assert code == 0
    assert "~ dated 1.0 0 -> 2.0 0 (conda)\n" in out
    assert "- r-base 4.4.1 0 (conda)\n" in out
    code, _, err = run("why", "libthin", "cell", "--offline")
    assert code == 2
    assert "did you mean" in err


@pytest.fixture
def added_by_facts(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``add`` and ``remove`` look at no image."""

    def lock_by_facts(source: Source, request: LockRequest, context: Context) -> Any:
        return update_lock(source, replace(request, facts=project.facts), context)

    monkeypatch.setattr("envbuild.app.dev.add.update_lock", lock_by_facts)


@pytest.mark.usefixtures("added_by_facts")
def test_a_conda_package_is_added_and_removed(project: Project, run: Run) -> None:
    old = project.lock("samtools")
    recipe, lock = project.folder / "recipes/cell.toml", project.folder / "lockfiles/cell.lock"
    text = recipe.read_text()
    assert run("add", "--conda", "--no-make", "cell", "dated 1.*")[0] == 0
    assert {package.name for package in parse_lock(lock.read_text(), "x").conda} >= {"dated"}
    assert run("remove", "--conda", "--no-make", "cell", "dated")[0] == 0
    assert recipe.read_text() == text
    assert parse_lock(lock.read_text(), "x").conda == old.conda


@pytest.mark.usefixtures("added_by_facts")
def test_a_package_that_only_a_channel_has_is_named(project: Project, run: Run) -> None:
    project.lock("python 3.12.*")
    code, _, err = run("add", "--no-make", "cell", "tqdm>=4", "nowhere")
    assert code == 3
    assert "take it from the recipe's conda channels: envbuild add --conda cell tqdm\n" in err
    assert "channels" not in run("add", "--no-make", "cell", "nowhere")[2]


def test_a_first_lock_asks_the_channels_before_it_makes_a_base(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BaseIsMadeError(Exception):
        pass

    def make_base(*_: Any) -> None:
        raise BaseIsMadeError

    monkeypatch.setattr(decide, "choose_base", make_base)
    project.write("samtools")
    source = find_recipe("cell", project.settings)
    with pytest.raises(BaseIsMadeError):
        resolve_lock(source, LockOptions(), project.context)
    config = project.folder / "config.toml"
    there = re.findall(r'forge = (".*")', config.read_text())[0]
    missing = f'"{project.folder.as_uri()}/missing"'
    for addresses, error in ((missing, NetworkError), (f"[{missing}, {there}]", BaseIsMadeError)):
        config.write_text(re.sub(r"forge = .*", f"forge = {addresses}", config.read_text()))
        context = context_of(load_settings(project.settings.environment, project.folder))
        with pytest.raises(error):
            resolve_lock(source, LockOptions(), context)


def test_the_lists_of_a_channel_are_sent_once(project: Project, channels: Served) -> None:
    project.write("samtools")
    channels.sent.clear()
    require_channels(find_recipe("cell", project.settings).recipe, project.context)
    project.lock("samtools")
    project.lock("samtools", "r-base")
    # a question that comes later asks only whether they changed
    lists = [f"/forge/{subdir}/repodata.json.zst" for subdir in ("linux-64", "noarch")]
    assert sorted(channels.sent) == lists


def test_the_bill_of_materials_has_conda_packages(project: Project, run: Run) -> None:
    project.lock("samtools")
    code, out, _ = run("export", "cell", "--format", "sbom")
    assert code == 0
    component = next(c for c in json.loads(out)["components"] if c["name"] == "samtools")
    assert (
        component["purl"]
        == "pkg:conda/samtools@1.21?build=0&channel=forge&subdir=linux-64&type=conda"
    )
    assert component["licenses"] == [{"license": {"name": "MIT"}}]


CHANGES = (
    ('channel = "forge"', 'channel = "other"', "which the lock does not list"),
    ("samtools-1.21-0.conda", "samtools-1.22-0.conda", "is no file of samtools 1.21 0"),
    ('"samtools", version', '"libthing", version', "locked twice"),
)


@pytest.mark.parametrize(("before", "after", "said"), CHANGES)
def test_a_lock_changed_by_hand_is_refused(
    before: str, after: str, said: str, project: Project
) -> None:
    text = write_lock(project.lock("samtools"))
    assert before in text
    with pytest.raises(IntegrityError, match=said):
        parse_lock(text.replace(before, after), "cell.lock")


@pytest.mark.parametrize("build", ["..", "a/b", "../../x", "a\\\\nb", ""])
def test_a_build_string_that_leads_out_is_refused(build: str, project: Project) -> None:
    text = write_lock(project.lock("samtools"))
    with pytest.raises(UsageError, match="build"):
        parse_lock(text.replace('build = "0"', f'build = "{build}"'), "cell.lock")
