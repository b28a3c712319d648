"""Bundles are hostile until checked: every fault is named, and nothing gets a name before its bytes are right."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envbuild.bundle.model import TABLE
from envbuild.bundle.own import own_wheels
from envbuild.bundle.unpack import opened_bundle, unpack
from envbuild.cli import run_cli
from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError, IntegrityError, NetworkError, UsageError
from envbuild.limits import PROJECT
from envbuild.net.fetch import Artifact, fetch_artifacts
from envbuild.progress import Silent
from envbuild.run import Command, LocalRunner
from envbuild.settings import load_settings
from envbuild.store.layout import Store
from tests.support import ScriptedRunner, context_for, needs

WHEEL = b"a wheel"
RECIPE = b'[recipe]\nname = "small"\n'


def member(path: str, data: bytes, use: str) -> dict[str, Any]:
    return {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "use": use}


def table(*members: dict[str, Any], **changes: Any) -> bytes:
    told = {
        "schema": 1,
        "name": "small",
        "lock": "sha256:" + "0" * 64,
        "envbuild": "0.1.0",
        "python": "3.11",
    }
    return msgspec.json.encode({**told, "members": list(members), **changes})


MEMBERS = (
    member("files/envbuild/python/a.whl", WHEEL, "store"),
    member("recipes/small.toml", RECIPE, "project"),
)


def bundle(path: Path, *files: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def sound(path: Path) -> Path:
    return bundle(
        path,
        (f"small/{TABLE}", table(*MEMBERS)),
        ("small/files/envbuild/python/a.whl", WHEEL),
        ("small/recipes/small.toml", RECIPE),
    )


def files_below(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_a_sound_one_is_taken(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    found = unpack(sound(tmp_path / "b.tar"), store, tmp_path / "project")
    assert found.name == "small"
    assert store.artifact(MEMBERS[0]["sha256"]).read_bytes() == WHEEL
    assert files_below(tmp_path / "project") == ["recipes/small.toml"]


FAULTS: dict[str, tuple[tuple[tuple[str, bytes], ...], str]] = {
    "changed": (
        (
            (f"small/{TABLE}", table(*MEMBERS)),
            ("small/files/envbuild/python/a.whl", b"A wheel"),
            ("small/recipes/small.toml", RECIPE),
        ),
        "was changed",
    ),
    "longer": (
        ((f"small/{TABLE}", table(*MEMBERS)), ("small/files/envbuild/python/a.whl", WHEEL + b"!")),
        "is not what its table of contents says",
    ),
    "missing": (
        ((f"small/{TABLE}", table(*MEMBERS)), ("small/files/envbuild/python/a.whl", WHEEL)),
        "ends before small/recipes/small.toml",
    ),
    "not listed": (
        (
            (f"small/{TABLE}", table(MEMBERS[0])),
            ("small/files/envbuild/python/a.whl", WHEEL),
            ("small/more", b""),
        ),
        "'small/more' is in it, but not in its table",
    ),
    "twice in the tar": (
        (
            (f"small/{TABLE}", table(MEMBERS[0])),
            ("small/files/envbuild/python/a.whl", WHEEL),
            ("small/files/envbuild/python/a.whl", WHEEL),
        ),
        "but not in its table",
    ),
    "twice in the table": (
        ((f"small/{TABLE}", table(MEMBERS[0], MEMBERS[0])),),
        "contradicts itself",
    ),
    "another name": (((f"other/{TABLE}", table(*MEMBERS)),), "contradicts itself"),
    "no table": (
        (("small/recipes/small.toml", RECIPE),),
        "is not a bundle: its first member is not bundle.json",
    ),
    "garbage": (((f"small/{TABLE}", b"\xff{"),), "its table of contents is damaged"),
    "newer": (((f"small/{TABLE}", table(schema=2)),), "is a bundle of a newer envbuild"),
    "unknown key": (((f"small/{TABLE}", table(more=1)),), "unknown field `more`"),
    "empty": ((), "is not a bundle"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_what_is_wrong_is_named_and_nothing_wrong_is_kept(fault: str, tmp_path: Path) -> None:
    files, said = FAULTS[fault]
    store = Store(tmp_path / "store")
    with pytest.raises(EnvbuildError, match=said):
        unpack(bundle(tmp_path / "b.tar", *files), store, tmp_path / "project")
    kept = [
        path.read_bytes() for path in (store.root / "v1/artifacts").rglob("*") if path.is_file()
    ]
    assert set(kept) <= {WHEEL}
    assert files_below(tmp_path / "project") == []


@pytest.mark.parametrize(
    "path", ["../evil", "/evil", "a/../../evil", "a//b", "./a", "-x", "a\nb", "a/..", ""]
)
def test_a_path_that_leads_elsewhere_is_refused(path: str, tmp_path: Path) -> None:
    text = table(member(path, RECIPE, "project"))
    made = bundle(tmp_path / "b.tar", (f"small/{TABLE}", text), (f"small/{path}", RECIPE))
    with pytest.raises(IntegrityError, match="table of contents is damaged"):
        unpack(made, Store(tmp_path / "store"), tmp_path / "project")
    assert not (tmp_path / "evil").exists()


def test_a_link_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    with tarfile.open(path, "w") as tar:
        data = table(member("recipes/small.toml", b"", "project"))
        info = tarfile.TarInfo(f"small/{TABLE}")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("small/recipes/small.toml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(IntegrityError, match="is not what its table"):
        unpack(path, Store(tmp_path / "store"), tmp_path / "project")
    assert files_below(tmp_path / "project") == []


@needs("tar")
@pytest.mark.parametrize("form", ["gnu", "posix/0.0", "posix/0.1", "posix/1.0"])
def test_a_member_with_holes(form: str, tmp_path: Path) -> None:
    """Its bytes would be those of the table: what was sent is not what is read."""
    content = bytes(1 << 20) + RECIPE
    folder = tmp_path / "small"
    (folder / "recipes").mkdir(parents=True)
    (folder / TABLE).write_bytes(table(member("recipes/small.toml", content, "project")))
    with (folder / "recipes/small.toml").open("wb") as file:
        file.seek(1 << 20)
        file.write(RECIPE)
    kind, _, version = form.partition("/")
    holes = ("--sparse", *([f"--sparse-version={version}"] * bool(version)))
    names = (f"small/{TABLE}", "small/recipes/small.toml")
    pack = ("tar", f"--format={kind}", *holes, "-cf", "b.tar", *names)
    LocalRunner()(Command(argv=pack, cwd=tmp_path))
    if (tmp_path / "b.tar").stat().st_size > len(content):
        pytest.skip("this file system keeps no holes")
    with pytest.raises(IntegrityError, match="a member with holes"):
        unpack(tmp_path / "b.tar", Store(tmp_path / "store"), tmp_path / "project")


def test_a_recipe_larger_than_any(tmp_path: Path) -> None:
    """Told by the table alone, before anything of it is read."""
    told = {**member("recipes/small.toml", RECIPE, "project"), "size": PROJECT + 1}
    path = bundle(tmp_path / "b.tar", (f"small/{TABLE}", table(told)))
    with pytest.raises(IntegrityError, match="too much for a bundle"):
        unpack(path, Store(tmp_path / "store"), tmp_path / "project")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6])
def test_one_that_was_not_copied_whole(share: float, tmp_path: Path) -> None:
    path = sound(tmp_path / "b.tar")
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(EnvbuildError, match=r"is not a bundle|ends|not copied whole"):
        unpack(path, Store(tmp_path / "store"), tmp_path / "project")


@pytest.mark.parametrize("content", [b"", b"no tar at all", b"\x1f\x8b" + b"0" * 600])
def test_what_is_no_tar(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a bundle"), opened_bundle(path):
        pass


def test_nobody_waits_for_a_pipe_in_its_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "b.tar")
    with pytest.raises(UsageError, match="is no plain file"), opened_bundle(tmp_path / "b.tar"):
        pass


def test_the_verb_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    assert run_cli(["make", "--from-bundle", "none.tar"]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert run_cli(["make", "small", "--from-bundle", "none.tar"]) == 2
    assert "a bundle holds one recipe" in capsys.readouterr().err
    bundle(tmp_path / "b.tar", *FAULTS["changed"][0])
    assert run_cli(["make", "--from-bundle", "b.tar"]) == 6
    assert "files/envbuild/python/a.whl: was changed" in capsys.readouterr().err


def test_a_build_of_a_named_index_needs_no_index_once_it_is_unpacked(
    tmp_path: Path,
) -> None:
    """A machine without a network has no [indexes] pytorch either: torch 2.4.1+cu118 comes out of the bundle."""
    file = "torch-2.4.1+cu118-cp311-cp311-linux_x86_64.whl"
    path = f"files/envbuild/python/{file}"
    torch = member(path, WHEEL, "store")
    wanted = Artifact(
        file=file,
        size=len(WHEEL),
        sha256=torch["sha256"],
        kind="python",
        project="torch",
        index="pytorch",
    )
    store = Store(tmp_path / "store")
    alone = dataclasses.replace(load_settings(), indexes={})
    context = Context(settings=alone, runner=ScriptedRunner({}), store=store, report=Silent())
    with pytest.raises(UsageError, match="pytorch"):
        fetch_artifacts((wanted,), context)
    made = bundle(
        tmp_path / "b.tar", (f"small/{TABLE}", table(torch, MEMBERS[1])), (f"small/{path}", WHEEL),
        ("small/recipes/small.toml", RECIPE),
    )  # fmt: skip
    unpack(made, store, tmp_path / "project")
    fetch_artifacts((wanted,), context)
    assert store.artifact(wanted.sha256).read_bytes() == WHEEL


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("error: request failed\n  cause: dns error\n  cause: no such host\n", NetworkError),
        ("error: something else\n", HostError),
    ],
    ids=["a dead network", "another failure"],
)
def test_envbuilds_own_wheels_that_cannot_be_resolved(
    said: str, kind: type[EnvbuildError], tmp_path: Path
) -> None:
    own = {"HOME": str(tmp_path), "ENVBUILD_INDEX": "https://mirror.invalid/simple"}
    settings = load_settings(own, tmp_path)
    with pytest.raises(kind, match="what envbuild needs could not be resolved") as caught:
        own_wheels(tmp_path, context_for(settings, ScriptedRunner({"compile": (2, "", said)})))
    assert caught.value.hint == "envbuild bundle --no-tool leaves envbuild itself out"
