"""``envbuild base``: what a base holds, which bases are known, and which one fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import click
import msgspec
from msgspec import structs

from envbuild.app.job.remote import target_of_site
from envbuild.base.catalogue import CatalogueEntry, catalogue_entries
from envbuild.base.facts import encode_facts
from envbuild.base.model import BaseFacts
from envbuild.base.reference import parse_reference
from envbuild.base.sources import describe_base
from envbuild.base.suggest import (
    BaseMatch,
    BaseQuery,
    RejectionCounts,
    base_driver,
    framework_name,
    suggest_bases,
)
from envbuild.cli.group import CommandGroup
from envbuild.cli.options import flag, site_option, value_option
from envbuild.cli.output import (
    json_option,
    print_json,
    print_table,
    print_text,
    terminal_width,
    wrap_line,
)
from envbuild.context import Context
from envbuild.errors import NoSolutionError, UsageError
from envbuild.names import Texts
from envbuild.store.units import as_printable, count_noun, human_bytes, minor_version


@click.group("base", cls=CommandGroup)
def command() -> None:
    """Inspect, list or suggest base images."""


@command.command("inspect")
@click.argument("reference", metavar="REF")
@flag("--json as_json", "Print the facts as JSON (docs/base.md), for lock --facts.")
@click.pass_obj
def inspect_command(context: Context, *, reference: str, as_json: bool) -> None:
    """Read what a base holds: Python, distributions, framework, CUDA, Debian packages.

    REF is a bootstrap such as debian:bookworm, or the path of a .sif.
    """
    facts = describe_base(parse_reference(reference), context)
    print_text(encode_facts(facts).decode() if as_json else describe_facts(facts), nl=False)


@command.command("suggest")
@value_option("--framework", "NAME[BOUNDS]", 'The framework, with bounds: "torch>=2.1,<2.5".')
@value_option("--python", "VERSION", "The Python version, or bounds: 3.9, >=3.8,<3.11.")
@value_option("--cuda", "VERSION", "The CUDA version, or its beginning: 11, 12.1.")
@value_option("--gpu", "NAME", "The GPU: A100, V100, or a compute capability such as 8.0.")
@value_option("--driver", "VERSION", "The NVIDIA driver of the nodes: 450.80.02.")
@value_option("--glibc", "VERSION", "The oldest C library that the image may have: 2.28.")
@site_option("--site", "Take GPU and driver from a cluster's site file.")
@flag("--all everything", "Show all that fit, not only the first five.")
@json_option
@click.pass_obj
def suggest_command(
    context: Context, /, *, site: str | None, everything: bool, as_json: bool, **asked: str | None
) -> None:
    """Name the bases that fit, best first, and say why.

    \b
    envbuild base suggest --framework torch --gpu A100 --driver 450.80.02
    envbuild base suggest --framework tensorflow==2.1.0
    envbuild base suggest --framework torch --site amane

    Without --gpu or --driver, the site file's values count.
    """
    wish = msgspec.convert(asked, BaseQuery)
    if site is not None:
        wish = _at_site(wish, site, context)
    choices, refusals = suggest_bases(wish)
    if as_json:
        print_json(choices)
    elif not choices:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in refusals.counts)
        raise NoSolutionError(
            f"no base of the catalogue fits: {reasons}",
            hint="ask for less, or see: envbuild base list",
        )
    else:
        shown = choices if everything else choices[:SHOWN]
        for line in describe_matches(shown, len(choices), refusals).splitlines():
            for part in wrap_line(line, 7, terminal_width()):
                print_text(part)


def _at_site(wish: BaseQuery, site: str, context: Context) -> BaseQuery:
    """Fill a wish with what a cluster's site file tells about its nodes; options that were given count more."""
    node = target_of_site(site, context)
    gpu = wish.gpu or node.gpu
    driver = wish.driver or node.driver
    what = f"driver {driver}" if driver else "its driver is not known"
    context.report.say(f"{site}: {gpu}, {what}" if gpu else f"{site}: {what}")
    return structs.replace(wish, gpu=gpu, driver=driver, node_glibc=node.glibc)


@command.command("list")
@value_option("--framework", "NAME", "Only the bases with this framework: torch, tensorflow, jax.")
@flag("--long in_full", "One line for each version, with driver, source and warnings.")
@json_option
def list_command(*, framework: str | None, in_full: bool, as_json: bool) -> None:
    """List the bases of the catalogue, one line each.

    \b
    A recipe's [base] takes the name of
      a suite    bootstrap = "debian:bookworm", framework = "torch==2.8.*"
      an image   image = "docker://pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
    """
    wanted = framework_name(framework) if framework else None
    if framework and wanted is None:
        what = f"the catalogue knows no framework {framework!r}"
        raise UsageError(what, hint="known: tensorflow, torch, jax")
    found = [entry for entry in catalogue_entries() if wanted in (None, entry.framework)]
    if as_json:
        print_json(found)
        return
    if in_full:
        print_table(ENTRY_COLUMNS, [_entry_row(entry) for entry in found])
        return
    suites = [entry for entry in found if entry.is_bootstrap]
    images = [entry for entry in found if not entry.is_bootstrap]
    if suites:
        print_table(SUITE_COLUMNS, _suite_rows(suites))
        print_text()
    print_table(IMAGE_COLUMNS, [_image_row(entry) for entry in images])
    if any(entry.defect for entry in images):
        print_text(f"{DEFECT_MARK} has a known defect; --long tells which")


