"""A real JupyterHub with batchspawner: a user's server starts in the image, as a job, and answers."""

from __future__ import annotations

import contextlib
import getpass
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.job.conftest import ON_SCHEDULERS, Project
from tests.job.tunnel import enter_words, tunnel
from tests.project import shared_store
from tests.support import needs
from tests.wrap.jupyter_image import put_jupyter_image

pytestmark = [*ON_SCHEDULERS, needs("mmdebstrap")]
PACKAGES = ("jupyterhub==6.1.1", "batchspawner==1.3.0", "configurable-http-proxy==0.4.0")
PORT, PROXY, HUB = 8000, 8001, 8081
"""In the network of the schedulers, which nobody else is in."""
TOKEN = "0123456789abcdef0123"
CONFIG = f"""
import os

c.JupyterHub.bind_url = "http://127.0.0.1:{PORT}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{HUB}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{PROXY}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.services = [{{"name": "test", "api_token": "{TOKEN}"}}]
c.JupyterHub.load_roles = [
    {{"name": "test", "scopes": ["admin:users", "admin:servers", "access:servers"], "services": ["test"]}}
]
c.BatchSpawnerBase.exec_prefix = ""
c.BatchSpawnerBase.req_options = "--chdir={{0}} --output={{0}}/server-%j.log".format(os.getcwd())
c.BatchSpawnerBase.req_partition = "gpu"
c.BatchSpawnerBase.req_runtime = "10"
c.SlurmSpawner.start_timeout = 180
# batchspawner runs them with the user's variables, PATH too; the hub knows no names of nodes
query = "squeue -h -j {{job_id}} -o '%T %B' | sed 's/ node/ 10.98.0./'"
words = {{"submit": "sbatch --parsable", "query": query, "cancel": "scancel {{job_id}}"}}
for name in words:
    c.SlurmSpawner["batch_" + name + "_cmd"] = os.environ["CLIENTS"] + "/" + words[name]
c.Spawner.http_timeout = 120
c.Spawner.args = ["--allow-root"]  # these tests may run as root
"""
"""What the centre writes itself: who may log in, and where the hub listens."""


def hub_program() -> Path:
    """Return jupyterhub of an environment that is kept beside the tests' store."""
    folder = shared_store() / "jupyterhub-6.1.1"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        run = LocalRunner()
        run(Command(argv=(sys.executable, "-m", "venv", str(folder)), timeout=120))
        pip = (str(folder / "bin/pip"), "-q", "install", *PACKAGES)
        done = run(Command(argv=pip, timeout=600), check=False)
        if done.code:
            pytest.skip(f"JupyterHub cannot be installed: {done.last_lines(1)}")
        (folder / "done").touch()
    return folder / "bin/jupyterhub"


@contextlib.contextmanager
def running_hub(project: Project, clients: Path, lines: str) -> Iterator[str]:
    """Run a hub where the nodes see it, with these lines in its settings; yields its URL for tests."""
    (project.folder / "jupyterhub_config.py").write_text(lines + CONFIG)
    program = hub_program()
    path = f"{program.parent}:{project.environment['PATH']}"
    environment = {
        **project.environment,
        "PATH": path,
        "CONFIGPROXY_AUTH_TOKEN": "hush",
        "CLIENTS": str(clients),
    }
    words = (
        *enter_words(clients),
        "env",
        *[f"{key}={value}" for key, value in environment.items()],
    )
    with (project.folder / "hub.log").open("w") as log:
        hub = subprocess.Popen((*words, str(program)), cwd=project.folder, stdout=log, stderr=log)
        try:
            with tunnel(clients, ("127.0.0.1", PORT)) as port:
                yield f"http://127.0.0.1:{port}"
        finally:
            hub.terminate()
            hub.wait(30)


def ask(url: str, method: str = "GET", data: object = None) -> tuple[int, str]:
    body = None if data is None else json.dumps(data).encode()
    headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, method=method, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:  # it is not there yet
        return 0, str(error)


def wait_until(url: str, wanted: str, project: Project, seconds: float = 180) -> str:
    """Ask until the answer holds a text, and return the answer."""
    end = time.monotonic() + seconds
    while True:
        code, text = ask(url)
        if code == 200 and wanted in text:
            return text
        log = (project.folder / "hub.log").read_text()
        assert time.monotonic() < end, f"{url}: {code} {text}\n{log}"
        time.sleep(0.5)


def test_a_server_of_the_hub_runs_in_the_image(project: Project, clients: Path) -> None:
    put_jupyter_image(project.folder)
    store = {"ENVBUILD_STORE": str(shared_store())}
    words = ("export", "nb", "--format", "jupyterhub", "-o", "portal")
    told = project.succeed(*words, timeout=400, variables=store)
    user = getpass.getuser()
    with running_hub(project, clients, told.stdout) as url:
        wait_until(f"{url}/hub/api/", "version", project)
        assert ask(f"{url}/hub/api/users/{user}", "POST")[0] == 201
        code, text = ask(f"{url}/hub/api/users/{user}/server", "POST")
        assert code in (201, 202), text + (project.folder / "hub.log").read_text()
        wait_until(f"{url}/user/{user}/api/status", "kernels", project)
        page = wait_until(f"{url}/user/{user}/lab", "<title>JupyterLab</title>", project)
        assert "jupyter-config-data" in page
        # the server is a job, in the image
        jobs = project.environment | {"SQUEUE_FORMAT": "%j %T"}
        queue = LocalRunner()(Command(argv=("squeue", "-h"), env=jobs, timeout=20))
        assert queue.stdout.split() == ["spawner-jupyterhub", "RUNNING"]
        specs = json.loads(ask(f"{url}/user/{user}/api/kernelspecs")[1])
        assert specs["default"] == "python3"
        folder = specs["kernelspecs"]["python3"]["resources"]["logo-svg"]
        assert folder.startswith(f"/user/{user}/")
        code, kernel = ask(f"{url}/user/{user}/api/kernels", "POST", {"name": "python3"})
        assert code == 201, kernel
        assert ask(f"{url}/hub/api/users/{user}/server", "DELETE")[0] in (202, 204)
        end = time.monotonic() + 60
        while LocalRunner()(Command(argv=("squeue", "-h"), env=jobs, timeout=20)).stdout.strip():
            assert time.monotonic() < end, "its job goes on"
            time.sleep(0.5)
    [log] = project.folder.glob("server-*.log")
    assert "/usr/" in log.read_text(), "the packages are those of the image"
