"""Check an image: gather the evidence with probes, then judge it."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

from envbuild import __version__
from envbuild.check import plan
from envbuild.check.answers import (
    Answer,
    Code,
    Compute,
    CondaSurvey,
    Driver,
    Imports,
    LibrarySurvey,
    Plain,
    ScriptRun,
    Static,
)
from envbuild.check.checks.frameworks import frameworks_to_check
from envbuild.check.checks.gpu.devices import driver_count
from envbuild.check.checks.sources import survey_project
from envbuild.check.evidence import Evidence
from envbuild.check.expected import CheckBasis, Expected, asked_digest, derive_expected
from envbuild.check.model import Finding, Outcome, Report
from envbuild.check.probe_runner import Container, ProbeRunner
from envbuild.check.table import run_checks
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.formats.sif_reader import (
    CRYPT_MESSAGE,
    ENCRYPTED,
    image_digest,
    read_sif,
    require_base,
)
from envbuild.host import network_namespaces_work
from envbuild.host_python import HostPython, open_host_python
from envbuild.lock.digest import lock_digest
from envbuild.names import Texts, Variables
from envbuild.progress import Reporter, Stage
from envbuild.project.code.uses import Uses, find_uses
from envbuild.records import field, frozen_record, replace
from envbuild.store.layout import final_path


@frozen_record
class ImageFile:
    """The image that is checked.

    ``digest`` is its digest where it is known already, else ``digest_of`` works it out;
    ``recorded`` is the digest that make wrote down of this file.
    """

    path: Path
    digest: str | None = None
    recorded: str | None = None
    digest_of: Callable[[Path], str] = image_digest


@frozen_record
class CheckHost:
    """Where an image is checked.

    ``gpu`` overrides whether this machine has a driver; ``environment`` is that of the job, of
    which only the choice of GPUs is handed in.
    """

    runtime: Container
    gpu: bool | None = None
    require_gpu: bool = False
    environment: Variables = field(default_factory=dict)


def check_image(
    image: ImageFile, basis: CheckBasis, host: CheckHost, context: Context, stage: Stage
) -> Report:
    """Check an image and return all findings.

    Raises UsageError for what is no image, or none for this machine.
    """
    recipe, lock, report = basis.recipe, basis.lock, context.report
    expected = derive_expected(basis)
    present = gpu_present() if host.gpu is None else host.gpu
    network = recipe is not None and recipe.check.network
    if not (network or network_namespaces_work()):
        report.say(
            "this machine gives no network of its own: what the check runs can reach the real one"
        )
    plain = plan.plain_request()
    with (
        context.store.outside(context.settings.tmpdir) as home,
        _digest_beside(image) as known,
        ThreadPoolExecutor(1, "plain-exec") as pool,
        _python_for(expected, context) as host_python,
    ):
        inside = ProbeRunner(
            image.path,
            host.runtime,
            context.runner,
            gpu=present,
            environment=host.environment,
            network=network,
            host_python=host_python,
        )
        plainly = pool.submit(inside.ask_plainly, plain, Plain, home)
        evidence = replace(gather_evidence(expected, inside, report, stage), plain=plainly.result())
        digest = known.result()
    findings = (*run_checks(evidence), *as_built(image.recorded, digest))
    gpus, driver = _describe_driver(evidence)
    unseen = host.require_gpu and not present
    return Report(
        image=str(final_path(image.path)),
        digest=digest,
        verdict=verdict_of(findings, unseen=unseen),
        findings=findings,
        when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        level=basis.level,
        gpu=gpus,
        driver=driver,
        lock=lock_digest(lock) if lock else None,
        target=str(basis.target) if basis.target else None,
        asked=asked_digest(recipe, basis.script),
        envbuild=__version__,
    )


def _python_for(
    expected: Expected, context: Context
) -> contextlib.AbstractContextManager[HostPython | None]:
    """Return what gives an image a Python that has none of its own."""
    if not expected.no_python:
        return contextlib.nullcontext()
    return open_host_python(context)


def _describe_driver(evidence: Evidence) -> tuple[Texts, str | None]:
    """Return the names of the GPUs and the driver's version, where the driver was asked."""
    answer = evidence.driver.data if evidence.driver else None
    if answer is None:
        return (), None
    return tuple(device.name for device in answer.cuda.devices), answer.nvml.driver


@contextlib.contextmanager
def _digest_beside(image: ImageFile) -> Iterator[Future[str]]:
    """Work the image digest out while the probes run.

    Reading gigabytes takes about as long as they do.
    Raises UsageError at once for a file that is no image, or one that cannot run here.
    """
    if image.digest is None:
        require_runnable(image.path)
    with ThreadPoolExecutor(1, "image-digest") as pool:
        yield pool.submit(lambda: image.digest or image.digest_of(image.path))


def as_built(recorded: str | None, digest: str) -> tuple[Finding, ...]:
    """Check whether a file is still what make built; nothing where nobody wrote that down."""
    if recorded is None:
        return ()
    title = "the file that make built"
    if recorded == digest:
        return (
            Finding(
                check="as-built", title=title, outcome="passed", reason=f"its digest is {digest}"
            ),
        )
    reason = f"it was changed or damaged since: its digest is {digest}, make built {recorded}"
    hint = "make it again: remove the file, then envbuild make; envbuild verify shows what is different"
    return (Finding(check="as-built", title=title, outcome="failed", reason=reason, hint=hint),)


