"""Traps in the commands of a batch script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuild.job.lint.batch import BatchScript, ScriptCommand
from envbuild.job.lint.finding import LintFinding, name_trap

CONTAINER = re.compile(r"\b(?:singularity|apptainer)\s+(?:-\S+\s+)*(?:exec|run|shell)\b")
SECRETS = (
    (r"\bwandb\s+login\s+(?:--relogin\s+)?[0-9a-f]{40}\b", "a key of Weights & Biases"),
    (r"\bWANDB_API_KEY=[\"']?[0-9a-f]{40}\b", "a key of Weights & Biases"),
    (r"\bhf_[A-Za-z0-9]{30,}\b", "a token of Hugging Face"),
    (r"\bgh[pousr]_[A-Za-z0-9]{36}\b", "a token of GitHub"),
    (r"\bsk-[A-Za-z0-9_-]{40,}\b", "a key of OpenAI"),
    (r"\bAKIA[0-9A-Z]{16}\b", "a key of AWS"),
    (r"\b[a-z][a-z0-9+]+://[\w.-]+:[^\s@/:$<{]{6,}@[\w.-]+", "a password"),
)
HOOKS = (
    r"conda\.sh|shell\.bash\s+hook|conda\s+init|\.bashrc|\.bash_profile|\.profile|\.zshrc|"
    r"/activate\b|mamba\.sh|micromamba\s+shell|module\s+use|"
    r"\b(?:module\s+(?:load|add)|ml)\b.*\b\S*(?:conda|mamba|python)"
)
"""What makes "conda activate" a function of the job's shell."""
RELATIVE = (
    r"(?:^|[\s=<>\"'])(?:\.{1,2}/|[A-Za-z_][\w.-]*(?:/[\w.-]+)*\."
    r"(?:py|sh|jl|R|m|in|inp|csv|tsv|txt|ya?ml|json|toml|cfg|conf|ini|exe|dat|nc|h5|sif|ipynb)"
    r"(?:$|[\s\"'>;]))"
)
"""A file by a path from the folder in which the job runs."""
EARLY = (
    r"^\s*(?:srun|mpirun|mpiexec)\b.*\$\{?"
    r"(SLURM_(?:PROCID|LOCALID|NODEID)|OMPI_COMM_WORLD_(?:LOCAL_)?RANK|PMI_RANK|PMIX_RANK)\b"
)
"""A starter of ranks with a variable that only a rank has."""
QUIET = (
    r"(?:echo|date|printf|conda\s+deactivate|deactivate|module\s+(?:unload|purge)|"
    r"rm|sacct|squeue|qstat|seff|scontrol\s+show|nvidia-smi|hostname|sleep|exit(?:\s+0)?\s*$)\b|"
    r"\w+=(?:\"[^\"]*\"|'[^']*'|\$\(.*\)|[^\s\"'$]*);?$"
)
"""Last commands that succeed whatever became of the work."""


def find_no_folder(script: BatchScript) -> Iterator[LintFinding]:
    """Find relative paths in a job that starts in the home folder, as on PBS and Grid Engine."""
    dialect = script.dialect
    if dialect is None or dialect.home_start is None:
        return
    start = dialect.home_start
    is_set = script.find_option(*start.options) or {*start.resources} & {*script.resources()}
    relative = script.find_command(RELATIVE)
    if is_set or script.find_command(start.pattern) or relative is None:
        return
    yield name_trap("no-folder", relative.line, title=script.title, fix=start.fix)


def _asks_for_gpu(script: BatchScript) -> bool:
    """Tell whether the job asks for a GPU."""
    for _, name, value in script.options:
        if name in ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--tres-per-node"):
            return "gpu" in value or name != "--gres"
        if name == "-l" and re.search(r"gpu|rt_[FGA]|rt_H[FG]|f_node|s_gpu|node_[fhqo]", value):
            return True
    return False


