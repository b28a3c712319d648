"""Checks of the driver, the GPUs and what was computed on them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from typing import TypeAlias

from msgspec import structs

from envbuild.check.answers import CodeFile, Computed, Device
from envbuild.check.checks.gpu.toolkit import toolkit_of, toolkit_of_conda
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed, skipped
from envbuild.data import lookup
from envbuild.data.tables import load_cuda
from envbuild.names import Numbers, Texts
from envbuild.runtime import DRIVER_LIBRARIES
from envbuild.store.units import listing

TOLERANCE = 1e-3
"""Relative error (Frobenius norm) up to which a float32 product of 1024 x 1024 counts as right.

Plain float32 comes to about 1e-6 and TensorFloat-32, where it cannot be switched off, to about
3e-4. """
TELLING = re.compile(
    r"Could not load dynamic library|Cannot dlopen|Skipping registering|failed call to cuInit|no kernel image|"
    r"CUDA_ERROR|driver version is insufficient|driver on your system is too old|not compiled with CUDA|back to cpu",
    re.IGNORECASE,
)
"""Lines of frameworks that tell why they go on without the GPU."""
NO_DRIVER = "the driver shows no GPU: see the findings on the driver and the GPUs above"


def driver_works(evidence: Evidence) -> Verdict:
    """Check whether the container's driver is the host's, answers, and suits the framework."""
    answer = given(evidence.driver)
    cuda, version = answer.cuda, answer.nvml.driver
    shown = {"path": cuda.path, "init": cuda.init, "driver": version, "cuda": cuda.cuda}
    if cuda.laid:
        return failed(
            f"the driver's files are in {DRIVER_LIBRARIES}, and the loader does not look there: the image has no "
            "/.singularity.d/env/99-runtimevars.sh, or changes LD_LIBRARY_PATH after it",
            "make the image again with envbuild make or apptainer build; until then: "
            f"apptainer exec --nv IMAGE env LD_LIBRARY_PATH={DRIVER_LIBRARIES} CMD",
            **shown,
        )
    if not cuda.loaded:
        return failed(
            f"the container has no libcuda.so.1, though this machine has a driver: {cuda.error}",
            "the runtime takes the driver's files from the loader's cache: root can refresh it with ldconfig",
            **shown,
        )
    if cuda.path and "/stubs/" in cuda.path:
        return failed(
            f"{cuda.path} was loaded, a stub that is only for linking",
            "take folders named stubs out of LD_LIBRARY_PATH",
            **shown,
        )
    if cuda.init:
        known = next((row for row in load_cuda().init if row.code == cuda.init), None)
        what = f"{known.name}: {known.cause}" if known else "an unknown code"
        cure = known.cure if known else "look the code up under CUresult in NVIDIA's driver API"
        return failed(f"cuInit answers {cuda.init}, {what}", cure, **shown)
    toolkit = toolkit_of(evidence) or toolkit_of_conda(evidence)
    floor = lookup.oldest_driver(toolkit) if toolkit else None
    if version and floor and lookup.numbers(version) < lookup.numbers(floor):
        return failed(
            f"driver {version} is too old for CUDA {toolkit}, which needs {floor} or newer",
            "take packages for an older CUDA, or a node with a newer driver",
            needed=floor,
            **shown,
        )
    supports = f", supports CUDA {cuda.cuda}" if cuda.cuda else ""
    return passed(f"driver {version or 'of unknown version'}{supports}", **shown)


def check_devices(evidence: Evidence) -> Verdict:
    """Check whether the GPUs that were promised are there."""
    answer = given(evidence.driver)
    found = answer.cuda.devices
    shown = {"devices": [_described(device) for device in found], "mig": list(answer.nvml.mig)}
    if not answer.cuda.loaded or answer.cuda.init:
        return skipped(NO_DRIVER)
    if not found:
        return failed(
            "the driver shows no GPU to the container",
            "ask for a GPU in the job (for Slurm: --gres=gpu:1), and look at CUDA_VISIBLE_DEVICES",
            environment=answer.environment,
            **shown,
        )
    asked = answer.environment.get("CUDA_VISIBLE_DEVICES")
    promised = len([word for word in asked.split(",") if word.strip()]) if asked else None
    if promised is not None and promised != answer.cuda.count:
        return failed(
            f"CUDA_VISIBLE_DEVICES promises {promised} GPUs ({asked}); the driver shows {answer.cuda.count}",
            "use the numbers that nvidia-smi -L shows inside the job, or unset the variable",
            **shown,
        )
    return passed(listing([_described(device) for device in found], 8), **shown)


def check_architecture(evidence: Evidence) -> Verdict:
    """Check whether the framework has machine code, or portable code and a driver, for the GPUs."""
    found = given(evidence.driver).cuda.devices
    if evidence.framework is None or not found:
        return skipped("there is no framework or no GPU to compare")
    (sass, ptx, exact), source = code_of(evidence)
    if not sass and not ptx:
        return skipped(
            f"which GPUs this build of {evidence.framework.name} has code for is not known"
        )
    name = evidence.title
    shown = {"sass": list(sass), "ptx": list(ptx), "source": source}
    slow = []
    for device in found:
        how = lookup.runs_on(read_capability(device), sass, ptx, exact)
        if how is None:
            return failed(
                f"{name} has no code for {_described(device)}: "
                f"machine code for {format_capabilities(sass)}"
                + (
                    f", portable code for {format_capabilities(ptx)}"
                    if ptx
                    else ", no portable code"
                ),
                "take a release of it that was built for this GPU, or a node with another GPU",
                **shown,
            )
        if how == "ptx":
            slow.append(device)
    if slow and not _compiles(evidence):
        return failed(
            f"{name} has only portable code for {_described(slow[0])}, and the driver supports CUDA "
            f"{given(evidence.driver).cuda.cuda}, older than the {toolkit_of(evidence)} that it was made with",
            "take a node with a newer driver, or a release built for this GPU",
            **shown,
        )
    if slow:
        return passed(
            f"{name} has portable code for {_described(slow[0])}, which the driver compiles at first use "
            "(minutes, once)",
            **shown,
        )
    return passed(
        f"{name} has machine code for {listing(sorted({_described(device) for device in found}))}",
        **shown,
    )


def check_compute(evidence: Evidence) -> Verdict:
    """Check whether a matrix product was computed on every GPU and is right."""
    answer = given(evidence.compute)
    assert evidence.framework is not None  # noqa: S101  (the table asks for a framework's answer)
    name, seen = evidence.framework.name, driver_count(evidence)
    products = answer.of("product")
    shown = {
        "results": [result_shown(one) for one in products],
        "tolerance": TOLERANCE,
        "notes": list(answer.notes),
    }
    if seen == 0 and not answer.devices:
        return skipped(NO_DRIVER)
    if len(answer.devices) < seen:
        noise = evidence.compute.noise if evidence.compute else ()
        reasons = [line for line in (*answer.notes, *noise) if TELLING.search(line)]
        because = f"; it says: {reasons[-1]}" if reasons else ""
        return failed(
            f"{name} sees {len(answer.devices)} GPUs where the driver shows {seen}{because}",
            "look at the findings on CUDA and the driver above; without a fault there, run it alone: "
            "a process that was refused memory sees no GPU either",
            **shown,
        )
    for one in products:
        fault = fault_of(one, TOLERANCE)
        if fault:
            return failed(f"{name} on GPU {one.index}: {fault}", cure_of(one), **shown)
    worst = max(one.error or 0.0 for one in products)
    return passed(
        f"{name} computed a matrix product on {len(products)} GPU{'s' if len(products) > 1 else ''}; "
        f"relative error {worst:.1e} (up to {TOLERANCE:.0e} is right)",
        **shown,
    )


def driver_count(evidence: Evidence) -> int:
    """Return how many GPUs the driver shows; 0 where it did not answer."""
    answer = evidence.driver
    return answer.data.cuda.count if answer is not None and answer.data is not None else 0


def read_capability(device: Device) -> int:
    """Return a device's compute capability times ten."""
    return device.capability[0] * 10 + device.capability[1]


