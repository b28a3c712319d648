"""Run probes inside an image and read their answers; what fails in there is a fault, no error."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import structs

from envbuild.check.answers import Answer, ScriptRun
from envbuild.check.contaminated_home import poison_home
from envbuild.check.plan import ProbeRequest
from envbuild.failures import explain_failure, killed_by
from envbuild.host_python import HostPython
from envbuild.limits import SCRIPT, UNREADABLE, read_whole
from envbuild.names import Texts, Variables
from envbuild.records import replace
from envbuild.run import Command, Result, Runner
from envbuild.runtime import ExecOptions

T = TypeVar("T")
BEGIN = "=====envbuild-answer-begin====="
END = "=====envbuild-answer-end====="
SCRIPT_LIMIT = 1800.0
"""Seconds that a recipe's own check script may take."""
HANDED_ON = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS")
"""Variables that say which GPUs are ours; a sealed container would use all of them without."""
PLAIN = ("PATH", "LANG", "LC_ALL", "TERM")
"""Variables of the caller that the unsealed probe gets: an image may be a stranger's."""
NOISE_LINES = 12
PYTHON = "python3"
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  (in the image)
START_LIMIT = 120.0
"""Seconds that a container may take to start and end, beside its probes."""
PART = re.compile(r"=====envbuild-part (\w+) ([+.]) (.*)")
"""One line of the supervisor: the probe, whether more of its document follows, and a piece."""

START_SCRIPT = """\
import os, sys, tempfile
path = os.path.join(tempfile.mkdtemp(prefix="envbuild-check-"), sys.argv[1])
with open(path, "wb") as file:
    file.write(sys.stdin.buffer.read())
os.execv(sys.executable, [sys.executable, path])
"""
"""Starts a script that comes on stdin from a real file.

Without one its functions have no source (autograph, torch.compile) and its traceback no lines.
"""


class Container(Protocol):
    """What a check uses of envbuild.runtime.Runtime: it builds commands and starts nothing."""

    def exec_command(self, image: Path, argv: Texts, options: ExecOptions | None = None) -> Command:
        """Build the command that runs ``argv`` in the image, sealed or as a plain exec has it."""


def probe_source(request: ProbeRequest) -> str:
    """Return the text of a probe: its parameters, its prepended parts and itself.

    As an argument the parameters could be too long: Linux ends one at 128 KiB (execve(2)).
    """
    parameters = json.dumps(msgspec.to_builtins(request.parameters))
    shared = [_text(f"shared/{part}") for part in request.parts]
    return "".join((f"_GIVEN = {parameters!r}\n", *shared, _text(request.name)))


def _text(name: str) -> str:
    return resources.files("envbuild.check.probes").joinpath(f"{name}.py").read_text("utf-8")


class ProbeRunner:
    """An image with the means to run something in it.

    ``gpu`` hands the host's driver in (--nv), ``network`` the network; the unsealed probe never has
    one.  ``host_python`` is one for an image without its own.
    """

    def __init__(
        self,
        image: Path,
        container: Container,
        runner: Runner,
        *,
        gpu: bool,
        environment: Variables | None = None,
        network: bool = False,
        host_python: HostPython | None = None,
    ) -> None:
        self.python = (PYTHON,) if host_python is None else host_python.argv
        self.binds = () if host_python is None else host_python.binds
        self.image = image
        self.container = container
        self.runner = runner
        self.gpu = gpu
        self.network = network
        self.env: dict[str, str] = {}
        if gpu and environment:
            self.env = {key: value for key, value in environment.items() if key in HANDED_ON}

    def ask(
        self,
        *lanes: Sequence[ProbeRequest],
        heard: Callable[[str], None] | None = None,
        start: float = START_LIMIT,
    ) -> ProbeResults:
        """Run probes in one container: lanes side by side, a lane's probes one after the other.

        ``heard`` is called with a probe's name as soon as it has ended.
        """
        jobs = [
            [
                {
                    "name": one.name,
                    "source": probe_source(one),
                    "limit": one.limit,
                }
                for one in lane
            ]
            for lane in lanes
        ]
        limit = max(sum(one.limit for one in lane) for lane in lanes) + start
        document = msgspec.json.encode({"lanes": jobs}).decode()
        command = self._sealed(("-c", _text("supervisor")), document, limit)
        if heard is not None:
            command = replace(command, on_line=_listener(heard))
        return ProbeResults(self.runner(command, check=False), limit)

    def _sealed(self, words: Texts, stdin: str, limit: float) -> Command:
        """Return the command that runs the image's Python as envbuild exec does."""
        options = ExecOptions(
            binds=self.binds,
            env=self.env,
            gpu=self.gpu,
            stdin=stdin,
            timeout=limit,
            network=self.network,
        )
        return self.container.exec_command(self.image, (*self.python, *words), options)

    def ask_plainly(self, request: ProbeRequest, kind: type[T], folder: Path) -> Answer[T]:
        """Run one probe unsealed, as a user with a poisoned home folder, made in an empty ``folder``.

        It gets nothing of the caller's own.
        """
        home, temporary = folder / "home", folder / "tmp"
        home.mkdir()
        temporary.mkdir()
        command = self.container.exec_command(
            self.image,
            (*self.python, "-"),
            ExecOptions(
                sealed=False,
                binds=(*self.binds, *((temporary, place, True) for place in TEMPORARY)),
                stdin=probe_source(request),
                timeout=request.limit,
                network=False,
                home=home,
            ),
        )
        environment = {**_plain_environment(command.env or {}), **poison_home(home)}
        result = self.runner(replace(command, env=environment), check=False)
        return read_answer(result, request, kind)

    def run_script(self, script: Path, limit: float = SCRIPT_LIMIT) -> Answer[ScriptRun]:
        """Run the recipe's own check script."""
        text = read_whole(script, SCRIPT).decode("utf-8")
        command = self._sealed(("-c", START_SCRIPT, script.name), text, limit)
        result = self.runner(command, check=False)
        noise = last_lines(result)
        if result.timed_out:
            fault = f"the script was not finished after {limit:.0f} s"
            return Answer(data=None, fault=fault, seconds=result.seconds, noise=noise)
        last = noise[-1] if noise else "nothing"
        if result.code == 0 and result.stdout.strip():
            last = result.stdout.strip().splitlines()[-1][:300]
        run = ScriptRun(code=result.code, last_line=last, last_lines=noise)
        return Answer(data=run, seconds=result.seconds, noise=noise)


