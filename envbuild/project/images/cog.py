"""Read cog.yaml, from which Cog builds an image.

Its form: https://github.com/replicate/cog/blob/main/docs/yaml.md
"""

from __future__ import annotations

from pathlib import Path

from envbuild.names import Texts
from envbuild.project.lists.declared import split_requirements
from envbuild.project.lists.requirements import read_requirements
from envbuild.project.model import FileFindings
from envbuild.project.shell.installs import read_lines
from envbuild.project.tree import read_text, shown_path
from envbuild.yaml import parse_yaml


def read_cog(path: Path, root: Path) -> FileFindings | None:
    """Read the section "build", None where there is none.  Raises UsageError for bad YAML."""
    file = shown_path(path, root)
    data = parse_yaml(read_text(path) or "", file)
    build = data.get("build") if isinstance(data, dict) else None
    if not isinstance(build, dict):
        return None
    requirements, aside = split_requirements(_plain_texts(build.get("python_packages")), file)
    listed = build.get("python_requirements")
    notes: Texts = ()
    if isinstance(listed, str):
        other = read_requirements(root / listed, root)
        requirements, aside = (*requirements, *other.requirements), (*aside, *other.aside)
        notes = other.notes
    ran = read_lines(_plain_texts(build.get("run")), file)
    python, cuda = build.get("python_version"), build.get("cuda")
    return FileFindings(
        file=file,
        requirements=(*requirements, *ran.requirements),
        aside=(*aside, *ran.aside),
        system=tuple(dict.fromkeys([*_plain_texts(build.get("system_packages")), *ran.system])),
        post=tuple(ran.post),
        refused=tuple(ran.refused),
        python=f"=={python}.*" if isinstance(python, str) else None,
        cuda=str(cuda) if cuda else None,
        notes=(*notes, *ran.notes),
    )


def _plain_texts(value: object) -> list[str]:
    """Return the plain texts of a list; a step of "run" may also be a table with its command."""
    items = value if isinstance(value, list) else []
    plain = [item.get("command") if isinstance(item, dict) else item for item in items]
    return [item for item in plain if isinstance(item, str)]
