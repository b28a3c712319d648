"""Every rule over one script, in the order of its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from envbuild.job.lint import commands, directives
from envbuild.job.lint.batch import BatchScript, read_batch
from envbuild.job.lint.finding import LintFinding

RULES = (
    directives.find_shebang,
    directives.find_late,
    directives.find_misspelt,
    directives.find_variables,
    directives.find_spaces,
    directives.find_typography,
    directives.find_time,
    directives.find_memory,
    commands.find_no_folder,
    commands.find_no_nv,
    commands.find_cut_commands,
    commands.find_fixed_ports,
    commands.find_early_ranks,
    commands.find_chosen_cards,
    commands.find_secrets,
    commands.find_foreign_variables,
    commands.find_own_paths,
    commands.find_installs,
    commands.find_moving_images,
    commands.find_background,
    commands.find_lost_code,
    commands.find_sudo,
)
OWN_RULES: dict[str, tuple[Callable[[BatchScript], Iterator[LintFinding]], ...]] = {
    "slurm": (
        directives.find_one_dash,
        directives.find_export,
        directives.find_fixed_node,
        directives.find_spread_tasks,
        # the others start a login shell
        commands.find_conda,
    ),
    "pbs": (directives.find_mixed_pbs,),
}
"""Traps of one scheduler alone, by its name."""


def lint_script(
    text: str, folder: Path | None = None
) -> tuple[BatchScript, tuple[LintFinding, ...]]:
    """Return a script as it was read, and its traps; it is submitted from ``folder``."""
    script = read_batch(text)
    own = OWN_RULES.get(script.scheduler.name, ()) if script.scheduler else ()
    found: Iterable[Iterator[LintFinding]] = (rule(script) for rule in (*RULES, *own))
    more = (directives.find_crlf(script, text), directives.find_logs(script, folder))
    findings = chain(chain.from_iterable(found), chain.from_iterable(more))
    return script, tuple(sorted(findings, key=lambda finding: (finding.line, finding.kind)))