def find_no_nv(script: BatchScript) -> Iterator[LintFinding]:
    """Find a container without --nv in a job with a GPU."""
    if not _asks_for_gpu(script):
        return
    # a flag may be in a variable
    if re.search(r"--(?:nv|rocm|nvccli)\b|APPTAINER_NV|SINGULARITY_NV", "\n".join(script.lines)):
        return
    for command in script.commands:
        if CONTAINER.search(command.text):
            yield name_trap("no-nv", command.line)
            return


def find_cut_commands(script: BatchScript) -> Iterator[LintFinding]:
    """Find a comment, or a blank behind the backslash, in the middle of a command."""
    goes_on = False
    for number, line in enumerate(script.lines, 1):
        text = line.strip()
        if goes_on and text.startswith("#") and number < len(script.lines):
            rest = (item.strip() for item in script.lines[number:])
            follows = next((item for item in rest if not item.startswith("#")), "")
            if follows.startswith("-"):
                yield name_trap("cut-command", number)
        if re.search(r"[^\\]\\[ \t]+$", line) and not text.startswith("#"):
            follows = script.lines[number].strip() if number < len(script.lines) else ""
            if follows:
                yield name_trap("cut-command.blank", number)
        goes_on = text.endswith("\\") and not text.startswith("#")


def find_fixed_ports(script: BatchScript) -> Iterator[LintFinding]:
    """Find one port for all jobs of a node."""
    pattern = (
        r"(?:MASTER_PORT=[\"']?|--(?:master|main_process)[-_]port[= ]|"
        r"--rdzv[-_]endpoint[= ]\S*:)\d{4,5}\b"
    )
    found = script.find_command(pattern)
    if found and script.find_option("--exclusive") is None:
        fix = script.dialect.free_port if script.dialect else "a port from the job's number"
        yield name_trap("fixed-port", found.line, fix=fix)


def find_early_ranks(script: BatchScript) -> Iterator[LintFinding]:
    """Find a rank's number in the arguments of what starts the ranks: the script fills in its own."""
    for command in script.commands:
        seen = re.sub(r"'[^']*'|\\.", "", command.text)
        found = re.search(EARLY, seen)
        if found:
            yield name_trap("early-rank", command.line, found=found[1])


def find_chosen_cards(script: BatchScript) -> Iterator[LintFinding]:
    """Find CUDA_VISIBLE_DEVICES by hand, in a job whose GPUs the scheduler hands out."""
    found = script.find_command(r"(?<![\w#])CUDA_VISIBLE_DEVICES=[\"']?\d")
    if found and _asks_for_gpu(script):
        yield name_trap("chosen-gpus", found.line)


def find_secrets(script: BatchScript) -> Iterator[LintFinding]:
    """Find keys in clear; what they are is not repeated."""
    for number, line in enumerate(script.lines, 1):
        for pattern, what in SECRETS:
            if re.search(pattern, line):
                yield name_trap("secret", number, what=what)
                break


def find_foreign_variables(script: BatchScript) -> Iterator[LintFinding]:
    """Find variables of another scheduler: they are empty here."""
    if script.dialect is None or script.several:
        return
    for command in script.commands:
        found = re.search(script.dialect.foreign, command.text)
        guarded = re.search(r":-|:=|\[\[? |\bif\b|-z|-n ", command.text)
        if found and not guarded and f"{found[1]}=" not in script.body:
            fix = script.dialect.variables
            yield name_trap(
                "foreign-variable", command.line, title=script.title, found=found[1], fix=fix
            )
            return


def find_own_paths(script: BatchScript) -> Iterator[LintFinding]:
    """Find the script's own folder by $0: what runs is a copy in the scheduler's folder."""
    found = script.find_command(r"(?:dirname|realpath|readlink)\b[^|;]*(?:\$0|\$\{?BASH_SOURCE)")
    # folder and name together are the copy itself, which is there
    if found is None or script.dialect is None or "basename" in found.text:
        return
    fix = script.dialect.submit_folder
    # a script that asks whether it is a job has another way for it
    if re.search(rf"\[.*\$\{{?{fix[1:]}\b|\$\{{{fix[1:]}:", script.body):
        return
    yield name_trap("own-path", found.line, title=script.title, fix=fix)