Capabilities: TypeAlias = "Numbers"
CodeOf: TypeAlias = "tuple[Capabilities, Capabilities, Capabilities]"
"""Capabilities (times ten) with machine code, portable code, and code for one GPU alone."""


def code_of(evidence: Evidence) -> tuple[CodeOf, str]:
    """Return the capabilities that the framework has code for, and who says so."""
    scanned = evidence.code.data if evidence.code else None
    own = (
        tuple(one for one in scanned.files if _of_framework(evidence, one.path)) if scanned else ()
    )
    if own:
        return (common_code(own), f"scan of {listing([one.path for one in own], 2)}")
    listed = evidence.compute.data.arches if evidence.compute and evidence.compute.data else ()
    if listed:
        code = (_arches(listed, "sm"), _arches(listed, "compute"), _arches(listed, "sm", "a"))
        return code, "torch.cuda.get_arch_list()"
    if evidence.built_for.arches:
        # in TensorFlow's list compute_80 stands for machine code and portable code of 8.0 (scan of
        # its 2.4.1 library)
        arches = evidence.built_for.arches
        portable = _arches(arches, "compute")
        machine = tuple(sorted({*_arches(arches, "sm"), *portable}))
        return (machine, portable, _arches(arches, "sm", "a")), "build_info.py"
    row = evidence.build
    return ((row.sass, row.ptx, ()), row.source) if row else (((), (), ()), "")


