"""The probe's ELF reader against files made by hand, and its search against what the loader itself does."""

from __future__ import annotations

import contextlib
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.run import Command, LocalRunner
from tests.check.elf import library_probe, shared_object
from tests.support import needs

NAMES = st.text("abcdefghijklmnop.-_+0123456789", min_size=1, max_size=40)


PROBE = library_probe()


@given(
    needed=st.lists(NAMES, max_size=5),
    names=st.fixed_dictionaries({"soname": NAMES, "rpath": NAMES, "runpath": NAMES}),
    bits=st.sampled_from([32, 64]),
    order=st.sampled_from("<>"),
)
def test_whatever_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    needed: list[str],
    names: dict[str, str],
    bits: int,
    order: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "some.so"
    path.write_bytes(shared_object(needed, bits=bits, order=order, **names))  # type: ignore[arg-type]
    elf = PROBE.Elf(str(path))
    assert elf.needed == needed
    assert {"soname": elf.soname, "rpath": elf.rpath, "runpath": elf.runpath} == names


@given(st.data())
def test_damage_is_an_answer_never_an_accident(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    content = bytearray(shared_object(["libc.so.6"], soname="x"))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(PROBE.Unreadable):
        PROBE.Elf(str(path))


@needs("cc")
def test_real_objects_of_the_linker_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("double cos(double); double f(double x) { return cos(x); }\n")
    flags = (
        "-shared",
        "-fPIC",
        "-Wl,-soname,libx.so.7",
        "-Wl,--enable-new-dtags",
        "-Wl,-rpath,$ORIGIN/../lib",
    )
    LocalRunner()(
        Command(argv=("cc", *flags, "-o", "x.so", "x.c", "-lm", "-Wl,--no-as-needed"), cwd=tmp_path)
    )
    elf = PROBE.Elf(str(tmp_path / "x.so"))
    assert "libm.so.6" in elf.needed
    assert elf.soname == "libx.so.7"
    assert elf.runpath == "$ORIGIN/../lib"
    assert PROBE.Search().find("libm.so.6") is not None


def search(monkeypatch: pytest.MonkeyPatch, library_path: str = "") -> types.SimpleNamespace:
    monkeypatch.setenv("LD_LIBRARY_PATH", library_path)
    found: types.SimpleNamespace = PROBE.Search()
    found.cache, found.defaults = {}, []
    return found


def test_the_order_of_the_loader_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("rpath", "environment", "runpath"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "liba.so").write_bytes(shared_object())
    there = search(monkeypatch, str(tmp_path / "environment"))
    rpath, runpath = [str(tmp_path / "rpath")], [str(tmp_path / "runpath")]
    assert there.find("liba.so", rpath) == f"{tmp_path}/rpath/liba.so"
    assert (
        there.find("liba.so", rpath, runpath) == f"{tmp_path}/environment/liba.so"
    )  # RUNPATH switches RPATH off
    assert search(monkeypatch).find("liba.so", rpath, runpath) == f"{tmp_path}/runpath/liba.so"
    assert search(monkeypatch).find("liba.so") is None


def test_a_library_for_another_machine_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, machine in (("one", 183), ("two", 62)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "liba.so").write_bytes(shared_object(machine=machine))
    there = search(monkeypatch, f"{tmp_path}/one:{tmp_path}/two")
    if there.machine != (2, 62):
        pytest.skip("this machine is no x86_64")
    assert there.find("liba.so") == f"{tmp_path}/two/liba.so"


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("$ORIGIN/../lib:${ORIGIN}", ["/x/lib", "/x/y"]),
        ("", []),
        ("/a/./b:", ["/a/b"]),
        ("$LIB/z", ["lib64/z"]),
    ],
)
def test_words_in_run_paths_are_replaced(text: str, folders: list[str]) -> None:
    assert PROBE.expand(text, "/x/y") == folders


def test_a_damaged_cache_of_the_loader_is_no_accident(tmp_path: Path) -> None:
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(b"glibc-ld.so.cache1.1" + b"\xff" * 60)
    assert PROBE.read_cache(str(cache)) == {}
    assert PROBE.read_cache(str(tmp_path / "none")) == {}


def process(root: Path, library_path: list[str]) -> Any:
    """Return the probe's process for a folder of libraries made by hand."""
    search = PROBE.Search()
    search.cache = {}
    search.defaults = []
    search.machine = PROBE.Elf(str(next(root.rglob("*.so*")))).machine
    return PROBE.Process(search, library_path)


def library(path: Path, *needed: str, rpath: str = "", runpath: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shared_object(list(needed), soname=path.name, rpath=rpath, runpath=runpath))
    return str(path)


def test_an_opened_library_is_looked_for_by_the_path_of_the_object_that_opens_it(
    tmp_path: Path,
) -> None:
    opener = library(tmp_path / "tf/libframework.so", runpath="$ORIGIN/../runtime")
    library(tmp_path / "tf/libcc.so", runpath="$ORIGIN/../solver")
    library(tmp_path / "runtime/librt.so.12")
    library(tmp_path / "solver/libsolver.so.11")
    tried = process(tmp_path, [])
    assert tried.open("librt.so.12", opener) == (f"{tmp_path}/runtime/librt.so.12", [])
    assert tried.open("libsolver.so.11", opener) == (None, [])


@pytest.mark.parametrize(("kind", "first"), [("rpath", "wheel"), ("runpath", "path")])
def test_library_path_comes_after_rpath_and_before_runpath(
    kind: str, first: str, tmp_path: Path
) -> None:
    opener = library(tmp_path / "tf/libframework.so", **{kind: "$ORIGIN/../wheel"})
    library(tmp_path / "wheel/libcudnn.so.8")
    library(tmp_path / "path/libcudnn.so.8")
    tried = process(tmp_path, [str(tmp_path / "path")])
    assert tried.find("libcudnn.so.8", opener) == f"{tmp_path}/{first}/libcudnn.so.8"


def test_what_an_opened_library_needs_in_turn_is_told_and_undone(tmp_path: Path) -> None:
    opener = library(tmp_path / "tf/libframework.so", runpath="$ORIGIN/../solver")
    solver = library(tmp_path / "solver/libsolver.so.11", "libjit.so.12")
    tried = process(tmp_path, [])
    assert tried.open("libsolver.so.11", opener) == (solver, [["libjit.so.12", solver]])
    assert "libsolver.so.11" not in tried.loaded


def test_rpath_of_the_object_that_loads_holds_for_what_it_loads(tmp_path: Path) -> None:
    opener = library(tmp_path / "a/libone.so", rpath="$ORIGIN/../b")
    library(tmp_path / "b/libtwo.so", "libthree.so")
    library(tmp_path / "b/libthree.so")
    assert process(tmp_path, []).open("libtwo.so", opener)[1] == []


def test_a_library_that_is_loaded_already_is_found_without_a_path(tmp_path: Path) -> None:
    opener = library(tmp_path / "a/libone.so")
    first = library(tmp_path / "b/libcublas.so.12")
    tried = process(tmp_path, [])
    tried.load(first)
    assert tried.open("libcublas.so.12", opener) == (first, [])
