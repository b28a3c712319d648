"""Whatever a process inside an image does, there is an answer or a fault that says what happened."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envbuild.check import probe_runner
from envbuild.check.answers import Imports
from envbuild.check.expected import Expected
from envbuild.check.plan import ProbeRequest, imports_request
from envbuild.check.probe_runner import ProbeResults, ProbeRunner, read_answer
from envbuild.failures import killed_by
from envbuild.run import Command, LocalRunner, Result
from envbuild.runtime import ExecOptions
from tests.check.elf import shared_object
from tests.check.tree import Tree, failures, make_recipe

REQUEST = ProbeRequest(name="static_probe", limit=7.0)


UNREADABLE = "the static probe gave an answer that cannot be read:"


class Small(msgspec.Struct):
    value: int


def answered(text: str) -> str:
    return f"noise\n{probe_runner.BEGIN}\n{text}\n{probe_runner.END}\n"


def ended(*, out: str = "", err: str = "", code: int = 0, timed_out: bool = False) -> Result:
    return Result(
        argv=("apptainer",), code=code, stdout=out, stderr=err, seconds=1.0, timed_out=timed_out
    )


def test_an_answer_is_found_in_the_middle_of_noise() -> None:
    answer = read_answer(
        ended(out=answered('{"value": 3}') + "bye\n", err="warning\n"), REQUEST, Small
    )
    assert answer.data == Small(value=3)
    assert answer.noise == ("noise", "warning")


def test_an_answer_counts_even_when_the_process_crashed_afterwards() -> None:
    assert read_answer(ended(out=answered('{"value": 3}'), code=-11), REQUEST, Small).data == Small(
        value=3
    )


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (
            ended(out=answered("{broken")),
            f"{UNREADABLE} JSON is malformed: object keys must be strings (byte 2)",
        ),
        (
            ended(out=answered('{"value": "x"}')),
            f"{UNREADABLE} Expected `int`, got `str` - at `$.value`",
        ),
        (
            ended(out=f"{probe_runner.BEGIN}\n" + '{"value": 3}', timed_out=True),
            "the static probe was not finished after 7 s",
        ),
        (ended(code=-11), "the static probe was killed by SIGSEGV"),
        (ended(code=128 + 4), "the static probe was killed by SIGILL"),
        (
            ended(code=1, err="Traceback\nImportError: no _hashlib\n"),
            "the static probe ended with code 1 and without an answer; it said: ImportError: no _hashlib",
        ),
        (ended(), "the static probe ended with code 0 and without an answer; it said: nothing"),
        (
            ended(code=255, err='FATAL:   "python3": executable file not found in $PATH'),
            "the image has no program python3",
        ),
        (
            ended(code=255, err="FATAL:   container creation failed: image format not recognized"),
            "the image is damaged, or no image at all",
        ),
    ],
)
def test_every_other_end_is_a_fault_that_says_so(result: Result, fault: str) -> None:
    answer = read_answer(result, REQUEST, Small)
    assert answer.data is None
    assert answer.fault == fault


@pytest.mark.parametrize(
    ("code", "name"), [(0, None), (1, None), (-9, "SIGKILL"), (139, "SIGSEGV"), (255, None)]
)
def test_signals_are_named(code: int, name: str | None) -> None:
    assert killed_by(code) == name


class Instead:
    """A container in which ``python3`` is another program."""

    def __init__(self, *argv: str) -> None:
        self.argv = argv

    def exec_command(
        self, image: Path, argv: tuple[str, ...], options: ExecOptions | None = None
    ) -> Command:
        given = options or ExecOptions()
        env = {"PATH": "/usr/bin:/bin"}
        return Command(argv=self.argv, env=env, stdin=given.stdin, timeout=given.timeout)


def ask(container: Instead, limit: float = 20.0, start: float = probe_runner.START_LIMIT) -> str:
    there = ProbeRunner(Path("x.sif"), container, LocalRunner(), gpu=False)
    request = ProbeRequest(name="driver_probe", limit=limit)
    return there.ask((request,), start=start).answer(request, Small).fault


def test_a_container_that_hangs_is_ended() -> None:
    assert (
        ask(Instead("sleep", "60"), limit=0.3, start=0.0)
        == "the driver probe was not finished after 0 s"
    )


def test_a_hundred_megabytes_of_output_are_survived() -> None:
    fault = ask(
        Instead(
            sys.executable,
            "-c",
            "import os\nfor _ in range(100): os.write(1, b'x' * 999999 + b'\\n')",
        )
    )
    assert fault.startswith(
        "the driver probe ended with code 0 and without an answer; it said: xxx"
    )
    assert len(fault) < 500


# -- several probes in one container


def visit(
    tmp_path: Path, *lanes: tuple[ProbeRequest, ...], heard: list[str] | None = None
) -> ProbeResults:
    there = ProbeRunner(tmp_path, Tree(tmp_path / "image"), LocalRunner(), gpu=False)
    return there.ask(*lanes, heard=None if heard is None else heard.append)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Let probes be the scripts of this table, by name."""
    table: dict[str, str] = {}
    real = probe_runner.probe_source
    monkeypatch.setattr(
        probe_runner,
        "probe_source",
        lambda one: table[one.name] if one.name in table else real(one),
    )
    return table