def find_installs(script: BatchScript) -> Iterator[LintFinding]:
    """Find pip or conda install inside the job."""
    found = script.find_command(
        r"(?:^|[;&|]\s*|-m\s+|exec\s.*)(?:pip3?|conda|mamba)\s+install\b"
        r"(?!.*(?:\$SLURM_TMPDIR|--no-index))"
    )
    if (
        found
        and "$SLURM_TMPDIR" not in script.body
        and not re.search(r"virtualenv|-m venv|conda create", script.body)
    ):
        case = "install-in-job.user" if " --user" in found.text else "install-in-job"
        yield name_trap(case, found.line)


def find_moving_images(script: BatchScript) -> Iterator[LintFinding]:
    """Find docker:// without a tag, or with :latest, when the job runs."""
    for command in script.commands:
        found = re.search(r"docker://([\w./-]+)(:latest[\w.-]*)?(?![\w.:/@-])", command.text)
        if found and "$" not in command.text[found.end() : found.end() + 1]:
            yield name_trap("moving-image", command.line, found=found[1])
            return


def find_conda(script: BatchScript) -> Iterator[LintFinding]:
    """Find "conda activate" in a shell that does not know the function of conda (Slurm's)."""
    found = script.find_command(r"^(?:conda|mamba)\s+activate\b")
    login = re.match(r"#!.*\s-\w*[li]|#!.*--login", script.lines[0])
    if not found or login or re.search(HOOKS, script.body):
        return
    yield name_trap("conda-activate", found.line)


def find_background(script: BatchScript) -> Iterator[LintFinding]:
    """Find a script that ends while its work runs in the background."""
    work = [command for command in script.commands if not re.match(QUIET, command.text)]
    if not work or re.search(r"(?:^|[\s;])wait\b", script.body, re.MULTILINE):
        return
    last = work[-1]
    if re.search(r"[^&>|]&\s*$", last.text):
        yield name_trap("no-wait", last.line)


def find_lost_code(script: BatchScript) -> Iterator[LintFinding]:
    """Find a last command that succeeds whatever the work did."""
    # who prints $? at the end has lost it all the same
    asked = [one.text for one in script.commands if not re.match(r"echo\b", one.text)]
    watched = re.search(r"\bset\s+-\w*e|errexit|\btrap\b|\$\{?\?|PIPESTATUS", "\n".join(asked))
    if watched or re.match(r"#!.*\s-\w*e", script.lines[0]):
        return
    # exit alone hands on the code of the command before it, as the end of a loop does
    commands = [one for one in script.commands if one.text not in ("exit", "done")]
    work = [one for one in commands if not re.match(QUIET, one.text)]
    if not work or work[-1] is commands[-1]:
        return
    last, before = commands[-1], work[-1]
    if _is_work(before) and not re.search(r"&$|\|\|", before.text):
        yield name_trap("lost-code", last.line, last=last.text.split()[0])


def _is_work(command: ScriptCommand) -> bool:
    words = (
        r"(?:\S*python\d?(?:\.\d+)?|srun|mpirun|mpiexec|torchrun|singularity|apptainer|time|"
        r"Rscript|\./\S+|bash|matlab|julia|accelerate|deepspeed)\b|\$\{?\w+\}?\s"
    )
    return re.match(words, command.text) is not None


def find_sudo(script: BatchScript) -> Iterator[LintFinding]:
    """Find sudo: nobody types a password in a job."""
    found = script.find_command(r"^sudo\s")
    if found:
        yield name_trap("sudo", found.line)
