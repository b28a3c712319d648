"""Traps of batch scripts: each kind with its line, and scripts in which there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.cli import run_cli
from envbuild.job.lint.batch import DIALECTS
from envbuild.job.lint.lint import OWN_RULES, lint_script
from envbuild.job.schedulers import SCHEDULERS
from envbuild.settings import Settings
from tests.job.situations import SCRIPTS, written

SLURM = "#!/bin/bash\n#SBATCH --time=1:00:00\n"
GPU = SLURM + "#SBATCH --gres=gpu:1\n"
PBS = "#!/bin/bash\n#PBS -l select=1:ncpus=2\n"
SGE = "#!/bin/bash\n#$ -cwd\n"
WORK = "python train.py\n"
TRAPS = [
    ("shebang", 1, "#SBATCH -n 1\npython x.py\n"),
    ("shebang", 1, "#!bin/bash\n#PBS -N x\ncd /data\n"),
    ("crlf", 1, SLURM.replace("\n", "\r\n") + "./x\r\n"),
    ("late-directive", 4, SLURM + "module load cuda\n#SBATCH --gres=gpu:1\n" + WORK),
    ("late-directive", 4, PBS + 'cd "$PBS_O_WORKDIR"\n#PBS -l walltime=1:00:00\n' + WORK),
    ("misspelt", 3, SLURM + "#SBTACH --mem=4G\n" + WORK),
    ("misspelt", 3, SLURM + "#BATCH --mem=4G\n" + WORK),
    ("misspelt", 3, PBS + "#PSB -q gpu\ncd /x\n"),
    ("variable-in-directive", 3, SLURM + "#SBATCH --output=$HOME/x-%j.log\n" + WORK),
    ("variable-in-directive", 3, PBS + "#PBS -o $HOME/x.log\ncd /x\n"),
    ("blank-beside-equals", 3, SLURM + "#SBATCH --mem =4G\n" + WORK),
    ("blank-beside-equals", 3, SGE + "#$ -l h_rt= 1:00:00\n" + WORK),
    ("typography", 3, SLURM + "#SBATCH \u2013\u2013mem=4G\n" + WORK),
    ("one-dash", 3, SLURM + "#SBATCH -mem=4G\n" + WORK),
    ("short-time", 2, "#!/bin/bash\n#SBATCH -t 24:00\n" + WORK),
    ("short-time", 2, "#!/bin/bash\n#SBATCH --time=48\n" + WORK),
    ("short-time", 3, SGE + "#$ -l h_rt=24\n" + WORK),
    ("bare-memory", 3, SLURM + "#SBATCH --mem=16\n" + WORK),
    ("bare-memory", 3, SGE + "#$ -l h_vmem=16\n" + WORK),
    ("log-folder", 3, SLURM + "#SBATCH -o logs/%j.log\n" + WORK),
    ("log-folder", 3, SGE + "#$ -o logs/\n" + WORK),
    ("shared-log", 4, SLURM + "#SBATCH --array=1-9\n#SBATCH -o all-%A.log\n" + WORK),
    ("shared-log", 4, SGE + "#$ -t 1-9\n#$ -o all.log\n" + WORK),
    ("nodes-and-select", 3, PBS + "#PBS -l nodes=1:ppn=4\ncd /x\n"),
    ("export-without-all", 3, SLURM + "#SBATCH --export=KEY\n" + WORK),
    ("fixed-node", 3, SLURM + "#SBATCH -w gpu7\n" + WORK),
    ("tasks-for-cores", 3, SLURM + "#SBATCH -n8\n" + WORK),
    ("no-folder", 3, PBS + WORK),
    ("no-folder", 3, "#!/bin/bash\n#$ -l gpu=1\n" + WORK),
    ("no-nv", 4, GPU + "singularity exec x.sif python train.py\n"),
    ("no-nv", 3, "#!/bin/bash\n#$ -cwd -l rt_G=1\napptainer --quiet run x.sif\n"),
    ("cut-command", 4, SLURM + "python x.py \\\n  # the rate\n  --lr 0.1\n"),
    ("cut-command", 3, SLURM + "python x.py \\  \n  --lr 0.1\n"),
    ("fixed-port", 3, SLURM + "export MASTER_PORT=29500\n" + WORK),
    ("fixed-port", 3, SLURM + "torchrun --rdzv_endpoint=$h:29500 x.py\n"),
    ("chosen-gpus", 4, GPU + "export CUDA_VISIBLE_DEVICES=0,1\n" + WORK),
    ("early-rank", 3, SLURM + "srun torchrun \\\n  --node_rank=$SLURM_PROCID train.py\n"),
    ("early-rank", 4, PBS + 'cd /x\nmpiexec -n 4 ./bind "${PMIX_RANK}"\n'),
    ("secret", 3, SLURM + f"export WANDB_API_KEY={'0a' * 20}\n" + WORK),
    ("secret", 3, SLURM + f"# wandb login {'0a' * 20}\n" + WORK),
    ("foreign-variable", 3, SLURM + "cd $PBS_O_WORKDIR\n" + WORK),
    ("foreign-variable", 3, PBS + 'cd "$SLURM_SUBMIT_DIR"\n' + WORK),
    ("lost-code", 5, SLURM + WORK + "nvidia-smi\nconda deactivate\n"),
    ("lost-code", 4, SLURM + WORK + 'echo "ended with $?"\n'),
    ("lost-code", 4, SLURM + WORK + "scontrol show job $SLURM_JOB_ID\n"),
    ("moving-image", 3, SLURM + "apptainer exec docker://a/b:latest-gpu python x.py\n"),
    ("secret", 3, SLURM + "export DB=mongodb://lab:HXH7vExF@db.invalid:27017/x\n" + WORK),
    ("own-path", 3, SLURM + 'cd "$(dirname "$0")"\n' + WORK),
    ("own-path", 3, SLURM + 'here=$(readlink -f "${BASH_SOURCE[0]}")\n' + WORK),
    ("install-in-job", 3, SLURM + "pip install --user torch\n" + WORK),
    ("moving-image", 3, SLURM + "apptainer exec docker://python:latest python x.py\n"),
    ("conda-activate", 3, SLURM + "conda activate torch\n" + WORK),
    ("no-wait", 3, SLURM + "python train.py &\necho started\n"),
    ("lost-code", 4, SLURM + "python train.py\necho done\n"),
    ("lost-code", 4, SLURM + "python train.py\necho done\nexit\n"),
    ("lost-code", 6, SLURM + "for n in 1 2; do\n  ./x $n\ndone\nexit 0\n"),
    ("lost-code", 5, SLURM + WORK + "end=$(date +%s)\necho $end\n"),
    ("lost-code", 5, SLURM + 'RUN="srun -n 2 ./x"\n${RUN} --steps 9\nrm -f tmp\n'),
    ("own-path", 4, SLURM + 'cd "$SLURM_SUBMIT_DIR"\npython "$(dirname "$0")/x.py"\n'),
    ("sudo", 3, SLURM + "sudo apt install x\n" + WORK),
]
CLEAN = [
    "#!/bin/bash\n#PBS -l nodes=1:ppn=8\n#PBS -o $HOME/${PBS_JOBNAME}.o$PBS_JOBID\ncd /x\n",
    SLURM + "srun bash -c 'python x.py --rank $SLURM_PROCID'\n",
    SLURM + 'srun bash -c "exec numactl -N \\$SLURM_LOCALID ./x"\n',
    SLURM + 'echo "$SLURM_PROCID"\n' + WORK,
    GPU
    + "#SBATCH -o %x-%j.log\nset -e\nsource /opt/conda/etc/profile.d/conda.sh\nconda activate a\n"
    + WORK,
    GPU + "singularity exec --nv x.sif python train.py\n",
    GPU + "nv=--nv\nsingularity exec $nv x.sif python train.py\n",
    SLURM + "#SBATCH --ntasks=8 --nodes=1\npython train.py\n",
    SLURM + "#SBATCH -n 8\nsrun ./model\n",
    SLURM + "##SBATCH --mem=4G\n# SBATCH --mem=4G\n#xSBATCH --mem=4G\n" + WORK,
    SLURM + "cat >job2.sh <<EOF\n#SBATCH --mem=16\nsudo x\nEOF\nsbatch job2.sh\n",
    SLURM + "cat <<<word\npython a.py &\npython b.py &\nwait\n",
    SLURM + "#SBATCH --array=1-9\n#SBATCH --output=x-%A_%a.log\n" + WORK,
    SGE + "#$ -t 1-9\n#$ -o all.$TASK_ID.log\n" + WORK,
    SLURM + "#SBATCH --mem=4000\n" + WORK,
    SGE + "#$ -l h_rt=3600\n" + WORK,
    "#!/bin/bash\n#SBATCH --time=100\n" + WORK,
    SLURM + "cd ${PBS_O_WORKDIR:-$SLURM_SUBMIT_DIR}\n" + WORK,
    SLURM + "#SBATCH --exclusive\nexport MASTER_PORT=29500\n" + WORK,
    PBS + 'cd "$PBS_O_WORKDIR"\n' + WORK,
    PBS + 'cd /x\nexport SLURM_JOB_ID="$PBS_JOBID"\nqstat -f $SLURM_JOB_ID\n' + WORK,
    SGE + 'me=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")\ncp "$me" /x\n/x/run\n',
    SLURM + "python train.py || exit 1\necho done\n",
    SLURM + "for n in 1 2; do\n  python train.py $n\ndone\n",
    PBS + "/opt/model/run /data/x\n",
    SGE + "# a comment\n#$ -j y -o $JOB_ID.log -pe smp 4\n" + WORK,
    "#!/bin/bash\n#SBATCH --time=30:00\n#SBATCH --mem=500M\n" + WORK,
    SLURM + WORK + "exit\n",
    SLURM
    + 'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n'
    + 'if [ -n "${SLURM_SUBMIT_DIR}" ]; then here=$SLURM_SUBMIT_DIR; fi\n'
    + WORK,
    "#!/bin/bash\n" + WORK,
]


@pytest.mark.parametrize(("kind", "line", "text"), TRAPS, ids=lambda value: str(value)[:24])
def test_every_trap_is_found_on_its_line_and_nothing_else(kind: str, line: int, text: str) -> None:
    _, findings = lint_script(text)
    assert [(finding.kind, finding.line) for finding in findings] == [(kind, line)]
    assert findings[0].reason
    assert findings[0].fix
    assert "0a0a" not in findings[0].reason + findings[0].fix


@pytest.mark.parametrize("text", CLEAN)
def test_a_script_without_a_trap(text: str) -> None:
    assert lint_script(text)[1] == ()


def test_a_log_folder_that_is_there_is_none(tmp_path: Path) -> None:
    text = SLURM + "#SBATCH -o logs/%j.log\n" + WORK
    (tmp_path / "logs").mkdir()
    assert lint_script(text, tmp_path)[1] == ()


@pytest.mark.parametrize(("site", "situation"), SCRIPTS)
def test_scripts_of_envbuild_have_none(
    site: str, situation: str, tmp_path: Path, user_settings: Settings
) -> None:
    for folder in ("logs", "out"):
        (tmp_path / folder).mkdir()
    assert lint_script(written(site, situation, user_settings), tmp_path)[1] == ()


@given(st.text(alphabet="#SBATCHPp$ -=ol\\\n\"'<EOF&x\r\u2013{}", max_size=400))
def test_any_text_is_judged(text: str) -> None:
    script, findings = lint_script("#!/bin/bash\n#SBATCH -n 1\n" + text)
    assert all(1 <= finding.line <= len(script.lines) for finding in findings)


def test_the_verb_says_line_reason_and_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.sbatch"
    path.write_text(GPU + "apptainer exec x.sif python train.py\n")
    assert run_cli(["job", "lint", str(path)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "line 4: the job has a GPU, and the container does not see it without --nv"
    assert told[-1] == "1 trap in 4 lines"
    assert run_cli(["job", "lint", "--json", str(path)]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["line"]) == ("no-nv", 4)
    path.write_text(CLEAN[2])
    assert run_cli(["job", "lint", str(path)]) == 0
    assert run_cli(["job", "lint", str(tmp_path / "none.sh")]) == 2
    path.write_text("#!/bin/bash\n#PJM -L node=1\npython train.py\n")
    capsys.readouterr()
    assert run_cli(["job", "lint", str(path)]) == 0
    assert "the lines for Fujitsu's Technical Computing Suite are not judged" in (
        capsys.readouterr().out
    )
    path.write_bytes(b"\x7fELF\0\0")
    assert run_cli(["job", "lint", str(path)]) == 2
    assert "is not a batch script" in capsys.readouterr().err


def test_every_scheduler_with_a_queue_has_a_row_of_what_goes_wrong() -> None:
    queues = {name for name, one in SCHEDULERS.items() if one.features.queues}
    assert set(DIALECTS) == queues
    assert set(OWN_RULES) <= queues


@pytest.mark.parametrize("name", DIALECTS)
def test_a_script_is_read_as_that_of_its_scheduler(name: str) -> None:
    features, dialect = DIALECTS[name]
    script, _ = lint_script(
        f"#!/bin/bash\n{features.prefix} -o log\necho {dialect.submit_folder}\n"
    )
    assert script.dialect is dialect
    assert script.find_option("-o", "--output") == (2, "log")
