"""Exports of an image for JupyterHub, Open OnDemand and VS Code."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import chain
from pathlib import Path

import pytest
import yaml

from envbuild.plan.quoting import quote_erb
from envbuild.run import Command, LocalRunner
from envbuild.wrap.portal import hub_lines, ondemand_files, render_start_server, vscode_lines
from tests.project import Project, shared_store
from tests.support import Golden, needs, wait_until
from tests.wrap.conftest import envbuild
from tests.wrap.jupyter_image import put_jupyter_image

NATIVE = ("--nodes=1", "--gpus=1", '-l <%= `id` %> "x"')


def test_the_files_are_as_expected(golden: Golden) -> None:
    golden("wrap/start-server", render_start_server("/shared/envbuild/jupyterhub/nb"))
    golden("wrap/jupyterhub.txt", hub_lines("/shared/envbuild/jupyterhub/nb"))
    golden("wrap/vscode.txt", vscode_lines("nb", "/shared/envbuild/vscode/nb", "login1", "me"))
    files = ondemand_files("nb", "mycluster", "/shared/envbuild/ondemand/nb", NATIVE, 4)
    for name, text in files.items():
        golden(f"wrap/ondemand/{name}", text)
    native = yaml.safe_load(files["submit.yml.erb"])["script"]["native"]
    assert native == [quote_erb(word) for word in NATIVE]
    assert yaml.safe_load(files["form.yml"])["attributes"]["bc_num_hours"]["value"] == 4
    assert yaml.safe_load(files["manifest.yml"])["role"] == "batch_connect"


@pytest.mark.live
@needs("shellcheck")
@pytest.mark.parametrize(
    "name", ["start-server", "on-node", "start-on-node", "ondemand/template/script.sh.erb"]
)
def test_shellcheck_finds_nothing(name: str) -> None:
    path = Path(__file__).parents[1] / f"golden/wrap/{name}"
    # host and port are the portal's
    argv = ("shellcheck", "--shell=bash", "--exclude=SC2154", str(path))
    result = LocalRunner()(Command(argv=argv, timeout=60), check=False)
    assert result.code == 0, result.stdout


@pytest.mark.live
@needs("apptainer", "mmdebstrap")
def test_an_app_of_a_portal_is_written(tmp_path: Path) -> None:
    put_jupyter_image(tmp_path)
    project = Project(tmp_path)
    words = ("export", "nb", "--format", "ondemand", "-o", "app")
    missing = project.run(*words)
    assert (missing.code, "for which cluster?" in missing.stderr) == (2, True)
    result = project.succeed(*words, "--for", "amane")
    app = tmp_path / "app"
    assert result.stdout == f"{app}\n"
    made = {str(path.relative_to(app)) for path in app.rglob("*") if path.is_file()}
    texts = {"form.yml", "manifest.yml", "submit.yml.erb", "view.html.erb"}
    scripts = {"in-image", "template/before.sh.erb", "template/script.sh.erb"}
    assert made == texts | scripts
    native = yaml.safe_load((app / "submit.yml.erb").read_text())["script"]["native"]
    assert "--nodes=1" in native
    assert not [word for word in native if re.match("--(output|job-name|time)", word)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "vscode", "-o", "a b"), "cannot be in the settings of others"),
        (("--format", "jupyterhub", "-o", "$(id)"), "cannot be in the settings of others"),
        (("--format", "vscode", "-o", "recipes"), "envbuild did not make it"),
        (("--format", "pylock", "--for", "amane"), "--for goes with"),
    ],
)
def test_what_cannot_be_is_refused(project: Path, words: tuple[str, ...], said: str) -> None:
    result = envbuild(project, "export", "tiny", *words)
    assert (result.code, said in result.stderr) == (2, True), result.stderr


def test_vs_codes_server_outlives_the_container(project: Path) -> None:
    result = envbuild(project, "export", "tiny", "--format", "vscode", "-o", "../code")
    assert result.code == 0, result.stderr
    assert f"RemoteCommand {project.parent}/code/in-image bash" in result.stdout
    script = (project.parent / "code/in-image").read_text()
    assert '"$caches/home/.vscode-server=.vscode-server"' in script


@contextmanager
def hub() -> Iterator[tuple[str, list[tuple[str, str | None, bytes]]]]:
    """Play the hub's API; yields its URL and what it was told."""
    told: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.append((self.path, self.headers["Authorization"], body))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hub/api", told
        server.shutdown()


