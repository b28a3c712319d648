"""Texts for what starts servers for users: JupyterHub with batchspawner, Open OnDemand, VS Code."""

from __future__ import annotations

import json

from envbuild.names import Texts
from envbuild.plan.quoting import quote_erb, quote_literal
from envbuild.wrap.script import DIRECT, own_text

START = "start-server"


def render_start_server(folder: str) -> str:
    """Return the program that takes the place of batchspawner-singleuser, which images have not.

    It tells the hub its port as that does (jupyterhub/batchspawner, singleuser.py and api.py).
    """
    code = own_text("report_port.py")
    return f'#!/bin/bash\nexec {folder}/{DIRECT} python3 -c {quote_literal(code)} "$@"\n'


def hub_lines(folder: str) -> str:
    """Return the lines for jupyterhub_config.py; batchspawner joins the words with blanks."""
    return (
        "# jupyterhub_config.py\n"
        "import batchspawner  # registers the API that takes the port\n\n"
        'c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"  # or another one\n'
        f'c.BatchSpawnerBase.batchspawner_singleuser_cmd = "{folder}/{START}"\n'
        'c.Spawner.cmd = ["jupyterhub-singleuser"]\n'
    )


def ondemand_files(
    name: str, cluster: str, folder: str, native: Texts, hours: int
) -> dict[str, str]:
    """Return the files of an interactive app of Open OnDemand, by name.

    ``native`` are the scheduler's options, ``hours`` is what the form proposes.  As in OSC's own
    app the login is a form without Jupyter's cookie against forgery (disable_check_xsrf): the
    portal's page posts it.
    """
    options = "".join(f"    - {json.dumps(word)}\n" for word in native)
    program = quote_literal(f"{folder}/{DIRECT}")
    server = (
        "#!/bin/bash\n"
        'cd "$HOME" || exit\n'
        f'exec {program} --bind "$JUPYTER_TOKEN_FILE" python3 -m jupyterlab --no-browser \\\n'
        '  --ip=0.0.0.0 --port="$port" --ServerApp.port_retries=0 \\\n'
        '  --ServerApp.base_url="/node/$host/$port/" --ServerApp.allow_origin="*" \\\n'
        "  --ServerApp.disable_check_xsrf=True\n"
    )
    before = (
        "# sourced by the job; the portal reads host, port and password\n"
        'port=$(find_port "$host")\n'
        "password=$(create_passwd 32)\n"
        'export host port JUPYTER_TOKEN_FILE="$PWD/token"\n'
        '(umask 077 && printf %s "$password" >"$JUPYTER_TOKEN_FILE")\n'
    )
    view = (
        '<form action="/node/<%= host %>/<%= port %>/login" method="post" target="_blank">\n'
        '  <input type="hidden" name="password" value="<%= password %>">\n'
        '  <button class="btn btn-primary" type="submit">JupyterLab</button>\n'
        "</form>\n"
    )
    title = json.dumps(f"JupyterLab: {name}")
    return {
        "manifest.yml": f"---\nname: {title}\ncategory: Interactive Apps\nsubcategory: Servers\n"
        f"role: batch_connect\ndescription: {json.dumps(f'JupyterLab in the image {name}')}\n",
        "form.yml": f"---\ncluster: {json.dumps(cluster)}\ntitle: {title}\nattributes:\n"
        f"  bc_num_hours:\n    value: {hours}\nform:\n  - bc_num_hours\n  - bc_email_on_started\n",
        "submit.yml.erb": "---\nbatch_connect:\n  template: basic\nscript:\n  native:\n"
        + quote_erb(options),
        "template/before.sh.erb": before,
        "template/script.sh.erb": quote_erb(server),
        "view.html.erb": view,
    }


def vscode_lines(name: str, folder: str, host: str, user: str) -> str:
    """Return what goes into ssh's and VS Code's settings (microsoft/vscode-remote-release#3066)."""
    settings = {"remote.SSH.enableRemoteCommand": True, "remote.SSH.useLocalServer": True}
    return (
        "# ~/.ssh/config on your own machine; a node of your job: HostName NODE, ProxyJump LOGIN\n"
        f"Host {name}~{host}\n  HostName {host}\n  User {user}\n  RequestTTY yes\n"
        f"  RemoteCommand {folder}/{DIRECT} bash\n\n"
        f"# settings.json of VS Code\n{json.dumps(settings, indent=1)}\n"
    )
