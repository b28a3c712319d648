"""A real JupyterLab as a real job, in a real browser: a cell computes, and nobody else sees the token."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions as shown
from selenium.webdriver.support.wait import WebDriverWait

from envbuild.run import Command, LocalRunner
from tests.browser import open_browser
from tests.job.conftest import ON_SCHEDULERS, Project, make_project
from tests.job.tunnel import tunnel
from tests.project import small_project
from tests.support import needs, wait_until
from tests.wrap.jupyter_image import put_jupyter_image

pytestmark = [
    *ON_SCHEDULERS,
    needs("mmdebstrap", "chromium", "chromedriver"),
]
ADDRESSES = {
    "slurm": {"node1": "10.98.0.1", "node2": "10.98.0.2"},
    "gridengine": {platform.node(): "127.0.0.1"},
    "pbs": {"pbs1": "10.96.0.1", "pbs2": "10.96.0.2"},
}
"""The nodes of each scheduler, as scripts/setup-schedulers.sh names them."""
SHOW_JOB = {
    "slurm": ("scontrol", "show", "job", "-dd"),
    "gridengine": ("qstat", "-j"),
    "pbs": ("qstat", "-f"),
}
"""All that a scheduler tells of a job."""


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def compute(browser: Chrome, url: str, cell: str) -> str:
    """Open JupyterLab, start a notebook, run one cell and return what it prints."""
    wait = WebDriverWait(browser, 120)  # seconds; some machines build meanwhile
    browser.get(url)
    card = (By.CSS_SELECTOR, ".jp-LauncherCard[data-category='Notebook']")
    wait.until(shown.element_to_be_clickable(card)).click()
    # a cell that is run before the kernel is there does nothing
    idle = (By.CSS_SELECTOR, ".jp-Notebook-ExecutionIndicator[data-status='idle']")
    wait.until(shown.presence_of_element_located(idle))
    editor = (By.CSS_SELECTOR, ".jp-Notebook .jp-Cell .cm-content")
    output = (By.CSS_SELECTOR, ".jp-Notebook .jp-OutputArea-output pre")
    for _ in range(6):
        wait.until(shown.element_to_be_clickable(editor)).click()
        keys = ActionChains(browser)
        keys.key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys(cell)
        keys.key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
        # on a busy machine the page may lose keys while it is still being built
        with contextlib.suppress(TimeoutException, StaleElementReferenceException):
            return (
                WebDriverWait(browser, 20).until(shown.visibility_of_element_located(output)).text
            )
    raise AssertionError("the cell printed nothing")


def readable_by_others(folder: Path) -> Iterator[Path]:
    """Find the files below a folder that a stranger could read."""
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if path.is_dir() and not path.is_symlink() and mode & 0o005:
            yield from readable_by_others(path)
        elif path.is_file() and mode & 0o044:
            yield path


def arguments_of_all() -> str:
    """What every user of the machine sees of every process."""
    command = Command(argv=("ps", "-eo", "args", "-ww"), timeout=20)
    return LocalRunner()(command).stdout


@pytest.mark.parametrize("scheduler", ADDRESSES)
def test_a_cell_computes_on_a_node(
    scheduler: str, request: pytest.FixtureRequest, tmp_path: Path, browser: Chrome
) -> None:
    clients = request.getfixturevalue("pbs_clients" if scheduler == "pbs" else "clients")
    project = make_project(tmp_path, clients)
    put_jupyter_image(project.folder)
    result = project.succeed("notebook", "nb", "--on", scheduler)
    line = re.search(r"ssh -N -L (\d+):(\S+):(\d+) \w+@\S+$", result.stdout, re.MULTILINE)
    url = re.search(r"http://127\.0\.0\.1:\d+(/lab\?token=(\S+))", result.stdout)
    job = re.search(r"job (\d+) on ", result.stderr)
    assert line, result.stdout
    assert url, result.stdout
    assert job, result.stderr
    try:
        with tunnel(clients, (ADDRESSES[scheduler][line[2]], int(line[3]))) as port:
            cell = "import os, six; print(six.__version__, os.uname().nodename, 6 * 7)"
            printed = compute(browser, f"http://127.0.0.1:{port}{url[1]}", cell)
            assert printed == f"1.16.0 {line[2]} 42"
        token = url[2]
        assert len(token) >= 40
        assert token not in arguments_of_all()
        command = Command(argv=(*SHOW_JOB[scheduler], job[1]), env=project.environment, timeout=20)
        told = LocalRunner()(command).stdout
        assert job[1] in told
        assert token not in told
        seen = [path for path in readable_by_others(project.folder) if path.stat().st_size < 2**20]
        assert any(path.suffix == ".log" for path in seen)
        assert not [path for path in seen if token.encode() in path.read_bytes()]
        again = project.run("notebook", "nb", "--on", scheduler, "--json")
        assert json.loads(again.stdout)["url"].endswith(token)
    finally:
        project.run("cancel", job[1])

    def is_removed() -> bool:
        project.run(
            "notebook", "nb", "--on", scheduler, "--partition", "nowhere"
        )  # removes the old
        kept = project.folder.glob(".envbuild/jobs/*.notebook/token")
        return token not in "".join(path.read_text() for path in kept)

    wait_until(is_removed, "the job has ended, and its folder is removed")


def test_a_layer_brings_jupyterlab_where_the_image_has_none(project: Project) -> None:
    small = small_project(project.folder / "small")
    assert small.run("make", "small", "--no-check", "--no-proof").code == 0
    result = small.succeed("notebook", "small", "--on", "local", "--json")
    told = json.loads(result.stdout)
    try:
        assert "small.sif has no jupyterlab: a layer over the image brings it" in result.stderr
        assert told["tunnel"] is None
        with urllib.request.urlopen(told["url"], timeout=30) as page:
            assert "<title>JupyterLab</title>" in page.read().decode()
    finally:
        small.run("cancel", told["job"])


def test_a_dry_run_prints_the_script_and_writes_nothing(project: Project) -> None:
    put_jupyter_image(project.folder)
    before = set(project.folder.rglob("*"))
    result = project.succeed("notebook", "nb", "--on", "slurm", "--gpus", "1", "--dry-run")
    assert result.stdout.startswith("# sbatch --parsable SCRIPT\n#!/bin/bash\n")
    assert "-m jupyterlab" in result.stdout
    new = {path for path in set(project.folder.rglob("*")) - before if "home" not in path.parts}
    assert new == set()


def test_a_job_that_ends_too_early_is_told(project: Project) -> None:
    put_jupyter_image(project.folder)
    wrong = ("--env", "PYTHONHOME=/nowhere")
    result = project.run("notebook", "nb", "--on", "local", *wrong)
    assert result.code == 7, result.stderr
    assert "the job ended before JupyterLab was up" in result.stderr
    [log] = (project.folder / "logs").glob("nb-notebook-*.log")
    assert f"its log: logs/{log.name}" in result.stderr
