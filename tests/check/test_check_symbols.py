"""Symbols that an extension takes from a library of another package: compiled by gcc, beside what the loader does."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.check.elf import library_probe
from tests.check.tree import Tree, failures
from tests.support import needs

pytestmark = needs("gcc")
PROBE = library_probe()
ENGINE = "int f(void) { return 1; }\n"
BOTH = f"{ENGINE}int g(void) {{ return 2; }}\n"
PART = "int f(void); int g(void); void PyErr_Clear(void); int h(void) __attribute__((weak));\n"

USES = f"{PART}int use(void) {{ PyErr_Clear(); return f() + g() + (h ? h() : 0); }}\n"


def compile_shared(folder: Path, target: str, source: str, *words: str) -> bytes:
    (folder / "source.c").write_text(source)
    argv = ("gcc", "-shared", "-fPIC", "-o", target, "source.c", *words)
    LocalRunner()(Command(argv=argv, cwd=folder, timeout=120))
    return (folder / target).read_bytes()


def make_tree(root: Path, style: str, engine: str, more: str = "") -> Tree:
    """Install a part that was linked with f() and g(), beside an engine of this source."""
    root.mkdir()
    hashes = f"-Wl,--hash-style={style}"
    compile_shared(root, "libengine.so", BOTH, hashes, "-Wl,-soname,libengine.so")
    part = compile_shared(root, "part.so", USES, hashes, "./libengine.so")
    tree = Tree(root / "tree")
    held = compile_shared(root, "libengine.so", engine, hashes, "-Wl,-soname,libengine.so")
    files: dict[str, bytes | str] = {"engine/__init__.py": "", "engine/lib/libengine.so": held}
    if more:
        files["engine/lib/libmore.so"] = compile_shared(root, "libmore.so", more, hashes)
    tree.install("engine", "2.0", files)
    return tree.install("part", "1.0", {"part/__init__.py": "", "part/_part.so": part})


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_a_symbol_that_the_other_package_lost_is_told(style: str, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "sick", style, ENGINE)
    report = tree.check()
    found = failures(report)["shared-libraries"]
    assert found.startswith("part/_part.so takes the symbol g from engine, ")
    hints = [one.hint for one in report.findings if one.check == "shared-libraries"]
    assert "take a release of part 1.0 that was built for this engine 2.0" in str(hints[0])


@pytest.mark.parametrize("style", ["gnu", "sysv"])
@pytest.mark.parametrize(("engine", "more"), [(BOTH, ""), (ENGINE, "int g(void) { return 3; }\n")])
def test_symbols_that_are_somewhere_in_that_package_are_no_fault(
    style: str, engine: str, more: str, tmp_path: Path
) -> None:
    tree = make_tree(tmp_path / "fine", style, engine, more)
    assert "shared-libraries" not in failures(tree.check())


def test_what_python_itself_has_loaded_is_there_for_all(tmp_path: Path) -> None:
    uses = "double exp(double); int f(void); double use(double x) { return exp(x) + f(); }\n"
    tree = make_tree(tmp_path / "math", "gnu", ENGINE)
    part = compile_shared(tmp_path / "math", "part.so", uses, "./libengine.so")
    (tree.site / "part/_part.so").write_bytes(part)
    assert "libm.so.6" not in PROBE.Elf(str(tree.site / "part/_part.so")).needed
    assert "shared-libraries" not in failures(tree.check())


def test_of_objects_for_several_releases_one_is_enough(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "several", "gnu", ENGINE)
    uses = "int f(void); int use(void) { return f(); }\n"
    sick = (tree.site / "part/_part.so").read_bytes()
    fine = compile_shared(tmp_path / "several", "fine.so", uses, "./libengine.so")
    parts = {
        "part/libpart_for_1.2.so": sick,
        "part/libpart_for_2.0.so": fine,
        "part/_part.so": fine,
    }
    for path, content in parts.items():
        tree.write(path, content)
    assert "shared-libraries" not in failures(tree.check())
    tree.write("part/libpart_for_2.0.so", sick)
    assert "part/libpart_for_1.2.so takes" in failures(tree.check())["shared-libraries"]


def test_an_older_library_in_the_library_path_is_named(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "path", "gnu", BOTH)
    (tmp_path / "old").mkdir()
    words = ("-Wl,-soname,libengine.so",)
    compile_shared(tmp_path / "old", "libengine.so", ENGINE, *words)
    tree.env["LD_LIBRARY_PATH"] = str(tmp_path / "old")
    report = tree.check()
    assert f"takes the symbol g from {tmp_path}/old" in failures(report)["shared-libraries"]
    hints = [one.hint or "" for one in report.findings if one.check == "shared-libraries"]
    assert hints[0].startswith(f"take {tmp_path}/old out of LD_LIBRARY_PATH")


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_a_damaged_table_of_symbols_is_no_accident(style: str, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "damaged", style, BOTH)
    places = [tree.site / "part/_part.so", tree.site / "engine/lib/libengine.so"]
    for path in places:
        whole = path.read_bytes()
        for start in range(512, min(len(whole), 2048), 8):
            path.write_bytes(whole[:start] + b"\0\0\0\0\xff\xff\xff\xff" + whole[start + 8 :])
            search, objects = PROBE.Search(), list(map(str, places))
            PROBE.lost_symbols(search, objects, PROBE.survey_objects(search, objects)[-1])
        path.write_bytes(whole)
