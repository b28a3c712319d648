"""The checks, in the order in which they are told: what each needs, and what checks it."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.check.checks import companions, conda, environment, imports, libraries, packages
from envbuild.check.checks.frameworks import for_framework, join_verdicts
from envbuild.check.checks.gpu import compilers, compute, cuda_match, devices, target
from envbuild.check.evidence import Evidence, Verdict, failed, passed, skipped
from envbuild.check.expected import Expected
from envbuild.check.model import Finding
from envbuild.names import Texts
from envbuild.records import frozen_record

CheckFunction = Callable[[Evidence], Verdict]


@frozen_record
class Check:
    """One check.

    ``needs`` are the answers (fields of Evidence) it cannot do without; ``asked`` says for which
    expectations it is made at all; ``gpu`` that it needs a GPU; ``each`` that it is made for every
    framework.
    """

    name: str
    title: str
    run: CheckFunction
    needs: Texts = ("static",)
    asked: Callable[[Expected], bool] = lambda _: True
    gpu: bool = False
    each: bool = False


def check_start(evidence: Evidence) -> Verdict:
    """Check whether the image starts and has a Python."""
    found = evidence.installed
    if evidence.expected.no_python:
        return passed("no Python in it; looked at with this machine's")
    return passed(
        f"Python {found.python} ({found.executable}), glibc {found.glibc}", python=found.python
    )


def has_lock(expected: Expected) -> bool:
    """Tell whether a lock says what should be there."""
    return bool(expected.locked)


def has_conda(expected: Expected) -> bool:
    """Tell whether there is a conda environment, by the lock or in an image on its own."""
    return expected.conda_prefix is not None


def has_target_gpu(expected: Expected) -> bool:
    """Tell whether a node's GPU was named."""
    return expected.target is not None and expected.target.capability is not None


def has_target_driver(expected: Expected) -> bool:
    """Tell whether a node's driver was named."""
    return expected.target is not None and expected.target.driver is not None


def has_target_glibc(expected: Expected) -> bool:
    """Tell whether a node's C library was named."""
    return expected.target is not None and expected.target.glibc is not None


def has_project(expected: Expected) -> bool:
    """Tell whether the user's own Python is at hand."""
    return expected.project is not None


def has_script(expected: Expected) -> bool:
    """Tell whether the recipe has a check of its own."""
    return expected.script is not None


def is_deep(expected: Expected) -> bool:
    """Tell whether more than the quick level was asked for."""
    return expected.level != "quick"


def is_soak(expected: Expected) -> bool:
    """Tell whether the GPU should be kept busy for long."""
    return expected.level == "soak"


