"""``envbuild notebook``: JupyterLab from an image, here or as a job on a node.

Its token is in a file that only its owner reads, in no argument, variable or log (jupyter_server,
IdentityProvider.token: JUPYTER_TOKEN_FILE).
"""

from __future__ import annotations

import os
import platform
import secrets
import shlex
import shutil
from pathlib import Path

import msgspec

from envbuild.app.enter import plan_entry
from envbuild.app.image import FoundImage, find_image, refuse_old_image, warn_of_old_image
from envbuild.app.job.prepare import JobRequest, hand_variables, plan_job, refuse_unfit
from envbuild.app.site import find_site
from envbuild.app.wrap.wrapper import choose_packages, lay_packages
from envbuild.base.digests import known_digest
from envbuild.context import Context
from envbuild.errors import HostError, UsageError
from envbuild.job.model import Job, Record
from envbuild.job.preflight import check_client
from envbuild.job.request.intent import Flags
from envbuild.job.schedulers import features_of
from envbuild.job.sites.site import Site
from envbuild.job.submit import new_key, submit
from envbuild.job.track.monitor import Clock, status_of
from envbuild.job.track.records import FOLDER as JOBS
from envbuild.job.track.records import (
    job_folder,
    load_own_records,
    log_files,
    plain_id,
    read_plain,
    read_receipts,
)
from envbuild.limits import UNREADABLE
from envbuild.names import Texts
from envbuild.records import frozen_record, replace
from envbuild.run import Command
from envbuild.store.atomic import os_errors_as, write_text

PURPOSE = "notebook"
LAB = ("python3", "-m", "jupyterlab", "--no-browser", "--ServerApp.use_redirect_file=False")
TOLD = 'uname -n >"$0/node" && exec "$@"'
"""Says on which node the server runs before it starts."""
LOOK, ASK = 0.3, 3.0
"""Seconds between two looks for the server's file, and between two questions to the scheduler."""


class _ServerFile(msgspec.Struct, frozen=True):
    """What is read of the file that a server keeps while it runs (jupyter_server, server info)."""

    port: int


@frozen_record
class Notebook:
    """A server that runs: where, and how to reach it; ``tunnel`` None means from here."""

    job: str
    node: str
    port: int
    url: str
    tunnel: str | None


def plan_here(request: JobRequest, context: Context, *, dry_run: bool) -> Command:
    """Return the command that runs JupyterLab on this machine; it prints its address itself.

    With ``dry_run`` nothing is written: a layer with JupyterLab is left out.
    """
    if request.flags != Flags():
        raise UsageError("job options need --on SITE", hint="envbuild site list")
    found = find_image(request.image, context)
    warn_of_old_image(found, context)
    packages = choose_packages(found, "jupyterlab", request.packages, context)
    found = found if dry_run else lay_packages(found, packages, context)
    argv = (*_lab_words(), "--ip=127.0.0.1")
    return plan_entry(
        found,
        argv,
        context,
        binds=request.binds,
        variables=request.variables,
        dry_run=dry_run,
    )


def _lab_words() -> Texts:
    return (*LAB, "--allow-root") if os.geteuid() == 0 else LAB


def submit_notebook(
    request: JobRequest, context: Context, *, through_node: bool
) -> tuple[Record, Site]:
    """Submit JupyterLab as a job, or take up the one that runs already for the same image.

    ``through_node`` listens on the node's own loopback, for users who may log in there.
    """
    settings = context.settings
    site = find_site(request.site, context)
    found = find_image(request.image, context)
    _remove_old(context)
    digest = known_digest(found.path, context.store)
    for record in reversed(load_own_records(settings)):
        own = (record.site, record.purpose, record.subject) == (site.name, PURPOSE, digest)
        if own and _is_alive(record, site, context):
            context.report.say(f"job {plain_id(record.id)} is a notebook of this image already")
            return record, site
    refuse_old_image(found, f"envbuild notebook ./{found.path.name} takes it as it is")
    packages = choose_packages(found, "jupyterlab", request.packages, context)
    request = replace(request, name=_job_name(found), packages=packages)
    folder = _new_folder(request, context)
    # make the private folder of a server, with a new token in it
    job_folder(folder.parents[2])
    with os_errors_as(folder):
        folder.mkdir(mode=0o700)
    write_text(folder / "token", secrets.token_urlsafe(32), mode=0o600)
    request = _lab_request(request, folder, site, through_node=through_node)
    job, site, found = plan_job(request, context)
    refuse_unfit(found, job.intent, site)
    check_client(site, context)
    job, key = hand_variables(job, request, context)
    record = submit(job, site, context, key=key, purpose=PURPOSE, subject=digest)
    return record, site


def preview_notebook(
    request: JobRequest, context: Context, *, through_node: bool
) -> tuple[Job, Site]:
    """Return the job that would run JupyterLab; nothing is written.

    A layer with JupyterLab, where the image has none, is left out.
    """
    site = find_site(request.site, context)
    found = find_image(request.image, context)
    choose_packages(found, "jupyterlab", request.packages, context)
    request = replace(request, name=_job_name(found), packages=())
    folder = _new_folder(request, context)
    request = _lab_request(request, folder, site, through_node=through_node)
    job, site, _ = plan_job(request, context)
    return job, site