def common_code(files: tuple[CodeFile, ...]) -> CodeOf:
    """Return the capabilities (machine, portable, single-GPU) that half of the regions have.

    Regions without machine code count only where no other ones are: they are single kernels, and so
    are those for one GPU only (TensorFlow 2.15: 247 regions with machine code for 5.0 to 8.0, 362
    with portable code for 8.0 alone).
    """
    regions = list(chain.from_iterable(one.regions for one in files))
    with_machine_code = [region for region in regions if region.sass or region.exact]
    telling = with_machine_code or regions
    half = sum(region.count for region in telling) / 2
    sass: Counter[int] = Counter()
    ptx: Counter[int] = Counter()
    exact: Counter[int] = Counter()
    for region in telling:
        sass.update(dict.fromkeys(region.sass, region.count))
        ptx.update(dict.fromkeys(region.ptx, region.count))
        # on its own GPU code for it alone does as well as plain code of the same region
        exact.update(dict.fromkeys((*region.exact, *region.sass), region.count))
    return _at_least(sass, half), _at_least(ptx, half), _at_least(exact, half)


def _at_least(counts: Counter[int], half: float) -> Capabilities:
    return tuple(sorted(number for number, count in counts.items() if count >= half))


def _of_framework(evidence: Evidence, path: str) -> bool:
    return evidence.framework is not None and lookup.matches(path, evidence.framework.code)


def _arches(words: Texts, kind: str, end: str = "") -> Numbers:
    """Read "sm_80"; "sm_90a" runs on that very capability only and comes beside the plain one."""
    found = [re.fullmatch(rf"{kind}_(\d{{1,9}}){end}", word) for word in words]
    return tuple(sorted({int(match[1]) for match in found if match}))


def _compiles(evidence: Evidence) -> bool:
    supported, toolkit = given(evidence.driver).cuda.cuda, toolkit_of(evidence)
    return (
        supported is None
        or toolkit is None
        or lookup.numbers(supported)[:2] >= lookup.numbers(toolkit)[:2]
    )


def _described(device: Device) -> str:
    return f"{device.name} (capability {device.capability[0]}.{device.capability[1]})"


def format_capabilities(capabilities: Numbers) -> str:
    """Write capabilities (times ten) for people."""
    return ", ".join(f"{number // 10}.{number % 10}" for number in capabilities) or "none"


def result_shown(one: Computed) -> dict[str, object]:
    """Return what is told about one task in the evidence."""
    shown = {
        key: value for key, value in structs.asdict(one).items() if value not in (None, (), "")
    }
    return {"gpu": shown.pop("index"), **shown}


def fault_of(one: Computed, tolerance: float) -> str | None:
    """Say whether a result failed, is of another device, or wrong; None where nothing is."""
    if one.failed:
        return one.failed
    if not re.search(r"gpu|cuda", one.device, re.IGNORECASE):
        return f"the {one.task} was computed elsewhere ({one.device or 'nowhere'})"
    if one.error is None or not one.error <= tolerance:
        return f"the {one.task} is wrong: relative error {one.error}"
    return None


def cure_of(one: Computed) -> str:
    """Say what to do about a failed task."""
    text = one.failed or ""
    if "no kernel image" in text:
        return "this build has no code for the GPU; take a release of it that was built for it"
    if re.search(r"out of memory|OOM|RESOURCE_EXHAUSTED", text):
        return "another process holds the GPU's memory; ask for a GPU of your own in the job"
    if not text and one.error is not None:
        return "run it again; a GPU that computes wrongly is broken: tell the staff of the cluster"
    return "the whole message is in the evidence: envbuild check --json"
