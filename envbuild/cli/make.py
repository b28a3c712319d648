"""``envbuild make``: from a recipe to a checked image."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.app.make import MakeRequest, MakeResult, make
from envbuild.build.model import BuildSpec
from envbuild.build.modes import MODES
from envbuild.check.model import Report
from envbuild.cli.context import host_builds
from envbuild.cli.options import (
    budget_option,
    choice_option,
    flag,
    path_option,
    recipe_argument,
    site_option,
)
from envbuild.cli.output import print_json, print_table, print_text
from envbuild.cli.terminal import human_seconds, short_path
from envbuild.context import Context
from envbuild.errors import HostError, UsageError
from envbuild.lock.cuda import cuda_of
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import PROOF_SECONDS
from envbuild.names import Texts
from envbuild.recipe.find import find_recipe
from envbuild.records import frozen_record
from envbuild.settings import Settings
from envbuild.store.hashing import short_digest
from envbuild.store.units import as_printable, count_noun, human_bytes
from envbuild.tools import find_runtime_program

if TYPE_CHECKING:
    from envbuild.app.sandbox import PackedSandbox
    from envbuild.build.assembly_plan import AssemblyPlan

LIKELY_SCRIPTS = ("train.py", "main.py", "run.py")
"""What people call the script that they start, the most usual name first."""
NO_SCRIPTS = {"setup.py", "conftest.py", "__init__.py"}


@click.command("make")
@recipe_argument
@path_option("-o --output", "The image file (default: ./NAME.sif).")
@choice_option("--mode", ("auto", *MODES), "How to build; auto is flat where possible.", "auto")
@path_option("--from-sandbox", "Make the image of a sandbox, and print what was changed.")
@path_option("--from-bundle", "Make the image of a bundle file, without a network.")
@click.option(
    "--prove/--no-proof",
    default=True,
    help="For a first lock: import each direct dependency; try other versions if that fails.",
)
@budget_option
@flag("--as-root", "For root: allow a stranger's code root's own rights where it needs them.")
@flag("--no-check", "Do not check the image.")
@flag("--require-gpu", "Fail if the GPU checks cannot run here.")
@site_option("--on", "Build in a job on a cluster (envbuild site list).")
@click.option("--account", help="With --on: the account, project or group that pays.")
@flag("--all every", "With --on: build each recipe of ./recipes, in a task of its own.")
@flag("--json as_json", "Print what was built and checked as JSON.")
@flag("--dry-run", "Print what would be downloaded and built, and stop.")
@host_builds
@click.pass_obj
def command(context: Context, /, **given: Any) -> None:
    """Build the image of a recipe from its lock, and check it.

    A recipe without a lock is locked first. If the recipe was changed after its lock, make stops
    and names the changed line. The image gets its name only when it is whole and has passed its
    check.
    """
    options = _MakeOptions(**given)
    _refuse_contradictions(options)
    if options.on is not None or options.every:
        _make_on_site(options, context)
    elif options.from_sandbox is not None:
        from envbuild.app.sandbox import pack_sandbox  # late: most makes start with a recipe

        packed = pack_sandbox(
            options.from_sandbox,
            options.output,
            context,
            check=not options.no_check,
            require_gpu=options.require_gpu,
            dry_run=options.dry_run,
        )
        _print_packed(packed, as_json=options.as_json)
    else:
        _make_here(options, context)


@frozen_record
class _MakeOptions:
    """What stands on the command line, by the names of the options above."""

    name: str | None
    output: Path | None
    mode: str
    from_sandbox: Path | None
    from_bundle: Path | None
    prove: bool
    budget: float | None
    as_root: bool
    no_check: bool
    require_gpu: bool
    on: str | None
    account: str | None
    every: bool
    as_json: bool
    dry_run: bool

    @property
    def words(self) -> Texts:
        """The options that a make on a node gets too."""
        flags = {
            "--no-proof": not self.prove,
            "--no-check": self.no_check,
            "--require-gpu": self.require_gpu,
            "--as-root": self.as_root,
        }
        output = ("-o", str(self.output)) if self.output else ()
        return ("--mode", self.mode, *output, *(flag for flag, given in flags.items() if given))


def _refuse_contradictions(options: _MakeOptions) -> None:
    """Raise UsageError for options that do not go together."""
    elsewhere = options.on is not None or options.every
    if options.from_bundle is not None and (options.name or elsewhere or options.from_sandbox):
        raise UsageError("a bundle holds one recipe and is built here", where="--from-bundle")
    if options.budget is not None and not options.prove:
        raise UsageError("--budget bounds a proof, and --no-proof leaves it out", where="--budget")
    here = (options.as_json, options.dry_run, options.from_sandbox, options.budget is not None)
    if elsewhere and any(here):
        what = "--json, --dry-run, --from-sandbox and --budget do not go with --on"
        raise UsageError(what, where="--on")


def _make_here(options: _MakeOptions, context: Context) -> None:
    request = MakeRequest(
        output=options.output,
        mode=options.mode,
        proof_seconds=(options.budget or PROOF_SECONDS) if options.prove else None,
        check=not options.no_check,
        require_gpu=options.require_gpu,
        as_root=options.as_root,
        dry_run=options.dry_run,
    )
    if options.from_bundle is None:
        result = make(options.name, request, context)
    else:
        from envbuild.app.bundle import make_from_bundle  # late: few makes have a bundle

        result = make_from_bundle(options.from_bundle, request, context)
    if not options.dry_run:
        _print_result(result, context, as_json=options.as_json)
    elif result.parts is not None:
        _print_plan(result.parts, context, as_json=options.as_json)
    elif options.as_json:
        print_json({"parts": []})


def _make_on_site(options: _MakeOptions, context: Context) -> None:
    """Build on a node of a cluster, and follow the job."""
    from envbuild.app.job.remote import require_built, submit_builds  # late: most makes build here
    from envbuild.cli.follow import follow_job  # late: most makes build here

    if options.on is None:
        what = "--all goes with --on: it is one job with a task per recipe"
        raise UsageError(what, where="--all", hint="--on SITE")
    names = _names_to_build(options, context.settings)
    record, site = submit_builds(options.on, names, options.words, context, account=options.account)
    follow_job(context, record, site)
    require_built(record, names, site, context)


def _names_to_build(options: _MakeOptions, settings: Settings) -> Texts:
    """Return the recipe that was named, or with ``--all`` those of ./recipes."""
    if not options.every:
        return (options.name or find_recipe(None, settings).recipe.name,)
    if options.name is not None:
        raise UsageError("--all and a name cannot be used together", where=options.name)
    names = tuple(sorted(path.stem for path in (settings.cwd / "recipes").glob("*.toml")))
    if not names:
        raise UsageError("there is no recipe in ./recipes", where="--all")
    if options.output is not None:
        raise UsageError("-o names one image, and --all makes several", where="-o")
    return names


def _print_plan(plan: AssemblyPlan, context: Context, *, as_json: bool) -> None:
    """Print what an image is put together from: a line a kind, and with -v every part."""
    if as_json:
        parts = [
            {"layer": part.layer, "kind": part.kind, "state": part.state, "what": part.subject}
            for part in plan.parts
        ]
        print_json({"parts": parts})
        return
    kinds = Counter((part.layer, part.kind, part.state) for part in plan.parts)
    print_table(("layer", "kind", "state", "parts"), [(*kind, kinds[kind]) for kind in kinds])
    if len(plan.parts) > len(kinds):
        context.report.say("the parts by name: with -v, or --json")
    for part in plan.parts:
        context.report.detail(f"{part.layer}  {part.kind}  {part.state}  {part.subject}")


def _print_result(result: MakeResult, context: Context, *, as_json: bool) -> None:
    """Print what was built, what was proved, where it is and how to run it."""
    if as_json:
        print_json(_result_facts(result))
    elif MODES[result.spec.mode].is_tree:
        _print_sandbox(result, context.runtime.name)
    else:
        _print_built(result)
        _print_run(result.spec, context.settings)


def _result_facts(result: MakeResult) -> dict[str, Any]:
    """Return what was built, for programs."""
    spec = result.spec
    lock = lock_digest(spec.lock)
    if MODES[spec.mode].is_tree:
        return {"sandbox": str(spec.target), "lock": lock}
    return {
        "image": str(spec.target),
        "size": spec.target.stat().st_size,
        "lock": lock,
        "seconds": round(result.seconds, 1),
        "report": result.report,
    }


def _print_built(result: MakeResult) -> None:
    target, lock = result.spec.target, result.spec.lock
    size = human_bytes(target.stat().st_size)
    print_text(f"\n{target.name}: {size} in {human_seconds(result.seconds)}")
    framework = lock.base.framework or "no framework"
    about = f"{framework}, {lock.python_title}, {lock.base.reference}"
    digest = short_digest(lock_digest(lock))
    print_text(f"  built    {about}; lock {digest}")
    for line in _proved_lines(result.report):
        print_text(f"  {line}")
    if MODES[result.spec.mode].is_layered:
        command = f"envbuild flatten {target.name}"
        print_text(f"  layered  for turns on this machine; to hand it on: {command}")
    where = short_path(str(target))
    print_text(f"  where    {where}")


def _print_run(spec: BuildSpec, settings: Settings) -> None:
    """Print how an image is run, with envbuild and without."""
    target, name = spec.target, spec.recipe.name
    if target.name != f"{name}.sif":
        name = short_path(str(target))
    script = example_script(settings.cwd)
    print_text(f"  run      envbuild exec {name} -- python {script}")
    runtime = name_runtime(settings)
    driver = "--nv " if cuda_of(spec.lock) else ""
    print_text(f"           {runtime} exec {driver}{target.name} python {script}")


def example_script(folder: Path) -> str:
    """Return the script of a project that people start, to show in a command."""
    own = sorted({path.name for path in folder.glob("*.py")} - NO_SCRIPTS)
    likely = [name for name in LIKELY_SCRIPTS if name in own]
    alone = own if len(own) == 1 else []
    return as_printable(shlex.quote(next(iter((*likely, *alone)), LIKELY_SCRIPTS[0])))


def name_runtime(settings: Settings) -> str:
    """Return what people type to start the container runtime of this machine."""
    try:
        return settings.runtime or find_runtime_program(settings).name
    except HostError:
        return "apptainer"


def _proved_lines(report: Report | None) -> list[str]:
    if report is None:
        return ["proved   nothing: the check was left out (envbuild check makes up for it)"]
    skipped: dict[str, list[str]] = {}
    for finding in report.findings:
        if finding.outcome == "skipped":
            skipped.setdefault(finding.reason, []).append(finding.check)
    lines = [f"proved   {_passed_checks(report)}"]
    lines += [f"skipped  {', '.join(names)}: {reason}" for reason, names in skipped.items()]
    return lines


def _passed_checks(report: Report) -> str:
    passed = [finding.check for finding in report.findings if finding.outcome == "passed"]
    return f"{count_noun(len(passed), 'check')} passed: {', '.join(passed)}"


def _print_sandbox(result: MakeResult, program: str) -> None:
    """Print how to enter a sandbox and how to come back."""
    name, python = result.spec.target.name, result.spec.lock.base.python_path
    print_text(f"\n{name}: a writable tree")
    print_text(f"  enter    {program} shell --fakeroot --writable --no-home {name}")
    how = f"as root inside; {python} is its Python"
    print_text(f"  install  pip install …, apt-get install …: {how}")
    command = f"envbuild make --from-sandbox {name}"
    print_text(f"  pack     {command}    (prints the recipe lines for your changes)")


def _print_packed(packed: PackedSandbox, *, as_json: bool) -> None:
    """Print what was done in a sandbox by hand, and the image that it was packed as."""
    from envbuild.app.sandbox import describe_changes  # late: only for a sandbox
    from envbuild.build.modes.sandbox import recipe_lines  # late: only for a sandbox

    changes, image = packed.changes, packed.image
    if as_json:
        record = {
            "image": None if image is None else str(image),
            "dists": changes.dists,
            "apt": changes.apt,
            "files": changes.files,
            "recipe": recipe_lines(changes),
        }
        print_json(record)
        return
    print_text(describe_changes(changes))
    if image is not None:
        proved = _passed_checks(packed.report) if packed.report else "nothing: it was left out"
        print_text(f"\n{image.name}: packed as it is; no lock describes what was done by hand")
        print_text(f"  proved   {proved}")