def _job_name(found: FoundImage) -> str:
    return f"{found.name[:50]}-notebook"


def _lab_request(
    request: JobRequest, folder: Path, site: Site, *, through_node: bool
) -> JobRequest:
    """Return the request of the job that runs JupyterLab with its private folder."""
    queues = features_of(site).queues
    listen = "0.0.0.0" if queues and not through_node else "127.0.0.1"  # noqa: S104  (with a token)
    paths = (f"JUPYTER_TOKEN_FILE={folder}/token", f"JUPYTER_RUNTIME_DIR={folder}/runtime")
    own = f"{JOBS}/{folder.name}"
    return replace(
        request,
        # it is not there yet where the job is only shown
        binds=(*request.binds, own) if folder.is_dir() else request.binds,
        argv=("sh", "-c", TOLD, own, *_lab_words(), f"--ip={listen}"),
        variables=(*request.variables, *paths),
        alone=True,
    )


def _new_folder(request: JobRequest, context: Context) -> Path:
    """Return the path of a server's private folder, which is not there yet."""
    return context.settings.cwd / JOBS / f"{new_key(request.name or PURPOSE)}.notebook"


def _folder_of(record: Record, context: Context) -> Path | None:
    """Return the private folder of a notebook's job, by the words that started it."""
    argv = record.job.argv if record.job else ()
    return context.settings.cwd / argv[3] if argv[:3] == ("sh", "-c", TOLD) else None


def _is_alive(record: Record, site: Site, context: Context) -> bool:
    settings = context.settings
    if read_receipts(record, settings.cwd):
        return False
    folder = _folder_of(record, context)
    phase = status_of(record, site, context).phase
    return folder is not None and folder.is_dir() and phase in ("queued", "running")


def _remove_old(context: Context) -> None:
    """Remove the folders of servers whose job has ended."""
    for record in load_own_records(context.settings):
        folder = _folder_of(record, context) if record.purpose == PURPOSE else None
        if folder is not None and read_receipts(record, context.settings.cwd):
            shutil.rmtree(folder, ignore_errors=True)


def wait_for_server(record: Record, site: Site, context: Context) -> Notebook:
    """Wait until the server of a job listens.  Raises HostError where the job ends before."""
    clock = Clock()
    folder = _folder_of(record, context)
    if folder is None:
        raise UsageError("this job is not a notebook", where=f"job {record.id}")
    due, shown = clock.now(), ""
    while (found := _read_server(folder)) is None:
        if clock.now() >= due:
            shown = _look_after(record, site, context, shown)
            due = clock.now() + ASK
        clock.sleep(LOOK)
    node, port = found
    token = read_plain(folder / "token").decode("ascii", "replace")
    queues = features_of(site).queues
    return Notebook(
        job=plain_id(record.id),
        node=node,
        port=port,
        url=f"http://127.0.0.1:{port}/lab?token={token}",
        tunnel=_tunnel(record, node, port, context) if queues else None,
    )


def _read_server(folder: Path) -> tuple[str, int] | None:
    """Return node and port of the server that keeps its file in a folder."""
    files = sorted((folder / "runtime").glob("jpserver-*.json"))
    try:
        port = msgspec.json.decode(read_plain(files[-1]), type=_ServerFile).port if files else None
        node = read_plain(folder / "node").decode().strip()
    except UNREADABLE:
        return None  # it is being written
    return (node, port) if node and port is not None else None


def _look_after(record: Record, site: Site, context: Context, shown: str) -> str:
    """Say what the job waits for where that is new; raise HostError where it will never listen."""
    settings = context.settings
    status = status_of(record, site, context)
    number = plain_id(record.id)
    where = f"site {site.name}, job {number}"
    if read_receipts(record, settings.cwd) or (status.phase == "ended" and status.answered):
        logs = ", ".join(str(path) for path in log_files(record, settings.cwd))
        raise HostError(
            "the job ended before JupyterLab was up", where=where, hint=f"its log: {logs}"
        )
    if status.stuck:
        raise HostError(
            f"the job will never start: {status.reason}",
            where=where,
            hint=f"envbuild cancel {number}, and ask for something else",
        )
    text = f"job {number} {'waits' if status.phase == 'queued' else 'starts JupyterLab'}"
    text += f" ({status.reason})" if status.phase == "queued" and status.reason else ""
    if text != shown and status.phase in ("queued", "running"):
        context.report.say(text)
    return text


def _tunnel(record: Record, node: str, port: int, context: Context) -> str:
    """Return the line that makes the server's port one of the user's own machine."""
    user = context.settings.environment.get("USER") or "USER"
    login = f"{user}@{platform.node()}"
    if record.job is not None and "--ip=127.0.0.1" in record.job.argv:
        return shlex.join(
            ("ssh", "-N", "-J", login, "-L", f"{port}:127.0.0.1:{port}", f"{user}@{node}")
        )
    return shlex.join(("ssh", "-N", "-L", f"{port}:{node}:{port}", login))