CHECKS: tuple[Check, ...] = (
    Check(name="start", title="the image starts", run=check_start),
    Check(
        name="framework-version", each=True, title="right framework", run=packages.framework_version
    ),
    Check(name="one-framework", each=True, title="only one of it", run=packages.one_framework),
    Check(name="exclusive", title="no packages over each other", run=packages.check_exclusive),
    Check(name="base-files", title="files unchanged", run=packages.base_files),
    Check(
        name="companions",
        each=True,
        title="packages that go with it",
        run=companions.check_companions,
    ),
    Check(
        name="locked-versions",
        title="packages as locked",
        run=packages.locked_versions,
        asked=has_lock,
    ),
    Check(
        name="direct-imports",
        title="direct dependencies import",
        run=imports.direct_imports,
        needs=("static", "imports"),
    ),
    Check(
        name="project-imports",
        title="what the project imports",
        run=imports.project_imports,
        needs=("static", "imports"),
        asked=has_project,
    ),
    Check(
        name="entry-points",
        title="what opens at run time",
        run=imports.entry_points,
        needs=("static", "imports"),
    ),
    Check(
        name="shared-libraries",
        title="shared libraries found",
        run=libraries.shared_libraries,
        needs=("static", "libraries"),
    ),
    *(
        Check(name=name, title=title, run=run, needs=("static", "conda"), asked=has_conda)
        for name, title, run in (
            ("conda-packages", "conda's packages", conda.conda_packages),
            ("conda-owners", "pip and conda apart", conda.conda_owners),
            ("conda-libraries", "one OpenMP, one BLAS", conda.conda_libraries),
        )
    ),
    Check(
        name="cuda-match",
        each=True,
        title="CUDA it was built for",
        run=cuda_match.cuda_match,
        needs=("static", "libraries"),
    ),
    Check(
        name="compiler-tools",
        each=True,
        title="tools for compiled code",
        run=compilers.compiler_tools,
        needs=("static", "libraries"),
    ),
    Check(
        name="target-architecture",
        each=True,
        title="code for the node's GPU",
        run=target.target_architecture,
        needs=("static", "code"),
        asked=has_target_gpu,
    ),
    Check(
        name="target-driver",
        each=True,
        title="driver of the node",
        run=target.target_driver,
        needs=("static", "code"),
        asked=has_target_driver,
    ),
    Check(
        name="target-glibc",
        title="C library of the node",
        run=target.target_glibc,
        asked=has_target_glibc,
    ),
    Check(name="user-site-off", title="user packages stay out", run=environment.user_site_off),
    Check(
        name="plain-exec",
        title="the caller stays out",
        run=environment.plain_exec,
        needs=("static", "plain"),
    ),
    Check(name="leaks", title="clean environment", run=environment.check_leaks),
    Check(name="gpus-left", title="GPUs left to the job", run=environment.gpus_left),
    Check(name="readable", title="files for every user", run=environment.check_readable),
    Check(
        name="sources",
        title="the project's own Python",
        run=packages.own_sources,
        asked=has_project,
    ),
    Check(
        name="script",
        title="the recipe's own check",
        run=packages.own_script,
        needs=("static", "script"),
        asked=has_script,
    ),
    Check(
        name="driver",
        title="GPU driver",
        run=devices.driver_works,
        needs=("static", "driver", "conda"),
        gpu=True,
    ),
    Check(
        name="devices",
        title="GPUs",
        run=devices.check_devices,
        needs=("static", "driver"),
        gpu=True,
    ),
    Check(
        name="architecture",
        each=True,
        title="code for these GPUs",
        run=devices.check_architecture,
        needs=("static", "driver"),
        gpu=True,
    ),
    Check(
        name="compute",
        each=True,
        title="computes on the GPU",
        run=devices.check_compute,
        needs=("static", "driver", "compute"),
        gpu=True,
    ),
    *(
        Check(
            name=name,
            title=title,
            run=run,
            needs=("static", "driver", "compute"),
            asked=asked,
            gpu=True,
            each=True,
        )
        for name, title, run, asked in (
            ("precision", "tf32, fp16, bf16", compute.check_precision, is_deep),
            ("convolution", "convolution", compute.check_convolution, is_deep),
            ("training", "a training step", compute.check_training, is_deep),
            ("compiled", "compiled code", compute.check_compiled, is_deep),
            ("seen-by-driver", "the driver sees it", compute.seen_by_driver, is_deep),
            ("one-prefix", "one set of libraries", compute.one_prefix, is_deep),
            ("speed", "faster than the CPU", compute.check_speed, is_deep),
            ("collective", "GPUs among each other", compute.check_collective, is_deep),
            ("endurance", "right all the time", compute.check_endurance, is_soak),
        )
    ),
)

NO_GPU = "this machine has no NVIDIA driver"
NO_GPU_HINT = "check on a node with a GPU: envbuild check IMAGE --require-gpu"


def run_checks(evidence: Evidence) -> tuple[Finding, ...]:
    """Run every check that the expectations ask for.

    The time of a probe counts for the first check that used it.
    """
    told: set[str] = set()
    findings = []
    for check in CHECKS:
        if not check.asked(evidence.expected):
            continue
        verdict = _kept_back(check, evidence) or _verdict(check, evidence)
        answers = {need: getattr(evidence, need) for need in check.needs if need not in told}
        told |= set(answers)
        findings.append(
            Finding(
                check=check.name,
                title=check.title,
                outcome=verdict.outcome,
                reason=verdict.reason,
                hint=verdict.hint,
                evidence=verdict.evidence,
                seconds=round(
                    sum(answer.seconds for answer in answers.values() if answer is not None), 3
                ),
            )
        )
    return tuple(findings)


def _verdict(check: Check, evidence: Evidence) -> Verdict:
    if not check.each or len(evidence.frameworks) < 2:
        return check.run(evidence)
    every = [for_framework(evidence, item) for item in evidence.frameworks]
    return join_verdicts([_kept_back(check, one) or check.run(one) for one in every])


def _kept_back(check: Check, evidence: Evidence) -> Verdict | None:
    """Return what is said instead of a judgement: no GPU, no started image, or no answer."""
    if check.gpu and not evidence.gpu:
        return skipped(NO_GPU, NO_GPU_HINT)
    started = evidence.static is not None and evidence.static.data is not None
    if check.name != "start" and not started:
        return skipped("the image did not start")
    if "compute" in check.needs:
        if evidence.framework is None:
            return skipped("no known GPU framework is installed")
        if evidence.framework.probe is None:
            return skipped(f"envbuild has no GPU test of {evidence.framework.name}")
    for need in check.needs:
        answer = getattr(evidence, need)
        if answer is not None and answer.data is None:
            noise = {"output": list(answer.noise)} if answer.noise else {}
            return failed(answer.fault, answer.hint or _hint(check), **noise)
    return None


def _hint(check: Check) -> str:
    if check.name == "start":
        return "look at it by hand: envbuild exec IMAGE -- python3 --version"
    return "the last lines of its output are in the evidence: envbuild check --json"
