"""Facts of a local image: the probe runs in it, once per digest."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import pytest

from envbuild.base.reference import parse_reference
from envbuild.base.sources import describe_base
from envbuild.context import Context
from envbuild.errors import HostError, SpaceError, ToolFailedError, UsageError
from envbuild.progress import Silent
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings, load_settings
from envbuild.store.layout import Store
from tests.base.siffiles import partition, write_sif
from tests.base.test_base_facts import output
from tests.support import ScriptedRunner, needs, quiet_context

VERSION = (0, "apptainer version 1.4.5\n", "")
MACHINE = b"02\0" if platform.machine() == "x86_64" else b"04\0"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a machine whose PATH holds nothing but an Apptainer, with an image in the current folder."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "apptainer").write_text("#!/bin/sh\n")
    (programs / "apptainer").chmod(0o755)
    write_sif(tmp_path / "base.sif", [partition(arch=MACHINE)], created=1600000000, arch=MACHINE)
    return load_settings({"PATH": str(programs), "HOME": str(tmp_path)}, tmp_path)


def inspect(settings: Settings, runner: ScriptedRunner) -> tuple[object, Store]:
    store = Store(settings.cwd / "store")
    return describe_base(
        parse_reference("base.sif"),
        Context(settings=settings, runner=runner, store=store, report=Silent()),
    ), store


def test_the_probe_is_fed_to_a_sealed_container_once(here: Settings) -> None:
    runner = ScriptedRunner({"--version": VERSION, "python3": (0, output(created=1650000000), "")})
    facts, store = inspect(here, runner)
    command = runner.calls[-1]
    assert command.argv[-5:] == (str(here.cwd / "base.sif"), "python3", "-s", "-B", "-")
    assert {"exec", "--cleanenv", "--containall", "--no-home"} <= set(command.argv)
    assert "--bind" not in command.argv
    assert (command.stdin or "").startswith('"""Read the facts of an image')
    assert facts.created == "2020-09-13"  # type: ignore[attr-defined]  # the file's own time, as it is the earlier
    assert facts.image == "base.sif"  # type: ignore[attr-defined]
    again = describe_base(
        parse_reference("./base.sif"),
        Context(settings=here, runner=ScriptedRunner({}), store=store, report=Silent()),
    )
    assert (again.image, again.digest) == ("./base.sif", facts.digest)  # type: ignore[attr-defined]


def test_an_image_may_call_its_python_python(here: Settings) -> None:
    missing = 'FATAL:   "python3": executable file not found in $PATH\n'
    runner = ScriptedRunner(
        {
            "--version": VERSION,
            "python3 -s": (255, "", missing),
            "python -s": (0, output(created=None), ""),
        }
    )
    facts, _ = inspect(here, runner)
    assert facts.created == "2020-09-13"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "kind", "what"),
    [
        (
            '  File "<stdin>", line 3\nSyntaxError: invalid syntax',
            UsageError,
            "base.sif: the image's Python cannot run a script for Python 3.6: SyntaxError: invalid syntax",
        ),
        (
            "FATAL: container creation failed: squashfuse_ll exited: fuse: failed to open /dev/fuse: Permission denied",
            HostError,
            "/dev/fuse cannot be used, so the image cannot be mounted",
        ),
        ("write: no space left on device", SpaceError, "a file system is full"),
        (
            "Segmentation fault",
            ToolFailedError,
            "apptainer failed with exit code 255\nSegmentation fault",
        ),
    ],
)
def test_what_goes_wrong_inside_is_told(
    here: Settings, text: str, kind: type[Exception], what: str
) -> None:
    answers = {
        f"{name} -s": (255, "", text.replace("NAME", name)) for name in ("python3", "python")
    }
    with pytest.raises(kind) as caught:
        inspect(here, ScriptedRunner({"--version": VERSION, **answers}))
    assert str(caught.value) == what