def require_runnable(image: Path) -> None:
    """Raise UsageError unless an image is one for this machine that opens without a key."""
    sif = read_sif(image)
    sealed = sif.primary is not None and sif.primary.file_system == ENCRYPTED
    if sealed or any(item.data_type == CRYPT_MESSAGE for item in sif.objects):
        hint = "its key is not envbuild's to ask for: check it before apptainer build --encrypt"
        raise UsageError("is encrypted", where=image, hint=hint)
    require_base(sif, platform.machine())


def gpu_present(root: Path = Path("/")) -> bool:
    """Tell whether this machine has an NVIDIA driver, loaded or with its control device."""
    return (root / "dev/nvidiactl").exists() or (root / "proc/driver/nvidia/version").exists()


def verdict_of(findings: tuple[Finding, ...], *, unseen: bool = False) -> Outcome:
    """Return "failed" when any finding failed, else "skipped" or "passed".

    It is "skipped" where a required GPU is not here (``unseen``).
    So a login node without a GPU tells nothing against an image.
    """
    if any(finding.outcome == "failed" for finding in findings):
        return "failed"
    return "skipped" if unseen else "passed"


def gather_evidence(
    expected: Expected, inside: ProbeRunner, report: Reporter, stage: Stage
) -> Evidence:
    """Run the probes: those without GPU time side by side in one container, the script, the GPU's.

    Without a GPU the script runs beside the first ones; a GPU may be set to take one process at a
    time.
    """
    used = find_uses(expected.project, attributes=True) if expected.project else Uses()
    sources = survey_project(expected.project) if expected.project else None
    compiles = sources is not None and sources.inductor
    written = sources.written if sources else {}
    static = plan.static_request(expected)
    imports = plan.imports_request(
        expected,
        uses=used.names,
        needed=used.needed,
        gpu=inside.gpu,
        compiles=compiles,
        written=written,
    )
    libraries = plan.libraries_request()
    driver = plan.driver_request() if inside.gpu else None
    code = plan.code_request(expected, gpu=inside.gpu)
    conda = plan.conda_request(expected) if expected.conda_prefix is not None else None
    asked = (libraries, static, conda, code, driver)
    files = [one for one in asked if one is not None]
    stage.expect(1 + len(files))
    run_script = _script_run(expected.script, inside, report, stage)

    def count_probe(name: str) -> None:
        report.detail(f"{name.replace('_', ' ')} done")
        stage.advance()

    with ThreadPoolExecutor(1, "recipe-script") as pool:
        beside = pool.submit(run_script) if not inside.gpu else None
        visit = inside.ask((imports,), files, heard=count_probe)
    survey = visit.answer(conda, CondaSurvey) if conda else None
    # "" is an environment that the image may have; this one has none
    if expected.conda_prefix == "" and survey and survey.data and survey.data.prefix is None:
        expected = replace(expected, conda_prefix=None)
    evidence = Evidence(
        expected=expected,
        framework=expected.framework,
        static=visit.answer(static, Static),
        libraries=visit.answer(libraries, LibrarySurvey),
        imports=visit.answer(imports, Imports),
        conda=survey,
        code=visit.answer(code, Code) if code else None,
        driver=visit.answer(driver, Driver) if driver else None,
        sources=sources,
        uses=used,
        gpu=inside.gpu,
    )
    if evidence.static is None or evidence.static.data is None:
        return evidence
    evidence = _with_frameworks(evidence)
    evidence = replace(evidence, script=beside.result() if beside else run_script())
    return gather_gpu(evidence, inside, report, stage) if inside.gpu else evidence


def _with_frameworks(evidence: Evidence) -> Evidence:
    """Name the frameworks that the image holds; the first is the one that most checks judge."""
    frameworks = frameworks_to_check(evidence)
    return replace(evidence, frameworks=frameworks, framework=frameworks[0] if frameworks else None)


def _script_run(
    script: Path | None, inside: ProbeRunner, report: Reporter, stage: Stage
) -> Callable[[], Answer[ScriptRun] | None]:
    """Return what runs the recipe's own script, if it has one."""
    stage.expect(script is not None)

    def run() -> Answer[ScriptRun] | None:
        if script is None:
            return None
        report.detail(f"the recipe's {script.name}")
        answer = inside.run_script(script)
        stage.advance()
        return answer

    return run


def gather_gpu(evidence: Evidence, inside: ProbeRunner, report: Reporter, stage: Stage) -> Evidence:
    """Let every framework compute, each in its own process: it holds on to the GPU's memory."""
    answers = {}
    asked = [framework for framework in evidence.frameworks if framework.probe is not None]
    stage.expect(len(asked))
    for framework in asked:
        assert framework.probe is not None  # noqa: S101  (those without were left out)
        report.detail(f"{framework.name} on the GPU")
        request = plan.compute_request(
            framework.probe, evidence.expected.level, driver_count(evidence)
        )
        answers[framework.name] = inside.ask((request,)).answer(request, Compute)
        stage.advance()
    first = next(iter(answers.values()), None)
    return replace(evidence, compute=first, computes=answers)