def _plain_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return an unsealed probe's part of the environment: the runtime's settings, and PLAIN."""
    kept = {
        key: value
        for key, value in given.items()
        if key in PLAIN or key.startswith(("APPTAINER", "SINGULARITY"))
    }
    if "TMPDIR" in given:  # where the runtime itself unpacks, which the image need not know
        kept.update({f"{name}_TMPDIR": given["TMPDIR"] for name in ("APPTAINER", "SINGULARITY")})
    return kept


class ProbeResults:
    """What the probes of one container left behind; ``limit`` is the time the container had."""

    def __init__(self, whole: Result, limit: float) -> None:
        self.whole = whole
        self.limit = limit
        self.parts = split_parts(whole.stdout)

    def answer(self, request: ProbeRequest, kind: type[T]) -> Answer[T]:
        """Return one probe's answer; where the container ended before, what is said about that."""
        part = self.parts.get(request.name)
        if part is None:
            return read_answer(self.whole, replace(request, limit=self.limit), kind)
        return read_answer(part, request, kind)


class _Part(msgspec.Struct, frozen=True):
    """How one probe ended, as the supervisor tells it."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool


def split_parts(text: str) -> dict[str, Result]:
    """Return the documents in the supervisor's output by probe; what is damaged is left out."""
    pieces: dict[str, list[str]] = {}
    found = {}
    for line in text.splitlines():
        match = PART.match(line)
        if match is None:
            continue
        name, sign, piece = match.groups()
        pieces.setdefault(name, []).append(piece)
        if sign == "+":
            continue
        with contextlib.suppress(*UNREADABLE):
            part = msgspec.json.decode("".join(pieces.pop(name)), type=_Part)
            found[name] = Result(argv=(name,), **structs.asdict(part))
    return found


def _listener(heard: Callable[[str], None]) -> Callable[[str], None]:
    def listen(line: str) -> None:
        match = PART.match(line)
        if match is not None and match[2] == ".":
            heard(match[1])

    return listen


def read_answer(result: Result, request: ProbeRequest, kind: type[T]) -> Answer[T]:
    """Read a probe's answer out of what its process left behind."""
    title = request.name.replace("_", " ")
    noise = last_lines(result)

    def no(fault: str, hint: str | None = None) -> Answer[T]:
        return Answer(data=None, fault=fault, hint=hint, seconds=result.seconds, noise=noise)

    _, found, rest = result.stdout.rpartition(BEGIN)
    document, ended, _ = rest.partition(END)
    if found and ended:
        try:
            data = msgspec.json.decode(document, type=kind)
        except (*UNREADABLE, UnicodeError) as error:
            return no(f"the {title} gave an answer that cannot be read: {error}")
        return Answer(data=data, seconds=result.seconds, noise=noise)
    if result.timed_out:
        return no(f"the {title} was not finished after {request.limit:.0f} s")
    killed = killed_by(result.code)
    if killed:
        return no(f"the {title} was killed by {killed}")
    if re.search(r"FATAL|executable file not found|^ *PYTHONHOME = '", result.stderr, re.MULTILINE):
        known = explain_failure(result)
        return no(known.what, known.hint)
    last = noise[-1] if noise else "nothing"
    return no(f"the {title} ended with code {result.code} and without an answer; it said: {last}")


def last_lines(result: Result) -> Texts:
    """Return the last lines that were printed beside the answer."""
    before, _, _ = result.stdout.partition(BEGIN)
    text = f"{before.strip()}\n{result.stderr.strip()}"
    return tuple(line[:300] for line in text.splitlines()[-NOISE_LINES:] if line.strip())