@pytest.mark.parametrize(
    "missing",
    ['FATAL:   "NAME": executable file not found in $PATH', "/bin/sh: 1: NAME: not found"],
)
def test_an_image_without_python_gets_the_machines(here: Settings, missing: str) -> None:
    (here.cwd / "ld-linux.so.2").write_text("")
    told = {"program": "/bin/sh", "stdlib": "/usr", "libraries": [str(here.cwd / "ld-linux.so.2")]}
    found = output(python="", python_path="", created=None)
    answers = {"-I -S": (0, json.dumps(told), ""), "/mnt/python/lib/loader": (0, found, "")}
    for name in ("python3", "python"):
        answers[f"{name} -s"] = (255, "", missing.replace("NAME", name))
    runner = ScriptedRunner({"--version": VERSION, **answers})
    facts, _ = inspect(here, runner)
    assert facts.python == ""  # type: ignore[attr-defined]
    command = runner.calls[-1]
    assert command.argv[-4:] == ("-s", "-B", "-", "host")


def test_a_machine_without_a_runtime_says_so(here: Settings) -> None:
    (here.cwd / "bin/apptainer").unlink()
    with pytest.raises(HostError, match="neither apptainer nor singularity was found on PATH"):
        inspect(here, ScriptedRunner({}))


def real_image(folder: Path, *, python: bool) -> Path:
    """Pack a tree with, or without, this machine's own Python into a SIF."""
    root = folder / "root"
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "usr/bin", "usr/lib", "var"):
        (root / name).mkdir(parents=True)
    if python:
        for name in ("bin/python3.11", "lib/python3.11", "lib/python3/dist-packages"):
            source, target = Path("/usr") / name, root / "usr" / name
            if source.is_dir():
                shutil.copytree(
                    source,
                    target,
                    symlinks=True,
                    ignore=shutil.ignore_patterns("__pycache__", "test"),
                )
            else:
                shutil.copy2(source, target)
        (root / "usr/bin/python3").symlink_to("python3.11")
        libraries = LocalRunner()(Command(argv=("ldd", "/usr/bin/python3.11"))).stdout.split()
        for library in (Path(word) for word in libraries if word.startswith("/")):
            (root / str(library.parent)[1:]).mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, root / str(library)[1:])
    image = folder / "base.sif"
    pack(image, root)
    return image


def pack(image: Path, root: Path) -> None:
    LocalRunner()(Command(argv=("apptainer", "--quiet", "build", "--force", str(image), str(root))))


@pytest.mark.live
@needs("apptainer", "/usr/bin/python3.11")
def test_a_real_image_is_read(tmp_path: Path, user_settings: Settings) -> None:
    image = real_image(tmp_path, python=True)
    facts = describe_base(parse_reference(str(image)), quiet_context(user_settings))
    assert facts.python_path == "/usr/bin/python3"
    assert facts.abi == "cp311"
    assert facts.apt == ()
    assert (
        "/usr/lib/python3/dist-packages" in facts.site
        or not Path("/usr/lib/python3/dist-packages").exists()
    )
    assert facts.environment == {}


@pytest.mark.live
@needs("apptainer")
def test_a_real_image_without_python_or_shell_is_read_too(
    tmp_path: Path, user_settings: Settings
) -> None:
    context = quiet_context(user_settings)
    image = real_image(tmp_path, python=False)
    with pytest.raises(UsageError, match="the image's C library is not glibc"):
        describe_base(parse_reference(str(image)), context)
    library = Path("/lib64/ld-linux-x86-64.so.2").resolve().with_name("libc.so.6")
    (tmp_path / "root/lib").mkdir()
    shutil.copy2(library, tmp_path / "root/lib/libc.so.6")
    meta = tmp_path / "root/usr/local/conda-meta"
    meta.mkdir(parents=True)
    (meta / "samtools-1.21-h1_0.json").write_text("{}")
    pack(image, tmp_path / "root")
    facts = describe_base(parse_reference(str(image)), context)
    assert (facts.python, facts.conda_prefix) == ("", "/usr/local")
    assert [package.key for package in facts.conda] == [("samtools", "1.21", "h1_0")]
    assert facts.glibc == platform.libc_ver()[1]
