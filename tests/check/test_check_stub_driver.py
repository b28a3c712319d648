"""The driver that is played where there is none: its functions, and the programs that are tried under it."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envbuild.check import plan
from envbuild.check.answers import Imports
from envbuild.check.expected import Expected
from envbuild.check.probe_runner import ProbeRunner
from envbuild.check.probes.shared.stub_driver import CUDA, LIBRARIES, shared_object
from envbuild.data.tables import EntryPoint, EntryPointTable
from envbuild.run import LocalRunner
from tests.check.tree import Tree
from tests.support import needs

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the tests' own calls are for x86-64"
)
CALLS_IN_C = """
#include <dlfcn.h>
#include <stdio.h>
#define CALL(name, ...) (((int (*)())dlsym(cuda, name))(__VA_ARGS__))
int main(int count, char **words) {
  void *cuda = dlopen(words[1], RTLD_NOW);
  if (!cuda) { puts(dlerror()); return 1; }
  int number = 7, flag = 7, major = 7, minor = 7, other = 7;
  size_t room = 7, whole = 7;
  char text[128], *told = 0;
  printf("%d %d\\n", CALL("cuInit", 0), (CALL("cuDriverGetVersion", &number), number));
  printf("%d %d\\n", (CALL("cuDeviceGetCount", &number), number), (CALL("cuDeviceGet", &other, 3), other));
  CALL("cuDeviceGetAttribute", &major, 75, 0);
  CALL("cuDeviceGetAttribute", &minor, 76, 0);
  CALL("cuDeviceGetAttribute", &other, 16, 0);
  printf("[%d, %d, %d]\\n", major, minor, other);
  CALL("cuMemGetInfo_v2", &room, &whole);
  puts(room == whole && room == (size_t)40 << 30 ? "True" : "False");
  CALL("cuDeviceGetName", text, 64, 0), puts(text);
  CALL("cuDeviceGetPCIBusId", text, 64, 0), puts(text);
  CALL("cuGetErrorString", 3, &told), puts(told);
  CALL("cuDevicePrimaryCtxGetState", 0, &flag, &number);
  printf("%d %d\\n", flag, number);
}
"""
ANSWERS = [
    "0 12030",
    "1 3",
    "[8, 0, 1]",
    "True",
    "A100 that is none",
    "0000:07:00.0",
    "this is no driver",
    "0 0",
]
CALLS = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
number, long, text = ctypes.c_int(7), ctypes.c_size_t(7), ctypes.create_string_buffer(64)
other, address, flag = ctypes.c_size_t(7), ctypes.c_char_p(), ctypes.c_uint(7)
def told(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
    return number.value
print(told("cuInit", 0), told("cuDriverGetVersion", ctypes.byref(number)))
print(told("cuDeviceGetCount", ctypes.byref(number)), told("cuDeviceGet", ctypes.byref(number), 3))
print([told("cuDeviceGetAttribute", ctypes.byref(number), one, 0) for one in (75, 76, 16)])
told("cuMemGetInfo_v2", ctypes.byref(long), ctypes.byref(other))
print(long.value == other.value == 40 << 30)
told("cuDeviceGetName", text, 64, 0)
print(text.value.decode())
told("cuDeviceGetPCIBusId", text, 64, 0)
print(text.value.decode())
told("cuGetErrorString", 3, ctypes.byref(address))
print(address.value.decode())
told("cuDevicePrimaryCtxGetState", 0, ctypes.byref(flag), ctypes.byref(number))
print(flag.value, number.value)
"""
OPENS = "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\nctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2()\n"


def test_its_functions_answer(tmp_path: Path) -> None:
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(shared_object("libcuda.so.1", CUDA))
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(path)], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.splitlines() == ["7 12030", *ANSWERS[1:]]


@needs("qemu-aarch64", "aarch64-linux-gnu-gcc")
def test_its_functions_answer_on_arm(tmp_path: Path) -> None:
    library, source, program = tmp_path / "libcuda.so.1", tmp_path / "calls.c", tmp_path / "calls"
    library.write_bytes(shared_object("libcuda.so.1", CUDA, "aarch64"))
    source.write_text(CALLS_IN_C)
    compiler = ("aarch64-linux-gnu-gcc", "-w", "-o", str(program), str(source), "-ldl")
    subprocess.run(compiler, check=True)
    done = subprocess.run(
        ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(program), str(library)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ANSWERS)


def test_every_function_is_found_by_name(tmp_path: Path) -> None:
    for soname, functions in LIBRARIES.items():
        path = tmp_path / f"other-{soname}"
        path.write_bytes(shared_object(f"envbuild-{soname}", functions))
        library = ctypes.CDLL(str(path))
        assert all(hasattr(library, name) for name in functions)
        assert not hasattr(library, "cuNoSuchFunction")


def entry(name: str, **more: Any) -> EntryPoint:
    return EntryPoint(
        name=name, dists=("wheel-of-gpu",), module="gpu", code=OPENS, cure="none", source="", **more
    )


@pytest.mark.parametrize(
    ("level", "gpu", "expected"),
    [
        ("quick", False, {"plain": False}),
        ("full", False, {"plain": False, "deep": False, "driven": True}),
        ("full", True, {"plain": False, "deep": False}),
    ],
)
def test_programs_get_it_above_quick_and_where_there_is_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    gpu: bool,
    expected: dict[str, bool],
) -> None:
    table = EntryPointTable(
        entry=(entry("plain"), entry("deep", full=True), entry("driven", driver=True))
    )
    monkeypatch.setattr(plan, "load_entry_points", lambda: table)
    tree = Tree(tmp_path / "image")
    tree.install("wheel-of-gpu", "1", {"gpu.py": ""})
    asked = plan.imports_request(Expected(direct=("wheel-of-gpu",), level=level), gpu=gpu)  # type: ignore[arg-type]
    answer = (
        ProbeRunner(tree.root, tree, LocalRunner(), gpu=False).ask((asked,)).answer(asked, Imports)
    )
    assert answer.data is not None, answer.fault
    assert {name: one.ok for name, one in answer.data.entries.items()} == expected
