from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.resolve.sources.project_name import name_and_version

DYNAMIC = '[project]\nname = "tool"\ndynamic = ["version"]\n'


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": '[project]\nname = "tool"\nversion = "1.2"\n'}, ("tool", "1.2")),
        ({"pyproject.toml": '[tool.poetry]\nname = "tool"\nversion = "1.2"\n'}, ("tool", "1.2")),
        (
            {
                "pyproject.toml": f'{DYNAMIC}[tool.setuptools.dynamic]\nversion = {{attr = "tool.__version__"}}\n',
                "src/tool/__init__.py": "import torch\n__version__ = '1.2'\n",
            },
            ("tool", "1.2"),
        ),
        (
            {
                "pyproject.toml": f'{DYNAMIC}[tool.setuptools.dynamic]\nversion = {{file = ["VERSION"]}}\n',
                "VERSION": "1.2\n",
            },
            ("tool", "1.2"),
        ),
        (
            {
                "pyproject.toml": f'{DYNAMIC}[tool.hatch.version]\npath = "tool/about.py"\n',
                "tool/about.py": '__version__ = "1.2"\n',
            },
            ("tool", "1.2"),
        ),
        (
            {
                "pyproject.toml": f'{DYNAMIC}[build-system]\nbuild-backend = "flit_core.buildapi"\nrequires = []\n',
                "tool.py": '"""A tool."""\n__version__: str = "1.2"\n',
            },
            ("tool", "1.2"),
        ),
        ({"setup.cfg": "[metadata]\nname = tool\nversion = attr: tool.V\n", "tool.py": "V = '1.2'\n"}, ("tool", "1.2")),
        ({"setup.cfg": "[metadata]\nname = tool\nversion = file: V\n", "V": "1.2\n"}, ("tool", "1.2")),
        ({"setup.py": "from setuptools import setup\nsetup(name='tool', version='1.2')\n"}, ("tool", "1.2")),
        (
            {
                "setup.py": "from setuptools import setup\nv = open('V').read().strip()\nsetup(name='tool', version=v)\n",
                "V": "1.2\n",
            },
            ("tool", "1.2"),
        ),
        ({"pyproject.toml": f"{DYNAMIC}[tool.setuptools_scm]\n"}, ("tool", "")),
        ({"setup.py": "import versioneer\nfrom setuptools import setup\nsetup(name='tool', version=versioneer.get())\n"}, ("tool", "")),
        ({"pyproject.toml": f'{DYNAMIC}[tool.setuptools.dynamic]\nversion = {{file = "../V"}}\n'}, ("tool", "")),
        ({"pyproject.toml": f'{DYNAMIC}[tool.setuptools.dynamic]\nversion = {{attr = "tool.v"}}\n', "tool.py": "v = f()\n"}, ("tool", "")),
        ({"README.md": "no project"}, None),
    ],
    ids=[
        "project", "poetry", "attribute", "file", "hatch", "flit", "attribute of setup.cfg", "file of setup.cfg", "setup.py",
        "file of setup.py", "setuptools-scm", "versioneer", "file outside", "computed attribute", "none",
    ],
)  # fmt: skip
def test_name_and_version_are_read(
    files: dict[str, str], expected: tuple[str, str] | None, tmp_path: Path
) -> None:
    (tmp_path / "V").write_text("9.9\n")
    folder = tmp_path / "project"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert name_and_version(folder) == expected


def test_a_link_out_of_the_project_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1.2\n")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "VERSION").symlink_to(tmp_path / "secret")
    (folder / "pyproject.toml").write_text(
        f'{DYNAMIC}[tool.setuptools.dynamic]\nversion = {{file = "VERSION"}}\n'
    )
    assert name_and_version(folder) == ("tool", "")
