"""``envbuild kernel``: the spec, and a real kernel that a Jupyter outside of the image starts."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from envbuild.job.sites.find import load_site
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings
from envbuild.wrap import scripts
from envbuild.wrap.kernel import (
    NodeKernel,
    render_forward,
    render_kernel,
    render_node_kernel,
    render_start,
)
from tests.support import PATIENCE, Golden, needs, wait_until
from tests.wrap.conftest import envbuild
from tests.wrap.jupyter_image import put_jupyter_image


def test_the_spec_is_as_expected(golden: Golden) -> None:
    golden("wrap/kernel.json", render_kernel("a-b.c", "/data/it's 日本/in-image", '/i "1".sif'))


def test_the_files_of_a_kernel_on_a_node_are_as_expected(
    golden: Golden, user_settings: Settings
) -> None:
    site = load_site("tsubame4", user_settings)
    words = ("qrsh", "-now", "n", "bash", "/data/it's 日本/start-on-node")
    kernel = NodeKernel(folder="/data/it's 日本", site=site, words=words)
    golden("wrap/kernel-on-node.json", render_node_kernel("a-b.c", '/i "1".sif', kernel))
    golden("wrap/on-node", render_forward(kernel))
    golden("wrap/start-on-node", render_start(kernel))


def test_a_relay_whose_command_ends_gives_its_code(tmp_path: Path) -> None:
    """A job that is refused: Jupyter's log has the scheduler's words, and the kernel has ended."""
    relay = Path(scripts.__file__).with_name("relay.py")
    names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    facts = {"ip": "127.0.0.1", "key": "k", **dict.fromkeys(names, 0)}
    connection = tmp_path / "connection.json"
    connection.write_text(json.dumps(facts))
    job = ("sh", "-c", "echo no such account; exit 3")
    words = (sys.executable, str(relay), "forward", str(connection), *job)
    result = LocalRunner()(Command(argv=words, timeout=30), check=False)
    assert (result.code, result.stdout, result.stderr) == (3, "", "no such account\n")


def test_a_kernel_is_written_and_removed(project: Path) -> None:
    result = envbuild(project, "kernel", "tiny")
    assert result.code == 0, result.stderr
    folder = project.parent / ".local/share/jupyter/kernels/envbuild-tiny"
    told = result.stdout.splitlines()
    assert told[0] == f'kernel "tiny (image)" in {folder}'
    assert "launcher" in told[1]
    assert told[2:] == [
        "  or       jupyter console --kernel envbuild-tiny",
        "  remove   envbuild kernel tiny --remove",
    ]
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"][0] == str(folder / "in-image")
    assert os.access(folder / "in-image", os.X_OK)
    lab = envbuild(project, "kernel", "tiny", "--prefix", "the lab's")
    assert "remove   envbuild kernel tiny --prefix 'the lab'\"'\"'s' --remove" in lab.stdout
    (project / "tiny.sif").unlink()
    assert envbuild(project, "kernel", "tiny", "--remove").code == 0
    assert not folder.exists()
    again = envbuild(project, "kernel", "tiny", "--remove")
    assert (again.code, "there is no such kernel" in again.stderr) == (2, True)


@pytest.mark.parametrize("text", ["{", "[]", '{"metadata": 1}', '{"metadata": {}}'])
def test_a_kernel_of_somebody_else_is_left_alone(project: Path, text: str) -> None:
    spec = project.parent / "own/share/jupyter/kernels/envbuild-tiny/kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(text)
    for words in ((), ("--remove",)):
        result = envbuild(project, "kernel", "tiny", "--prefix", "../own", *words)
        assert (result.code, "envbuild did not make it" in result.stderr) == (2, True)
    assert spec.read_text() == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tiny", "--prefix", "{x}"), "Jupyter starts no program of such a path"),
        (("..", "--remove"), "make a name"),
        (("--remove",), "which kernel?"),
    ],
)
def test_hostile_words_are_refused(project: Path, words: tuple[str, ...], said: str) -> None:
    result = envbuild(project, "kernel", *words)
    assert (result.code, said in result.stderr) == (2, True), result.stderr


def run_cell(client: Any, code: str) -> str:
    """Return what a cell prints, and the name of the error that ended it."""
    texts = []

    def note(message: Any) -> None:
        content = message["content"]
        texts.append(content.get("text", "") + content.get("ename", ""))

    def run() -> str:
        reply = client.execute_interactive(code, output_hook=note, timeout=PATIENCE)
        status: str = reply["content"]["status"]
        return status

    # a kernel drops what comes while it clears its queue after an error (ipykernel, stop_on_error)
    wait_until(lambda: run() != "aborted", "the kernel takes a cell")
    return "".join(texts)


@pytest.mark.live
@needs("apptainer", "mmdebstrap")
@pytest.mark.filterwarnings("default")  # jupyter_client leaves sockets to the collector
def test_a_real_kernel_computes_and_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyter_client.manager import start_new_kernel

    put_jupyter_image(tmp_path)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    argv = (sys.executable, "-m", "envbuild", "kernel", "nb")
    LocalRunner()(Command(argv=argv, cwd=tmp_path, timeout=120))
    manager, client = start_new_kernel(kernel_name="envbuild-nb")
    try:
        code = "import os, six; print(six.__version__, os.environ['HOME'], os.getcwd())"
        assert run_cell(client, code) == f"1.16.0 /tmp {tmp_path}\n"
        sleeping = client.execute("import time; time.sleep(600)")
        time.sleep(1)
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=PATIENCE)
        while reply["parent_header"]["msg_id"] != sleeping:
            reply = client.get_shell_msg(timeout=PATIENCE)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert run_cell(client, "print(six.__name__)") == "six\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
