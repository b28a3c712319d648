"""Parsers of what images, schedulers, package lists, shelves and copied folders say, for fuzzing (see parsers.py)."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from envbuild.base.debian.apt import _release_date
from envbuild.base.debian.index import DebianIndex, field_of
from envbuild.base.facts import load_facts, read_probe
from envbuild.base.oci.credentials import find_credentials
from envbuild.base.reference import parse_reference
from envbuild.build.image.base_config import parse_labels
from envbuild.build.packages.editable import read_project
from envbuild.check import answers
from envbuild.check.checks.frameworks import frameworks_to_check
from envbuild.check.checks.sources import survey_project
from envbuild.check.evidence import Evidence
from envbuild.check.expected import CheckBasis, derive_expected
from envbuild.check.model import Report
from envbuild.check.plan import static_request
from envbuild.check.probe_runner import BEGIN, END, ProbeResults
from envbuild.check.probes.shared.loader import read_cache
from envbuild.check.reports.html_report import format_page
from envbuild.check.reports.report import format_report, to_json
from envbuild.check.table import run_checks
from envbuild.errors import EnvbuildError, UsageError
from envbuild.formats.java_keystore import MAGIC, _seal, with_time
from envbuild.job.compose import read_env_file
from envbuild.job.model import Record
from envbuild.job.request.table import read_grid, read_table
from envbuild.job.schedulers import SCHEDULERS
from envbuild.job.sites.detect import probed_sections, with_facts
from envbuild.job.track.records import load_own_records, load_records, log_files, read_receipt
from envbuild.job.track.results import TaskResult, _read_values, result_row
from envbuild.job.track.state import _ended
from envbuild.limits import UNREADABLE
from envbuild.net.web import read_netrc
from envbuild.pip_files import read_pip_option
from envbuild.project.code.uses import find_uses
from envbuild.quota import parse_quota
from envbuild.run import Result
from envbuild.settings import load_settings
from envbuild.settings_file import read_settings_file
from envbuild.shelf.policy import refuse_recipe
from envbuild.shelf.sanitize import sanitize_text
from envbuild.shelf.signatures import _pinned_keys, read_signers
from tests.base.test_base_facts import output
from tests.check.tree import make_recipe
from tests.hostile.index_parsers import CONFIGURATION, PROJECT, SETUP, Parser, text_of
from tests.support import ScriptedRunner, context_for

# --- what probes in an image answer

KINDS = {
    "static": answers.Static, "libraries": answers.LibrarySurvey, "imports": answers.Imports, "conda": answers.CondaSurvey,
    "code": answers.Code, "driver": answers.Driver, "compute": answers.Compute, "plain": answers.Plain, "script": answers.ScriptRun,
}  # fmt: skip
All = msgspec.defstruct("All", list(KINDS.items()))
SITE = "/opt/lib/python3.11/site-packages"
PLACE = {"path": "/usr/lib/libcudnn.so.9", "real": "/usr/lib/libcudnn.so.9.1.0", "lost": [["libz.so.1", "libcudnn.so.9"]], "nv": None}  # fmt: skip
OWNER = {"name": "torch", "version": "2.5.1+cu124", "folder": SITE}
ANSWERS: dict[str, Any] = {
    "static": {
        "python": "3.11.2", "executable": "/usr/bin/python3", "prefixes": ["/usr"], "path": [SITE], "glibc": "2.36",
        "user_site": {"enabled": False, "path": "/root/.local"}, "environment": {"HOME": "/root", "CUDA_VISIBLE_DEVICES": "0,1"},
        "missing_folders": ["/opt/gone"], "preload_missing": [], "files_missing": {"SSL_CERT_FILE": "/etc/x"},
        "owners": {"torch": [OWNER], "nvidia.cudnn": [{**OWNER, "name": "nvidia-cudnn-cu12", "version": "9.1.0.70"}]},
        "files": {"torch": f"{SITE}/torch/__init__.py"}, "imports": {"six": ["six"]},
        "builds": {"torch": {"cuda": "12.4", "cudnn": "9.1", "is_cuda": True, "arches": ["sm_80", "compute_90"]}},
        "verified": {"torch": {"files": 4, "hashed": 2, "sized": 2, "changed": ["a"], "missing": ["b"], "changed_count": 1, "missing_count": 1}},
        "lost_records": [], "for_user": {"cv2": ["a"]}, "closed": ["b"],
        "overlaps": [{"dists": ["opencv-python", "opencv-python-headless"], "files": 3, "of": 4, "different": 1, "example": "cv2/a.py", "lost": []}],
        "dists": [{**OWNER, "record": "0" * 64}, {"name": "numpy", "version": "1.26.4", "folder": SITE, "shadowed": True}],
        "requires": {"torch": ["numpy>=1.20; python_version < '3.12'", "nvidia-cudnn-cu12==9.1.0.70"]},
    },
    "libraries": {
        "folders": [SITE], "objects": 3, "foreign": 0, "damaged": [["a.so", "is cut"]], "damaged_count": 1,
        "missing": {"libx.so.1": ["a.so"]}, "outdated": {"libc.so.6": {"GLIBC_2.38": ["b.so"]}}, "preloaded": {"libtcmalloc.so": ["a"]},
        "wanted": {"torch": {"libcudnn.so.9": PLACE, "libcublas.so.12": {}}}, "copies": {"libcudart.so.*": ["/a/libcudart.so.12", "/b/libcudart.so.11.0"]},
        "library_path": ["/usr/local/cuda/lib64"], "tools": {"ptxas": ["/usr/bin/ptxas"], "gcc": []}, "needed_by": {"a.so": ["b.so"]},
        "idle": ["c.so"], "other_pythons": ["d.so"], "cudnn": {"/usr/lib/libcudnn.so.9": "9.1.0"},
        "lost_symbols": [["a.so", "_Z1fv", "torch"]],
    },
    "imports": {
        "modules": {
            "torch": {"ok": True, "seconds": 0.1, "version": "2.5.1+cu124", "file": f"{SITE}/torch/__init__.py"},
            "six": {"ok": False, "error": "No module named 'six'", "kind": "ModuleNotFoundError", "blame": ["torch"], "advice": "six", "used": True, "taking": "x", "noise": ["w"]},
        },
        "entries": {"torch's cuDNN": {"ok": False, "error": "x", "note": "y"}}, "absent": ["idna"],
    },
    "conda": {
        "prefix": "/opt/conda", "packages": [{"name": "a", "version": "1", "build": "0", "channel": "forge", "flags": ["x"]}], "lost": [["a", "b"]], "lost_count": 1,
        "other_python": [["a", "b", "3.11"]], "runtimes": ["libgomp.so.1"], "before": {"/usr/lib": ["a"]}, "outside": ["b"], "missing": [["c", "d"]],
        "overlaps": [{"dist": "six", "version": "1", "package": "a", "files": 2, "changed": 1, "example": "x"}],
    },
    "code": {"files": [{"path": "torch/lib/a.so", "regions": [{"count": 2, "sass": [80, 90], "ptx": [90], "exact": [90]}]}], "unread": ["b"], "bytes": 9, "seconds": 0.1},
    "driver": {
        "cuda": {"loaded": True, "path": "/usr/lib/libcuda.so.1", "init": 0, "cuda": "12.2", "count": 2, "devices": [{"index": 0, "name": "A100", "capability": [8, 0], "memory": 1 << 36}, {"index": 1, "code": 3}]},
        "nvml": {"loaded": True, "init": 0, "driver": "535.129.03", "count": 1, "mig": [None, True]}, "environment": {"NVIDIA_VISIBLE_DEVICES": "all"},
    },
    "compute": {
        "version": "2.5.1", "devices": ["A100"], "results": [{"index": 0, "device": "cuda:0", "error": 1e-7, "seconds": 0.1, "losses": [1.0, 0.5], "bandwidth": 1e9, "repeats": 3}, {"index": 0, "task": "tf32", "failed": "x"}],
        "notes": ["n"], "is_cuda": True, "arches": ["sm_80"], "loaded": {"libcudnn": ["/usr/lib/libcudnn.so.9"]},
    },
    "plain": {"home": "/tmp/h", "modules": ["envbuild_poison_path"], "variables": ["PYTHONPATH"]},
    "script": {"code": 1, "last_line": "x", "last_lines": ["x", "y"]},
}  # fmt: skip
EXPECTED = replace(
    derive_expected(CheckBasis(recipe=make_recipe(framework="torch==2.5.*"), level="full")),
    direct=("six", "torch"),
    locked={"six": "1.16.0", "torch": "2.5.1+cu124"},
    conda={"a": "1 0"},
    conda_prefix="/opt/conda",
    wheels=frozenset({"torch"}),
    records={"torch": "1" * 64},
    needed={"idna": "train.py"},
)


def judge(path: Path) -> None:
    """Judge an image by such answers, and show the report in every form."""
    try:
        data = msgspec.json.decode(path.read_bytes(), type=All)
    except UNREADABLE as error:
        raise UsageError(str(error)) from error  # as read_answer takes it: "probe output" below
    found: dict[str, Any] = {name: answers.Answer(data=getattr(data, name)) for name in KINDS}
    evidence = Evidence(expected=EXPECTED, gpu=True, **found)
    frameworks = frameworks_to_check(evidence)
    evidence = replace(
        evidence,
        frameworks=frameworks,
        framework=next(iter(frameworks), None),
        computes={one.name: found["compute"] for one in frameworks},
    )
    findings = run_checks(evidence)
    show(Report(image="a.sif", digest="sha256:0", verdict="failed", findings=findings, when="x"))


def show(report: Report) -> None:
    to_json(report)
    sanitize_text(format_report(report, columns=60))
    format_page(report)


REPORT = msgspec.json.encode(
    {
        "image": "a.sif",
        "digest": "sha256:0",
        "verdict": "failed",
        "findings": [
            {
                "check": "start",
                "title": "the image starts",
                "outcome": "failed",
                "reason": "Python 3.11",
                "hint": "a\nb",
                "evidence": {"missing": ["a"], "b": {"c": 1.5}},
                "seconds": 0.5,
            }
        ],
        "when": "2026-11-26T00:00:00+00:00",
        "gpu": ["A100"],
        "driver": "535",
        "target": "a",
    }
)


def read_report(path: Path) -> None:
    with contextlib.suppress(*UNREADABLE):
        show(msgspec.json.decode(path.read_bytes(), type=Report))


def probe_output() -> bytes:
    said = f"warning\n{BEGIN}{json.dumps(ANSWERS['static'])}{END}\n"
    part = json.dumps({"code": 0, "stdout": said, "stderr": "", "seconds": 1.0, "timed_out": False})
    mark = "=====envbuild-part static"
    return f"{mark} . x\n{mark} + {part[:400]}\n{mark} . {part[400:]}\nnoise\n".encode()


def read_probe_output(path: Path) -> None:
    text = text_of(path)
    whole = Result(argv=("a",), code=1, stdout=text, stderr=text, seconds=1.0)
    request = static_request(EXPECTED)
    ProbeResults(whole, 60).answer(request, answers.Static)
    ProbeResults(replace(whole, stdout=f"{BEGIN}{text}{END}"), 60).answer(request, answers.Static)


CACHE = b"glibc-ld.so.cache1.1" + struct.pack("=II20x", 2, 40) + struct.pack("=iIIIQ", 1, 96, 106, 0, 0) * 2  # fmt: skip
CACHE += b"libz.so.1\0/lib/libz.so.1\0"


def read_loaders_cache(path: Path) -> None:
    read: Any = read_cache  # a probe is not annotated
    read(str(path))


# --- what schedulers say

SLURM = (
    "77|RUNNING|None|n3\n77_1|PENDING|QOSMaxJobsPerUserLimit|\n77|FAILED|1:0|None|n3\n"
    "JobId=77 JobState=FAILED Reason=NonZeroExitCode ExitCode=1:9 NodeList=n3\n"
    "gpu*|1-00:00:00|gpu:a100:4(S:0-1)|3\nMaxArraySize            = 1001\nSubmitted batch job 77\n"
)
JOBS = '{"Jobs": {"77.s": {"job_state": "F", "comment": "x", "Exit_status": 271, "exec_host": "n3/0", "resources_used": {"a": 1}}}}'
PBS = (
    "Job Id: 77.s\n    job_state = F\n    Exit_status = 1\n    comment = Not Running: Can Never Run\n\tx\n    exec_host = n3/0*2\n"
    "Queue: workq\n    queue_type = Execution\n    resources_max.walltime = 24:00:00\n    resources_max.nodect = 4\n"
    "    default_queue = workq\n    max_array_size = 10000\n    resources_available.ngpus = 4\n77.s\n"
)
GRID_ENGINE = (
    "job-ID  prior   name       user         state submit/start at     queue\n-----\n     77 0.55500 a  u  Eqw   11/26/2026 03:00:00   1\n"
    "==============\njobnumber    77\ntaskid       undefined\nfailed       100 : assumedly after job\nexit_status  137\nhostname  n3\n"
    "error reason    1:          11/26/2026 [0:1]: x\nscheduling info:            queue instance cannot run\n"
    "gpu  gpu  INT  <=  YES  YES  0  0\nh_vmem  h_vmem  MEMORY  <=  YES  YES  0  0\nsmp\nall.q\nh_rt   24:00:00\nmax_aj_tasks   75000\n"
    'Your job 77 ("a") has been submitted\n'
)  # fmt: skip


def read_scheduler(path: Path) -> None:
    text = text_of(path)
    result = Result(argv=("a",), code=0, stdout=text, stderr=text, seconds=0.0)
    for name, scheduler in SCHEDULERS.items():
        if name != "local":
            scheduler.site_sections(lambda *_: text)
            why = scheduler.questions("77")[0].why
            for question in (*scheduler.questions("77"), *([why] if why else [])):
                question.read(result, "77")
            with contextlib.suppress(EnvbuildError):
                scheduler.read_id(result)
    facts, gpus = probed_sections(text)
    with_facts(text, facts, gpus)
    parse_quota(text, ("/dev/sda1", "/home"))


PROBED = (
    "runtime=apptainer version 1.4.0\nglibc=2.36\narchitecture=x86_64\ngpu=535.129.03, NVIDIA A100, 8.0, 81920 MiB\n"
    "/dev/sda1  1000* 2000 3000 6days 10 20 30 none\n[host]\na = 1\n[[gpu]]\nb = 2\n"
)

# --- what a copied folder holds

RECORD = {
    "id": "77", "site": "plai", "name": "a", "script": ".envbuild/jobs/a.sh", "log": "logs/{id}.{task}.log",
    "receipt": ".envbuild/jobs/a.{id}.{task}.json", "submitted": "2026-11-26T03:00:00Z", "tasks": [1, 2], "purpose": "command",
}  # fmt: skip
RECEIPT = {
    "job": "77", "name": "a", "code": 1, "node": "n3", "started": "2026-11-26T03:00:00Z", "ended": "2026-11-26T04:00:00Z",
    "signal": "TERM", "gpus": ["A100"], "reason": "x", "runs": 2,
    "use": {"seconds": 9.5, "walltime": 60.0, "cores": 1.5, "cores_asked": 2.0, "memory": 1 << 30, "memory_asked": 2.0**31, "gpus_asked": 1.0,
            "gpus_used": 1, "gpu_busy": 50.5, "gpu_memory": 1 << 30, "gpu_memory_total": 1 << 34, "advice": "x"},
}  # fmt: skip


def read_records(path: Path) -> None:
    folder = path.with_name("copied")
    jobs = folder / ".envbuild/jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    (jobs / "a.json").write_bytes(path.read_bytes())
    environment = {"HOME": str(folder), "ENVBUILD_STORE": str(folder / "store")}
    load_own_records(load_settings(environment, folder))
    for record in load_records(folder):
        assert isinstance(record, Record)
        log_files(record, folder)


def read_receipt_file(path: Path) -> None:
    receipt = read_receipt(path)
    values = _read_values(path)
    task = TaskResult(
        job="77", number=1, parameters={}, state="failed", receipt=receipt, values=values
    )
    json.dumps(result_row(task))
    if receipt is not None:
        _ended((receipt,), "x")


def in_folder(name: str, read: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what reads a folder that has an input as its file of this name."""

    def read_folder(path: Path) -> None:
        folder = path.with_name("folder")
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(path.read_bytes())
        read(folder)

    return read_folder