def test_what_is_asked_may_be_longer_than_an_argument(tmp_path: Path) -> None:
    """Linux ends one argument at 128 KiB; for a project of some hundred files more is asked."""
    uses = {f"module{number}": ("x" * 90,) for number in range(2_000)}
    request = imports_request(Expected(imports=("json",)), uses=uses)
    assert len(json.dumps(request.parameters)) > 128 << 10
    assert visit(tmp_path, (request,)).answer(request, Imports).fault == ""


SAY = f"print('{probe_runner.BEGIN}', '{{\"value\": %d}}', '{probe_runner.END}')\n"


def test_what_one_probe_does_is_no_matter_to_the_others(
    tmp_path: Path, scripts: dict[str, str]
) -> None:
    scripts.update(
        fine=SAY % 1,
        crash="import os\nos.abort()\n",
        hangs="import time\ntime.sleep(60)\n",
        loud="import os\nfor _ in range(60): os.write(1, b'x' * 999999 + b'\\n')\n" + SAY % 2,
        daemon="import os, time\nif os.fork() == 0: time.sleep(60)\n" + SAY % 3,
    )
    requests = {
        name: ProbeRequest(name=name, limit=1.0 if name == "hangs" else 20.0) for name in scripts
    }
    heard: list[str] = []
    found = visit(tmp_path, *((one,) for one in requests.values()), heard=heard)
    answers = {name: found.answer(one, Small) for name, one in requests.items()}
    assert answers["fine"].data == Small(value=1)
    assert answers["loud"].data == Small(value=2)
    assert answers["daemon"].data == Small(value=3)
    assert answers["crash"].fault == "the crash was killed by SIGABRT"
    assert answers["hangs"].fault == "the hangs was not finished after 1 s"
    assert sorted(heard) == sorted(scripts)


def test_probes_of_one_lane_come_one_after_the_other(
    tmp_path: Path, scripts: dict[str, str]
) -> None:
    note = tmp_path / "note"
    scripts["one"] = f"import time\ntime.sleep(0.2)\nopen({str(note)!r}, 'a').write('1')\n"
    scripts["two"] = f"open({str(note)!r}, 'a').write('2')\n"
    visit(tmp_path, (ProbeRequest(name="one"), ProbeRequest(name="two")))
    assert note.read_text() == "12"


def test_a_document_that_was_cut_off_is_no_answer() -> None:
    whole = '=====envbuild-part one . {"code": 0, "stdout": "", "stderr": "", "seconds": 1, "timed_out": false}'
    assert list(
        probe_runner.split_parts(
            whole + "\n=====envbuild-part two + {\n=====envbuild-part three . {"
        )
    ) == ["one"]