@pytest.mark.live
@needs("apptainer", "mmdebstrap")
@pytest.mark.parametrize("service", ["http://0.0.0.0:0/user/ada/", ""])
def test_the_port_is_told_to_the_hub(tmp_path: Path, service: str) -> None:
    """The image has no batchspawner; the program that stands for it needs only Python inside."""
    put_jupyter_image(tmp_path)
    (tmp_path / "home").mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"}
    argv = (sys.executable, "-m", "envbuild", "export", "nb", "--format", "jupyterhub")
    store = {"ENVBUILD_STORE": str(shared_store())}
    told = LocalRunner()(
        Command(argv=(*argv, "-o", "hub"), cwd=tmp_path, env={**env, **store}, timeout=300)
    )
    assert f'"{tmp_path}/hub/start-server"' in told.stdout
    show = "import os, sys; print(os.environ.get('JUPYTERHUB_SERVICE_URL'), sys.argv[1:])"
    with hub() as (url, asked):
        variables = {"JUPYTERHUB_API_URL": url, "JUPYTERHUB_API_TOKEN": "hush"}
        variables |= {"JUPYTERHUB_SERVICE_URL": service} if service else {}
        words = (f"{tmp_path}/hub/start-server", "python3", "-c", show, "--ip=0.0.0.0")
        command = Command(argv=words, cwd=tmp_path, env={**env, **variables}, timeout=60)
        result = LocalRunner()(command, check=False)
    [(path, authorization, body)] = asked
    port = json.loads(body)["port"]
    assert (path, authorization) == ("/hub/api/batchspawner", "token hush")
    if service:
        assert result.stdout == f"http://0.0.0.0:{port}/user/ada/ ['--ip=0.0.0.0']\n"
    else:
        assert result.stdout == f"None ['--ip=0.0.0.0', '--port={port}']\n"


ERB = """
require "erb"; require "yaml"; require "json"
given = JSON.parse(ARGV[1]).transform_keys(&:to_sym)
text = ERB.new(File.read(ARGV[0]), trim_mode: "-").result_with_hash(given)
print ARGV[0].include?(".yml") ? JSON.generate(YAML.safe_load(text)) : text
"""


@pytest.mark.live
@needs("ruby")
def test_ruby_reads_the_files_of_a_portal_as_they_are_meant(tmp_path: Path) -> None:
    """As Open OnDemand does: ERB first, then YAML or the shell."""
    files = ondemand_files("nb", "mycluster", "/shared/it's <%= 1 %> 日本", NATIVE, 4)
    shown = {}
    for name, text in files.items():
        path = tmp_path / name.replace("/", "-")
        path.write_text(text)
        given = json.dumps({"host": "n1", "port": 8888, "password": "hush"})
        argv = ("ruby", "-Ku", "-e", ERB, str(path), given)
        shown[name] = LocalRunner()(Command(argv=argv, timeout=30)).stdout
    assert json.loads(shown["submit.yml.erb"])["script"]["native"] == list(NATIVE)
    assert json.loads(shown["manifest.yml"])["role"] == "batch_connect"
    assert json.loads(shown["form.yml"])["attributes"]["bc_num_hours"]["value"] == 4
    assert "<%= 1 %>" in shown["template/script.sh.erb"]
    assert 'action="/node/n1/8888/login"' in shown["view.html.erb"]
    assert 'value="hush"' in shown["view.html.erb"]


def listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def ssh_server(folder: Path) -> Iterator[tuple[str, ...]]:
    """Run a real ssh server on this machine's loopback; yields the options of a client that may log in."""
    for name in ("host", "user"):
        words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        LocalRunner()(Command(argv=words, timeout=30))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True)
    given = f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nPidFile none\n"
    given += f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
    (folder / "sshd_config").write_text(given)
    server = subprocess.Popen(("/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")))
    options = [f"Port={port}", "HostName=127.0.0.1", f"IdentityFile={folder}/user"]
    options += ["BatchMode=yes", "StrictHostKeyChecking=no", "LogLevel=ERROR"]
    options += [f"UserKnownHostsFile={folder}/known"]
    try:
        wait_until(lambda: listens(port), "sshd listens")
        yield tuple(chain.from_iterable(("-o", option) for option in options))
    finally:
        server.terminate()
        server.wait(timeout=30)


@pytest.mark.live
@needs("apptainer", "mmdebstrap", "ssh", "sshd")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's ssh server lets anybody in")
def test_ssh_leads_into_the_image_as_vs_code_asks_for_it(tmp_path: Path) -> None:
    """VS Code gives the shell behind RemoteCommand its commands on standard input."""
    put_jupyter_image(tmp_path)
    result = Project(tmp_path).run("export", "nb", "--format", "vscode", "-o", "code", USER="root")
    assert result.code == 0, result.stderr
    config = tmp_path / "config"
    config.write_text(result.stdout.partition("# settings.json")[0])
    [host] = re.findall(r"^Host (\S+)$", config.read_text(), re.MULTILINE)
    said = (
        "echo uname=$(uname -s) image=$APPTAINER_CONTAINER\npython3 -c 'import six; print(six)'\n"
    )
    said += "mkdir -p ~/.vscode-server && date >~/.vscode-server/mark; exit 3\n"
    with ssh_server(tmp_path) as options:
        argv = ("ssh", "-F", str(config), *options, host)
        command = Command(argv=argv, stdin=said, env={"PATH": os.environ["PATH"]}, timeout=90)
        found = LocalRunner()(command, check=False)
    assert found.code == 3, found.stdout + found.stderr
    assert f"uname=Linux image={tmp_path}/nb.sif" in found.stdout
    assert "site-packages/six.py" in found.stdout or "dist-packages/six.py" in found.stdout