def survey(folder: Path) -> None:
    survey_project(folder)
    find_uses(folder, attributes=True)


# --- lists, settings, keys

STANZAS = (
    "Package: six\nVersion: 1-1\nArchitecture: amd64\nSize: 9\nFilename: pool/s/six.deb\nSHA256: " + "0" * 64 + "\nProvides: a (= 1), b\n"
    "Priority: required\nEssential: yes\nDepends: c\n\nPackage: bb\nVersion: 2\nArchitecture: all\nSize: 9\nFilename: pool/b.deb\nSHA256: " + "1" * 64 + "\n"
)  # fmt: skip


def read_packages(path: Path) -> None:
    index = DebianIndex.parse(text_of(path))
    assert isinstance(index.required | index.virtual, set)
    for name, stanzas in index.stanzas.items():
        for stanza in stanzas:
            version, architecture = (field_of(stanza, key) for key in ("Version", "Architecture"))
            index.locked(name, version or "", architecture or "", "system")


def keystores(_: Path) -> list[bytes]:
    body = MAGIC + struct.pack(">IIH", 1, 2, 1) + b"a" + struct.pack(">QH", 9, 5) + b"X.509"
    return [body + struct.pack(">I", 3) + b"abc"]


def read_login(path: Path) -> None:
    environment = {"REGISTRY_AUTH_FILE": str(path), "NETRC": str(path), "HOME": str(path.parent)}
    settings = load_settings(environment, path.parent)
    helper = ScriptedRunner({"docker-credential-": (0, text_of(path), "")})
    find_credentials("x.invalid", context_for(settings, helper))
    read_netrc(settings)