def test_an_image_without_python_fails_its_first_check_and_skips_the_rest(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    (tree.root / "bin/python3").unlink()
    (tree.root / "bin/python3").write_text(
        "#!/bin/sh\necho 'FATAL:   \"python3\": executable file not found' >&2\nexit 255\n"
    )
    (tree.root / "bin/python3").chmod(0o755)
    report = tree.check()
    assert failures(report) == {"start": "the image has no program python3"}
    assert {f.reason for f in report.findings[1:]} == {
        "the image did not start",
        "this machine has no NVIDIA driver",
    }


def test_variables_that_choose_gpus_are_handed_in_and_no_others() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "2", "SECRET": "x"}
    assert ProbeRunner(
        Path("x"), Instead("x"), LocalRunner(), gpu=True, environment=environment
    ).env == {"CUDA_VISIBLE_DEVICES": "2"}
    assert (
        ProbeRunner(Path("x"), Instead("x"), LocalRunner(), gpu=False, environment=environment).env
        == {}
    )


def test_a_script_that_is_never_done_is_a_fault(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text("import time\ntime.sleep(60)\n")
    tree = Tree(tmp_path / "image")
    answer = ProbeRunner(tmp_path, tree, LocalRunner(), gpu=False).run_script(script, limit=0.3)
    assert answer.data is None
    assert answer.fault == "the script was not finished after 0 s"


# -- the import probe: every module in a process of its own


def imports(tree: Tree, *modules: str, first: str | None = None, limit: float = 20) -> Imports:
    request = imports_request(Expected(imports=modules))
    parameters = {**request.parameters, "frameworks": [first] if first else [], "limit": limit}
    request = replace(request, parameters=parameters, limit=60)
    answer = (
        ProbeRunner(tree.root, tree, LocalRunner(), gpu=False)
        .ask((request,))
        .answer(request, Imports)
    )
    assert answer.data is not None, answer
    return answer.data


def test_one_bad_import_does_not_touch_the_others(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    tree.write("hangs.py", "import time\ntime.sleep(60)\n")
    tree.write(
        "chatty.py",
        "import os\nfor _ in range(40): os.write(1, b'x' * 99999 + b'\\n')\n__version__ = '3'\n",
    )
    tree.write("crash.py", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    tree.write("raises.py", "print('told before')\nraise RuntimeError('two lines:\\nthe last')\n")
    tree.write("fine.py", "__version__ = 7\n")
    found = imports(tree, "hangs", "chatty", "crash", "raises", "fine", limit=1.5).modules
    assert found["hangs"].error == "not finished after 1 s"
    assert found["chatty"].ok
    assert found["chatty"].version == "3"
    assert found["crash"].error == "the process was killed by SIGSEGV"
    assert found["raises"].error == "RuntimeError: the last"
    assert found["raises"].noise == ("told before",)
    assert found["fine"].ok
    assert found["fine"].version is None


def test_what_a_process_waits_for_a_processor_does_not_count() -> None:
    source = Path(probe_runner.__file__).with_name("probes") / "shared/child.py"
    names: dict[str, Any] = {"json": json, "os": os, "sys": sys}
    exec(source.read_text(), names)  # noqa: S102  (it is this project's own)
    names["count_waited"] = lambda process: 10.0

    def work(say: Callable[[object], None]) -> None:
        time.sleep(0.3)
        say("done")

    assert names["in_child"](work, 0.1)["lines"] == ["done"]


def test_who_lacks_what_is_wanted_is_blamed_first(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    tree.install("gear", "3", {"gear/__init__.py": "", "gear/wheels.py": ""})
    tree.install("engine", "1", {"engine.py": "from gear.wheels import tooth\n"})
    tree.install("motor", "1", {"motor.py": "import gear\ngear.Tooth\n"})
    tree.install("course", "1", {"course.py": "import engine\n"})
    tree.install("lesson", "1", {"lesson.py": "import gear.gone.deep\n"})
    found = imports(tree, "course", "motor", "lesson").modules
    assert found["course"].blame == ("gear", "engine", "course")
    assert found["motor"].blame == ("gear", "motor")
    assert found["lesson"].blame == ("gear", "lesson")


def test_names_that_the_source_takes_are_taken(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    tree.write(
        "parts/__init__.py",
        "def __getattr__(name):\n    raise AttributeError('no %s here' % name)\n",
    )
    tree.write("parts/wheel.py", "")
    tree.write("parts/gear.py", "import tooth\n")
    request = imports_request(Expected(imports=("parts",)), uses={"parts": ("wheel",)})
    gear = imports_request(Expected(imports=("parts",)), uses={"parts": ("wheel", "gear")})
    axle = imports_request(Expected(imports=("parts",)), uses={"parts": ("axle",)})
    answers = [
        ProbeRunner(tree.root, tree, LocalRunner(), gpu=False).ask((one,)).answer(one, Imports)
        for one in (request, gear, axle)
    ]
    fine, broken, missing = [
        answer.data.modules["parts"] for answer in answers if answer.data is not None
    ]
    assert fine.ok
    assert (broken.ok, broken.used, broken.error) == (
        False,
        True,
        "ModuleNotFoundError: No module named 'tooth'",
    )
    assert (missing.ok, missing.used) == (False, True)
    assert missing.error in (
        "AttributeError: no axle here",
        "ImportError: cannot import name 'axle' from 'parts'",
    )


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "a>=2 is required, but found a==1.\\nTry: pip install a -U",
            "a>=2 is required, but found a==1.",
        ),
        ("could not load it.\\nLikely causes:\\n [end of traceback]", "could not load it."),
        ("Failed because of the following error (look up):\\nno such part", "no such part"),
        ("\\n====\\nOriginal error:\\nno library\\n====", "no library"),
        ("\\n\\n", ""),
    ],
)
def test_of_a_long_message_the_telling_line_is_kept(
    tmp_path: Path, message: str, told: str
) -> None:
    tree = Tree(tmp_path / "image")
    tree.write("broken.py", f"raise ImportError('{message}')\n")
    found = imports(tree, "broken").modules["broken"]
    assert found.error == (f"ImportError: {told}" if told else "ImportError")


def test_an_image_alone_lacks_what_a_package_requires_or_is_called(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    extension = shared_object(["libc.so.6"])
    tree.install(
        "whole-part", "1", {"whole_part/__init__.py": "import gone\n", "whole_part/x.so": extension}
    )
    tree.install(
        "py-other",
        "1",
        {"other/__init__.py": "import needed\n", "other/x.so": extension},
        requires=["needed"],
    )
    tree.install(
        "py-third",
        "1",
        {"third/__init__.py": "import maybe\n", "third/x.so": extension},
        requires=["maybe; extra == 'all'"],
    )
    told = failures(tree.check())["direct-imports"]
    assert "whole_part" in told
    assert "other" in told
    assert "third" not in told


def test_a_script_beside_a_package_may_lack_what_nobody_requires(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    tree.install("data-loader", "1", {"loader/__init__.py": "", "rec2idx.py": "import mxnet\n"})
    tree.install("half", "1", {"halfway/__init__.py": "import mxnet\n"})
    assert "direct-imports" not in failures(tree.check(make_recipe("data-loader")))
    assert "mxnet" in failures(tree.check(make_recipe("half")))["direct-imports"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "import abc\nabc.gone\n",
            "tool.cli: AttributeError: module 'abc' has no attribute 'gone'",
        ),
        ("import shell\n", ""),
        ("raise ImportError('pip install tool[cli]')\n", ""),
    ],
)
def test_the_program_of_a_package_has_to_import(tmp_path: Path, code: str, words: str) -> None:
    tree = Tree(tmp_path / "image")
    files = {"tool/__init__.py": "", "tool/cli.py": code}
    programs = "[console_scripts]\ntool = tool.cli:main\n\n[other]\na = gone.part:b\n"
    tree.install("tool", "1", {**files, "tool-1.dist-info/entry_points.txt": programs})
    told = failures(tree.check(make_recipe("tool"))).get("direct-imports", "")
    assert words in told if words else not told


def test_modules_for_another_python_beside_this_ones_are_parts(tmp_path: Path) -> None:
    for name, beside in (("lone", None), ("torchao", "_C.abi3.so")):
        tree = Tree(tmp_path / name)
        files: dict[str, str | bytes] = {
            f"{name}/__init__.py": "",
            f"{name}/cuda.cpython-36-x86_64-linux-gnu.so": shared_object([]),
        }
        if beside:
            files[f"{name}/{beside}"] = shared_object([])
        tree.install(name, "1", files)
        told = failures(tree.check(make_recipe(name))).get("shared-libraries", "")
        assert ("built for another Python" in told) == (beside is None), told


def test_what_the_project_takes_from_a_package_that_loads_late(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    late = "def __getattr__(name):\n    if name == 'Model':\n        import gone_part\n    raise AttributeError(name)\n"
    tree.install("late-parts", "1", {"late_parts/__init__.py": late, "late_parts/fine.py": ""})
    project = tmp_path / "project"
    project.mkdir()
    script = project / "train.py"
    told = {}
    for text in ("from late_parts import Model", "from late_parts import fine", "import json"):
        script.write_text(text + "\n")
        report = tree.check(make_recipe("late-parts"), project=project)
        told[text] = next(one for one in report.findings if one.check == "project-imports")
        assert set(failures(report)) <= {"project-imports"}
    broken, fine, none = told.values()
    assert (broken.outcome, fine.outcome, none.outcome) == ("failed", "passed", "skipped")
    assert broken.reason == (
        "the project's source imports late_parts: ModuleNotFoundError: No module named 'gone_part'"
    )


BEGINNINGS = """\
import functools
HAS_PLOTS, HAS_CUDA = False, False
def has_parts():
    return False
class Kind:
    @classmethod
    def from_saved(cls, path):
        return cls()
    def load(self, path):
        if not HAS_PLOTS:
            raise ValueError("the backend plots is required")
def read(path) -> "Kind | None":
    return Kind()
def look(path):
    return Kind()
wrapped = functools.wraps(functools.partial(read))(lambda path: Kind())
def draw(data):
    import gone_part
def write(data):
    try:
        import gone_part
    except ImportError as error:
        raise ImportError("pip install gone-part") from error
def _check_parts():
    if not has_parts():
        raise ImportError("gone_part is missing")
@functools.cache
def fit():
    _check_parts()
class Any:
    def __getattr__(self, name):
        return self
    def __call__(self, *rest):
        return 1
old = Any()
def move():
    if not HAS_CUDA:
        raise RuntimeError("a GPU is required")
def guess(data=None):
    if data is None:
        return 0
    import gone_part
def choose(kind):
    import_named(kind)
def import_named(kind):
    raise ImportError(kind)
"""
CALLS = {
    "draw(1)": "ModuleNotFoundError: No module named 'gone_part'",
    "write(1)": "ImportError: pip install gone-part",
    "fit()": "ImportError: gone_part is missing",
    "move()": "",
    "old.create(1)": "",
    "guess()": "",
    "choose(1)": "",
    "Kind().load(1)": "ValueError: the backend plots is required",
    "read(1).load(1)": "ValueError: the backend plots is required",
    "look(1).load(1)": "",
    "wrapped(1).load(1)": "",
    "kind = parts.Kind.from_saved(1)\nkind.load(1)": "ValueError: the backend plots is required",
}


def test_what_a_function_needs_whenever_it_is_called(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image").install("parts", "1", {"parts.py": BEGINNINGS})
    project = tmp_path / "project"
    project.mkdir()
    for call, said in CALLS.items():
        line = call if "parts." in call else f"parts.{call}"
        (project / "train.py").write_text(f"import parts\n{line}\n")
        told = failures(tree.check(make_recipe("parts"), project=project))
        expected = (
            {"project-imports": f"the project's source imports parts: {said}"} if said else {}
        )
        assert told == expected, call


@pytest.mark.parametrize(
    ("message", "package"),
    [
        (
            "It is not all there.\\n\\nPlease pip install as follows:\\n  pip install 'frames[full]' -U",
            "frames[full]",
        ),
        ("Missing optional dependency 'tabs'.  Use pip or conda to install tabulate.", "tabulate"),
        ("Tables want more: you can pip install it, or `pip install tables`.", "tables"),
    ],
)
def test_what_the_message_of_a_package_says_to_install_is_the_hint(
    message: str, package: str, tmp_path: Path
) -> None:
    source = f'raise ImportError("{message}")\n'
    tree = Tree(tmp_path / "image").install("frames", "1", {"frames.py": source})
    report = tree.check(make_recipe("frames"))
    (broken,) = [one for one in report.findings if one.outcome == "failed"]
    assert broken.hint == f'add "{package}" to [python] dependencies'


def test_what_a_script_that_may_never_run_takes_is_a_note(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image").install("parts", "1", {"parts.py": "wheel = 1\n"})
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    (project / "train.py").write_text("from parts import wheel\n")
    (project / "tools/old.py").write_text("from parts import gear\n")
    report = tree.check(make_recipe("parts"), project=project)
    found = next(one for one in report.findings if one.check == "project-imports")
    assert found.outcome == "skipped"
    assert found.reason == (
        "tools/old.py, which not every program of the project loads, cannot run: parts: "
        "AttributeError: module 'parts' has no attribute 'gear'"
    )
    assert (found.hint or "").startswith("leave it if nobody runs it; else ")
    report = tree.check(make_recipe("parts"), project=project, needed={"gone": "net.py"})
    both = next(one for one in report.findings if one.check == "project-imports")
    lacking = "nothing in the image has gone (net.py), which the project imports"
    assert both.reason == f"{found.reason}; {lacking}"
    assert "envbuild add" in (both.hint or "")
    (project / "train.py").write_text("from parts import gear\n")
    assert "project-imports" in failures(tree.check(make_recipe("parts"), project=project))


def test_a_name_is_looked_for_in_the_modules_of_a_module_only(tmp_path: Path) -> None:
    parts = {"parts/__init__.py": "", "parts/inner.py": "class Kind: pass\n"}
    tree = Tree(tmp_path / "image").install("parts", "1", parts)
    project = tmp_path / "project"
    project.mkdir()
    told = {}
    for line in ("inner.Kind.made_later", "inner.gone"):
        (project / "train.py").write_text(f"from parts import inner\n{line}\n")
        told[line] = failures(tree.check(make_recipe("parts"), project=project))
    assert told["inner.Kind.made_later"] == {}
    assert told["inner.gone"] == {
        "project-imports": "the project's source imports parts: AttributeError: module 'parts.inner' has "
        "no attribute 'gone'"
    }


def test_the_first_module_is_imported_once_for_all(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    count = tmp_path / "count"
    tree.write("slow.py", f"open({str(count)!r}, 'a').write('x')\n")
    tree.write("one.py", "import slow\n")
    tree.write("two.py", "import slow\n")
    assert all(
        answer.ok for answer in imports(tree, "slow", "one", "two", first="slow").modules.values()
    )
    assert count.read_text() == "x"


@pytest.mark.parametrize("fault", ["raise ImportError('broken')", "import os; os.abort()"])
def test_the_others_are_still_tried_when_the_first_does_not_import(
    fault: str, tmp_path: Path
) -> None:
    tree = Tree(tmp_path / "image")
    tree.write("slow.py", fault + "\n")
    tree.write("one.py")
    found = imports(tree, "slow", "one", first="slow").modules
    assert not found["slow"].ok
    assert found["one"].ok


OTHER_PYTHONS = sorted((Path.home() / ".pyenv/versions").glob("3.*/bin/python3"))


@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parts[-3])
def test_probes_run_on_every_python_there_is(python: Path, tmp_path: Path) -> None:
    version = ".".join(python.parts[-3].split(".")[:2])
    tree = Tree(tmp_path / "image", python=python, version=version)
    tree.install("thing", "1", {"thing.py": ""})
    report = tree.check()
    assert failures(report) == {}
    assert json.loads(json.dumps(report.findings[0].evidence))["python"].startswith(version)


def test_without_a_gpu_the_script_runs_beside_the_probes(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    tree.write(
        "slow.py",
        "import os, time\nwhile not os.path.exists(os.environ['HOME'] + '/ran'): time.sleep(0.01)\n",
    )
    script = tmp_path / "check.py"
    script.write_text(
        "import os\nopen(os.environ['HOME'] + '/ran', 'w').close()\nprint('trained')\n"
    )
    report = tree.check(make_recipe(imports=("slow",)), script=script)
    assert failures(report) == {}
    assert any("trained" in finding.reason for finding in report.findings)


def test_a_gpu_that_takes_one_process_at_a_time_is_free_for_the_script(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    tree.write(
        "slow.py",
        "import os, time\ntime.sleep(0.3)\nopen(os.environ['HOME'] + '/imported', 'w').close()\n",
    )
    script = tmp_path / "check.py"
    script.write_text(
        "import os\nassert os.path.exists(os.environ['HOME'] + '/imported')\nprint('trained')\n"
    )
    report = tree.check(make_recipe(imports=("slow",)), script=script, gpu=True)
    assert any("trained" in finding.reason for finding in report.findings)


def test_an_import_that_says_that_it_is_good_for_nothing_failed(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    said = "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:"
    tree.install("xformers", "0.0.20", {"xformers.py": f"print({said!r})\n"})
    tree.install("diffuser", "1", {"diffuser.py": "import xformers\n"})
    tree.install("fine", "1", {"fine.py": "print('nothing to tell')\n"})
    found = imports(tree, "diffuser", "fine").modules
    assert found["fine"].ok
    assert not found["diffuser"].ok
    assert found["diffuser"].error == f"xformers' kernels do not run: {said}"
    assert found["diffuser"].blame == ("xformers", "diffuser")
    first = imports(tree, "fine", first="xformers").modules
    assert not first["xformers"].ok


def test_a_module_does_not_meet_the_arguments_of_the_probe(tmp_path: Path) -> None:
    """They hold what other packages print when they are good for nothing."""
    tree = Tree(tmp_path / "image")
    tree.install("asker", "1.0", {"asker.py": "import sys\nprint(sys.argv[1:])\n"})
    asker = imports(tree, "asker").modules["asker"]
    assert asker.ok, asker.error


def test_an_image_of_a_stranger_that_lets_user_packages_in_gets_a_note(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image").install("six", "1.16.0", {"six.py": ""})
    (tree.root / "pyvenv.cfg").write_text(
        f"home = {tree.python.parent}\ninclude-system-site-packages = true\n"
    )
    del tree.env["PYTHONNOUSERSITE"]
    alone, ours = tree.check(), tree.check(make_recipe("six"))
    assert not {"user-site-off", "plain-exec"} & set(failures(alone))
    assert {"user-site-off", "plain-exec"} <= set(failures(ours))
    notes = [one.reason for one in alone.findings if one.check == "user-site-off"]
    assert notes[0].startswith("a note, for an image that envbuild has not built")


def test_what_the_project_needs_and_nothing_in_the_image_has_is_told(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image").install("there", "1", {"there.py": ""})
    needed = {"there": "train.py", "sqlite3": "train.py", "gone": "net.py", "lost": "train.py"}
    report = tree.check(make_recipe("there"), project=tmp_path, needed=needed)
    found = next(one for one in report.findings if one.check == "project-imports")
    assert (found.outcome, found.reason) == (
        "skipped",
        "nothing in the image has gone (net.py), which the project imports; also lost (train.py)",
    )
    assert found.hint == (
        "add the package that has it to the recipe (envbuild add), "
        "or leave it if that file runs elsewhere"
    )