SHOWN = 5
"""Suggestions shown unless all are asked for."""
SUITE_COLUMNS = ("suite", "framework", "versions", "Python", "CUDA")
IMAGE_COLUMNS = ("image", "version", "Python", "CUDA")
DEFECT_MARK = "!"
ENTRY_COLUMNS = ("base", "framework", "Python", "CUDA", "driver", "status", "beware")


def _entry_row(entry: CatalogueEntry) -> Texts:
    driver = base_driver(entry)
    beware = entry.defect or entry.note or ""
    cells = (entry.reference, entry.holds, entry.python, entry.cuda, driver, entry.status, beware)
    return tuple(cell or "-" for cell in cells)


def _suite_rows(entries: Sequence[CatalogueEntry]) -> list[Texts]:
    """Return a row for each suite and framework, with its oldest and newest version."""
    rows = []
    for _, group in groupby(entries, lambda entry: (entry.reference, entry.framework)):
        lines = list(group)
        first, last = lines[0], lines[-1]
        versions = _span(first.version, last.version)
        cuda = _span(first.cuda, last.cuda)
        cells = (first.reference, first.framework, versions, first.python, cuda)
        rows.append(tuple(cell or "-" for cell in cells))
    return rows


def _image_row(entry: CatalogueEntry) -> Texts:
    version = (entry.version or "-").partition("+")[0]
    if entry.defect:
        version += f" {DEFECT_MARK}"
    python, cuda = (minor_version(text or "-") for text in (entry.python, entry.cuda))
    return (entry.reference, version, python, cuda)


def _span(first: str | None, last: str | None) -> str:
    return f"{first or '-'}" if first == last else f"{first} to {last}"


def describe_matches(choices: Sequence[BaseMatch], count: int, refusals: RejectionCounts) -> str:
    """Lay suggestions out for people: what to write into the recipe, why, what to beware of."""
    lines = []
    for number, choice in enumerate(choices, 1):
        key = "bootstrap" if choice.entry.is_bootstrap else "image"
        framework = f', framework = "{choice.framework}"' if choice.framework else ""
        lines.append(f'{number}. {key} = "{choice.entry.reference}"{framework}')
        lines += [f"     {reason}" for reason in choice.reasons]
        lines += [f"     beware: {caution}" for caution in choice.cautions]
        lines.append(f"     source: {choice.entry.source}")
    left = sum(number for _, number in refusals.counts)
    end = ":" if left else "."
    lines.append(f"{count} bases fit, {left} do not{end}")
    lines += [f"  {number:>4}  {reason}" for reason, number in refusals.counts]
    return "\n".join(lines) + "\n"


def describe_facts(facts: BaseFacts) -> str:
    """Lay facts out for people: one line a fact, then one line a distribution."""
    rows = [(name, value) for name, value in _fact_rows(facts) if value]
    lines = [f"{name + ':':<17}{value}" for name, value in rows]
    if facts.dists:
        width = max(len(dist.name) for dist in facts.dists)
        lines += ["", f"distributions ({len(facts.dists)}):"]
        for dist in facts.dists:
            note = f"  ({dist.note})" if dist.note else ""
            lines.append(f"  {dist.name:<{width}}  {dist.version}{note}")
    return "\n".join(as_printable(line) for line in lines) + "\n"


def _fact_rows(facts: BaseFacts) -> Iterator[tuple[str, str | None]]:
    yield "base", facts.image
    yield "digest", facts.digest
    yield "created", facts.created
    yield "size", human_bytes(facts.size) if facts.size else None
    yield "system", f"{facts.distro or 'unknown'}, {facts.machine}, glibc {facts.glibc}"
    managed = " (externally managed, PEP 668)" if facts.externally_managed else ""
    python = f"{facts.python} {facts.abi or ''} {facts.python_path or ''}"
    yield "Python", python.rstrip() + managed
    yield "framework", facts.framework or "none"
    built_for = sorted(facts.built_for.items())
    yield "built for", ", ".join(f"{name} {version}" for name, version in built_for)
    if facts.conda_prefix:
        packages = count_noun(len(facts.conda), "package")
        yield "conda", f"{facts.conda_prefix}, {packages}"
    yield "CUDA", facts.cuda or "none"
    yield "cuDNN", facts.cudnn or "none"
    yield "NCCL", facts.nccl or "none"
    yield "libcuda stub", ", ".join(facts.stubs)
    yield "Debian packages", str(len(facts.apt)) if facts.apt else None
    if facts.constraints:
        yield "pip constraints", count_noun(len(facts.constraints.splitlines()), "line")