LOGIN = {"auths": {"x.invalid": {"auth": base64.b64encode(b"ada:secret").decode()}}, "credHelpers": {"y": "z"}}  # fmt: skip
KEY = 'ada@x.invalid namespaces="envbuild" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5vQ7\n# x\n'


def read_keys(path: Path) -> None:
    read_signers(path)
    list(_pinned_keys(path))


def read_private(path: Path) -> None:
    path.chmod(0o600)
    read_env_file(path)


def read_values(path: Path) -> None:
    """Read what tables and grids of jobs are made from."""
    with contextlib.suppress(UsageError):
        read_table(path)
    read_grid(text_of(path))


def given(*seeds: str | bytes) -> Callable[[Path], list[bytes]]:
    return lambda _: [seed.encode() if isinstance(seed, str) else seed for seed in seeds]


ANSWER_PARSERS = {
    "answers of probes": Parser(seeds=given(json.dumps(ANSWERS)), read=judge),
    "probe output": Parser(seeds=lambda _: [probe_output()], read=read_probe_output),
    "report": Parser(seeds=given(REPORT), read=read_report),
    "loader's cache": Parser(seeds=given(CACHE), read=read_loaders_cache),
    "scheduler": Parser(seeds=given(SLURM, JOBS, PBS, GRID_ENGINE, PROBED), read=read_scheduler),
    "job record": Parser(seeds=given(json.dumps(RECORD)), read=read_records),
    "receipt": Parser(seeds=given(json.dumps(RECEIPT), '{"loss": 0.5}'), read=read_receipt_file),
    "packages of Debian": Parser(seeds=given(STANZAS), read=read_packages),
    "release file": Parser(
        seeds=given("Suite: stable\nDate: Sat, 10 Jan 2026 10:00:00 UTC\n"), read=_release_date
    ),
    "keystore": Parser(
        seeds=keystores,
        read=lambda path: with_time(path.read_bytes(), 9),
        mend=lambda data: data + _seal(data),
    ),
    "pip's settings": Parser(
        seeds=given("[global]\nindex-url = https://x.invalid/simple\n"),
        read=lambda path: read_pip_option(path, "index-url"),
    ),
    "logins": Parser(
        seeds=given(json.dumps(LOGIN), "machine x.invalid login a password b\n"), read=read_login
    ),
    "recipe of a shelf": Parser(
        seeds=given('[recipe]\nname = "a"\n[base]\nimage = "docker://python:3.11"\n[python]\ndependencies = ["six>=1; python_version < \'4\'"]\n[conda]\ndependencies = ["a::b >=1"]\n'),
        read=lambda path: refuse_recipe(text_of(path), "a"),
    ),
    "signers": Parser(seeds=given(KEY), read=read_keys),
    "environment file": Parser(seeds=given("A=b\nexport C='d'\n"), read=read_private),
    "table": Parser(seeds=given("lr=0.1,0.2"), read=read_values),
    "reference": Parser(
        seeds=given("docker://x.invalid:5000/a/b:1@sha256:" + "0" * 64, "oci-archive:a.tar"),
        read=lambda path: parse_reference(text_of(path)),
    ),
    "labels": Parser(seeds=given('{"a": "b"}'), read=lambda path: parse_labels(text_of(path))),
    "settings": Parser(seeds=given('[indexes]\ndefault = "https://x.invalid"\n'), read=read_settings_file),
    "facts file": Parser(seeds=lambda _: [msgspec.json.encode(read_probe(output(), image="image"))], read=load_facts),
    "code of a project": Parser(
        seeds=given("import numpy as np\nimport torch\nx = np.float(1)\ntorch.compile(x)\nfrom six import moves\n"),
        read=in_folder("train.py", survey),
    ),
    "project": Parser(
        seeds=given(PROJECT + "[project]\nname='a'\nversion='1'\ndependencies=['six']\n[project.scripts]\nx='a:b'\n"),
        read=in_folder("pyproject.toml", read_project),
    ),
    "old project": Parser(seeds=given(SETUP), read=in_folder("setup.py", read_project)),
    "configured project": Parser(seeds=given(CONFIGURATION), read=in_folder("setup.cfg", read_project)),
}  # fmt: skip
