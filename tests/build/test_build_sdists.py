"""Source packages that only others need to be built: in which order, and which cannot be."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from envbuild.build.in_base.container import BaseContainer
from envbuild.build.in_base.exchange import Exchange
from envbuild.build.in_base.sdists import BuildNeeds, build_wheels, wheel_key
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.model import PythonPackage
from envbuild.progress import Silent, SilentStage
from envbuild.resolve.sources.artifacts import FORM, About
from envbuild.run import Command, LocalRunner, Result
from envbuild.settings import load_settings
from envbuild.store.layout import Store


class Pretended(BaseContainer):
    """A container that "builds" by writing empty wheels, and remembers what was there for it."""

    def run(
        self,
        script: str,
        *arguments: str,
        between: Exchange,
        env: Mapping[str, str],
        more: Sequence[tuple[Path, str]] = (),
        on_line: Callable[[str], None] | None = None,
    ) -> Result:
        job = json.loads((between.given / "build.json").read_text())
        name = job["name"].removesuffix(".tar.gz")
        (tools,) = (folder for folder, inside in more if inside == "tools")
        SEEN.append((name, sorted(path.name for path in (tools / "lib").glob("*.py"))))
        out = between.out / job["out"].removeprefix("/mnt/")
        out.mkdir()
        write_wheel(out / f"{name}-py3-none-any.whl", name)
        return LocalRunner()(Command(argv=("true",)))


SEEN: list[tuple[str, list[str]]] = []
REQUIRES = {
    "wanted": 'Requires-Dist: Py_Yaml>=5\nRequires-Dist: six\nRequires-Dist: b ; extra == "c"\n'
}


def write_wheel(path: Path, name: str) -> None:
    info, module = f"{name}.dist-info", name.split("-", maxsplit=1)[0]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}.py", "")
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n{REQUIRES.get(module, '')}",
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(
            f"{info}/RECORD", f"{module}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )


def sdist(
    store: Store, name: str, requires: Sequence[str], group: Literal["project", "build"] = "build"
) -> PythonPackage:
    out = io.BytesIO()
    text = f"[build-system]\nrequires = {list(requires)!r}\nbuild-backend = 'x'\n".encode()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        entry = tarfile.TarInfo(f"{name}-1.0/pyproject.toml")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    data = out.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    path = store.artifact(sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return PythonPackage(
        name=name,
        version="1.0",
        group=group,
        file=f"{name}-1.0.tar.gz",
        size=len(data),
        sha256=sha256,
    )


def build(tmp_path: Path, wants: Mapping[str, Sequence[str]]) -> list[tuple[str, list[str]]]:
    store = Store(tmp_path / "store")
    tools = tuple(sdist(store, name, requires) for name, requires in wants.items())
    package = sdist(store, "wanted", ["late"], group="project")
    folder = tmp_path / "mnt"
    folder.mkdir()
    settings = load_settings({"HOME": str(tmp_path)}, tmp_path)
    context = Context(settings=settings, runner=LocalRunner(), store=store, report=Silent())
    inside = Pretended(image=tmp_path, folder=folder, python="/x", context=context)
    SEEN.clear()
    needs = BuildNeeds(root="r", packages=tools, epoch=0)
    about = About(size=package.size, requires=("six",), read_from="packed")
    (store.folder("metadata") / f"{package.sha256}-{FORM}.json").write_bytes(
        msgspec.json.encode(about)
    )
    (store.folder("answers") / "old.json").write_text("{}")
    assert build_wheels([package], needs, inside, store, SilentStage()) == {"wanted": ("py-yaml",)}
    assert not (store.folder("answers") / "old.json").exists()
    assert store.built(wheel_key(package, needs)).is_file()
    return list(SEEN)


def test_each_is_built_after_what_it_asks_for(tmp_path: Path) -> None:
    seen = build(tmp_path, {"late": ["Early >= 1", "elsewhere"], "early": [], "middle": ["early"]})
    assert seen[0] == ("early-1.0", [])
    assert dict(seen)["late-1.0"][0] == "early.py"
    assert seen[-1] == ("wanted-1.0", ["early.py", "late.py", "middle.py"])


def test_those_that_need_each_other_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"need each other to be built: (early, late|late, early)"):
        build(tmp_path, {"late": ["early"], "early": ["late"]})


@pytest.mark.parametrize("filtered", [True, False])
def test_archives_unpack_alike_without_tarfiles_filter(
    tmp_path: Path, filtered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.2 of Debian 12, which a base may have, knows no filter."""
    archive = tmp_path / "pkg-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        member = tarfile.TarInfo("pkg-1.0/setup.py")
        member.size, member.mode = 4, 0o644
        made.addfile(member, io.BytesIO(b"text"))
    asked: list[object] = []
    whole = tarfile.TarFile.extractall

    def extract_all(self: tarfile.TarFile, path: str, **options: object) -> None:
        asked.append(options.get("filter"))
        whole(self, path)

    monkeypatch.setattr(tarfile.TarFile, "extractall", extract_all)
    monkeypatch.setattr(tarfile, "data_filter", lambda member, _: member, raising=False)
    if not filtered:
        monkeypatch.delattr(tarfile, "data_filter")
    script = resources.files("envbuild.build.in_base.scripts").joinpath("build_wheel.py")
    functions: dict[str, Any] = {}
    exec(script.read_text("utf-8").rpartition("\nmain()")[0], functions)  # noqa: S102
    source = functions["unpack"](str(archive), str(tmp_path / "out"))
    assert (Path(source) / "setup.py").read_bytes() == b"text"
    assert asked == ["data" if filtered else None]
