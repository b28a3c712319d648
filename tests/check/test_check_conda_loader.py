"""What is said of a conda tree's libraries, beside what the real loader takes: compiled by gcc."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.check.conda_tree import CondaTree
from tests.check.tree import failures
from tests.support import needs

pytestmark = needs("gcc")
SONAME = "libneeded.so.1"
OLD = "usr/local/old"
WITH_RPATH = "-Wl,--disable-new-dtags,-rpath,"
WITH_RUNPATH = "-Wl,--enable-new-dtags,-rpath,"
CASES = {
    "DT_RPATH": (f"{WITH_RPATH}$ORIGIN/../lib", False, "opt/env/lib"),
    "DT_RPATH before LD_LIBRARY_PATH": (f"{WITH_RPATH}$ORIGIN/../lib", True, "opt/env/lib"),
    "DT_RUNPATH": (f"{WITH_RUNPATH}$ORIGIN/../lib", False, "opt/env/lib"),
    "DT_RUNPATH after LD_LIBRARY_PATH": (f"{WITH_RUNPATH}$ORIGIN/../lib", True, OLD),
    "no path, and LD_LIBRARY_PATH": ("-Wl,-O1", True, OLD),
    "no path": ("-Wl,-O1", False, None),
    "DT_RPATH out of the environment": (f"{WITH_RPATH}ROOT/{OLD}:$ORIGIN/../lib", False, OLD),
    "DT_RPATH with a folder that is gone": (
        f"{WITH_RPATH}/gone:$ORIGIN/../lib",
        False,
        "opt/env/lib",
    ),
}


def compile_with(folder: Path, *words: str) -> None:
    LocalRunner()(Command(argv=("gcc", *words), cwd=folder, timeout=120))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "needed.c").write_text("int needed(void) { return 1; }\n")
    (folder / "user.c").write_text("int needed(void);\nint main(void) { return needed(); }\n")
    compile_with(folder, "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", "-o", SONAME, "needed.c")
    return folder


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_the_loader_does(case: str, library: Path, tmp_path: Path) -> None:
    flag, is_set, taken = CASES[case]
    flag = flag.replace("ROOT", str(tmp_path))
    compile_with(library, "-o", "user", "user.c", SONAME, flag)
    tree, needed = CondaTree(tmp_path), (library / SONAME).read_bytes()
    tree.add("needed", "1.0", "h1_0", {f"lib/{SONAME}": needed} if case != "no path" else {})
    tree.add("user", "1.0", "h1_0", {"bin/user": (library / "user").read_bytes()})
    (tree.prefix / "bin/user").chmod(0o755)
    (tmp_path / OLD).mkdir(parents=True)
    (tmp_path / OLD / SONAME).write_bytes(needed)
    env = {"LD_LIBRARY_PATH": str(tmp_path / OLD)} if is_set else {}
    tree.tree.env |= env

    traced = Command(
        argv=(str(tree.prefix / "bin/user"),), env={**env, "LD_TRACE_LOADED_OBJECTS": "1"}
    )
    lines = LocalRunner()(traced, check=False).stdout.splitlines()
    of_loader = next(line for line in lines if SONAME in line).split("=>")[1].split("(")[0]
    expected = f"{tmp_path}/{taken}/{SONAME}" if taken else "not found"
    assert str(Path(of_loader.strip()).resolve() if taken else of_loader.strip()) == expected

    found = failures(tree.check()).get("conda-libraries", "")
    if taken == OLD:
        assert found.startswith(f"{SONAME} of {tmp_path / OLD} is loaded in the place of conda's")
    elif taken is None:
        assert f"bin/user needs {SONAME}, which is nowhere" in found
    else:
        assert found == ""
