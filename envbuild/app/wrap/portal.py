"""``envbuild export`` of an image: for JupyterHub, Open OnDemand and VS Code."""

from __future__ import annotations

import platform
import re
from itertools import chain
from pathlib import Path

from envbuild.app.image import find_image, warn_of_old_image
from envbuild.app.job.prepare import JobRequest, plan_job
from envbuild.app.wrap.wrapper import (
    WrapperOptions,
    choose_packages,
    lay_packages,
    plan_wrapper,
    replaced_folder,
    write_wrapper,
)
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.schedulers import scheduler_of
from envbuild.names import Texts
from envbuild.records import frozen_record, replace
from envbuild.store.atomic import write_text
from envbuild.wrap.portal import START, hub_lines, ondemand_files, render_start_server, vscode_lines
from envbuild.wrap.script import Wrapper

NEEDED = {"jupyterhub": ("jupyterlab", "jupyterhub"), "ondemand": ("jupyterlab",), "vscode": ()}
"""Packages that an image must have for each."""
PASSED = {"jupyterhub": ("JUPYTERHUB_*", "JPY_*"), "ondemand": ("JUPYTER_*",), "vscode": ()}
KEPT = ".vscode-server"
"""Below HOME: where VS Code installs itself."""
OWN_WORDS = re.compile(
    r"--(job-name|output|open-mode|time|signal)\b.*|-(N|S|cwd|j|o|R|notify)\b.*"
    r"|-l (h_rt|walltime)=.*"
)
"""Options of a job that the portal sets by itself."""


@frozen_record
class PortalRequest:
    """What the command line says; ``folder`` None is one of the user's own, ``site`` a cluster."""

    form: str
    image: str | None
    folder: Path | None = None
    site: str | None = None


def export_portal(request: PortalRequest, context: Context) -> str:
    """Write the files and return what to put where.  Raises UsageError for odd folders."""
    found = find_image(request.image, context)
    warn_of_old_image(found, context)
    options = WrapperOptions(site=request.site, variables=PASSED[request.form])
    packages: Texts = ()
    for package in NEEDED[request.form]:
        packages = choose_packages(found, package, packages, context)
    wrapper = plan_wrapper(lay_packages(found, packages, context), "export", options, context)
    folder = _folder_of(request, wrapper.name, context)
    files, text = _render(request, wrapper.name, folder, context)
    with replaced_folder(folder, context) as new:
        write_wrapper(_keep_server(wrapper, request.form), new, folder)
        for name, content in files.items():
            write_text(new / name, content, mode=0o755 if name == START else 0o644)
    return text


def _keep_server(wrapper: Wrapper, form: str) -> Wrapper:
    if form != "vscode":
        return wrapper
    return replace(wrapper, kept=(*(wrapper.kept or ()), KEPT))


def _folder_of(request: PortalRequest, name: str, context: Context) -> Path:
    """Return the folder to write, which stands in lines of shells and configuration as it is."""
    settings = context.settings
    if request.folder is not None:
        folder = (settings.cwd / request.folder).resolve()
    else:
        folder = settings.data_home / "envbuild" / request.form / name
    if not re.fullmatch(r"/[A-Za-z0-9._/+@=-]+", str(folder)):
        raise UsageError(
            "a folder of such a name cannot be in the settings of others",
            where=folder,
            hint="name another one: -o FOLDER",
        )
    if folder.exists() and not (folder / "in-image").is_file():
        raise UsageError("this already exists, and envbuild did not make it", where=folder)
    return folder


def _render(
    request: PortalRequest, name: str, folder: Path, context: Context
) -> tuple[dict[str, str], str]:
    """Return the files by name, and the text to print."""
    place = str(folder)
    if request.form == "jupyterhub":
        return {START: render_start_server(place)}, hub_lines(place)
    if request.form == "vscode":
        user = context.settings.environment.get("USER") or "USER"
        return {}, vscode_lines(name, place, platform.node(), user)
    if request.site is None:
        raise UsageError(
            "for which cluster?", where="--format ondemand", hint="--for SITE (envbuild site list)"
        )
    job, site, _ = plan_job(
        JobRequest(image=request.image, argv=("jupyter-lab",), site=request.site, alone=True),
        context,
    )
    options = [" ".join(words) for words in scheduler_of(site).options(job, site)]
    kept = [option for option in options if not OWN_WORDS.fullmatch(option)]
    native = tuple(chain.from_iterable(option.split(" ", 1) for option in kept))
    hours = max(1, (job.intent.walltime or 3600) // 3600)
    files = ondemand_files(name, site.name, place, native, hours)
    return files, f"{place}\n"
