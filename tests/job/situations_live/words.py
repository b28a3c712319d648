"""Names, paths, arguments and the environment of a job."""

from __future__ import annotations

import shlex

from envbuild.run import Command, LocalRunner
from tests.job.conftest import Project
from tests.job.situations_live.place import NOTHING, NotHereError, Place, situation


@situation
def a_code_comes_back(place: Place) -> None:
    place.shell("echo hello; exit 7", code=7)
    [receipt] = place.receipts()
    assert (receipt["code"], receipt["signal"], receipt["site"]) == (7, "", place.scheduler)


@situation
def a_program_that_is_not_there(place: Place) -> None:
    assert "no-such-program" in place.wait("--", "no-such-program", code=127).stdout
    # a command that empties its /tmp has run all the same
    place.shell("find /tmp -mindepth 1 -delete; exit 3", code=3)


@situation
def names_that_would_run_code_are_refused(place: Place) -> None:
    for name in (
        "a$(id)b",
        "x\ntouch pwned #",
        "../up",
        'a"b',
        "a\\qb",
        "a:b",
        "my image",
        "-x",
        "",
    ):
        told = place.refused("--name", name, *NOTHING)
        assert "is not a valid job name" in told, name


@situation
def an_image_that_somebody_named(place: Place) -> None:
    for name in ("x$(touch pwned).sif", "my image.sif", "ünï.sif", "12;ls.sif"):
        (place.folder / name).hardlink_to(place.folder / "tiny.sif")
        place.wait(*NOTHING, image=f"./{name}")
    assert not (place.folder / "pwned").exists()
    names = {receipt["name"] for receipt in place.receipts()}
    assert names == {"x-touch-pwned", "my-image", "uni", "12-ls"}


@situation
def names_of_all_lengths(place: Place) -> None:
    for name in ("1", "a" * 64, "a.b-c_d"):
        place.wait("--name", name, *NOTHING)
        assert list((place.folder / "logs").glob(f"{name}-*.log"))
    # PBS's own files, of jobs that have succeeded
    assert not list((place.folder / "logs").glob("*.OU"))


@situation
def a_folder_with_blanks(place: Place) -> None:
    folder = place.folder / "it is (my) folder & more"
    folder.mkdir()
    for name in ("tiny.sif", "sites"):
        (folder / name).symlink_to(place.folder / name)
    inner = Place(
        scheduler=place.scheduler,
        project=Project(folder=folder, environment=place.project.environment),
    )
    inner.shell("touch here", image=str(place.folder / "tiny.sif"))
    assert (folder / "here").exists()


@situation
def folders_that_a_scheduler_would_read_otherwise(place: Place) -> None:
    faults = {
        "a%j": "has '%' in it",
        "quote'd": 'has "\'" in it',
        "trailing ": "begins or ends with a blank",
        "co,mma": "has ',' in it",
    }
    for name, why in faults.items():
        folder = place.folder / name
        folder.mkdir()
        (folder / "sites").symlink_to(place.folder / "sites")
        project = Project(folder=folder, environment=place.project.environment)
        result = project.run(
            "submit", str(place.folder / "tiny.sif"), "--on", place.scheduler, *NOTHING
        )
        assert result.code == 2, name
        assert f"jobs cannot run in a folder whose name {why}" in result.stderr


@situation
def a_log_of_ones_own_and_a_folder_by_a_link(place: Place) -> None:
    place.wait("--output", "out/{name}.{id}.txt", "--", "sh", "-c", "echo hello")
    [log] = (place.folder / "out").glob("tiny.*.txt")
    assert "hello" in log.read_text()


@situation
def arguments_arrive_as_they_are(place: Place) -> None:
    words = (
        "a b",
        "it's",
        'q"q',
        "$HOME",
        "\\n",
        "x\n#$ -q nosuch\n#SBATCH --hold\n#PBS -h\ny",
        "日本",
        "",
        "*",
        "`id`",
    )
    result = place.wait("--", "sh", "-c", 'for w; do printf "<%s>" "$w"; done; echo', "sh", *words)
    assert "".join(f"<{word}>" for word in words) in result.stdout


@situation
def long_arguments(place: Place) -> None:
    result = place.wait("--", "sh", "-c", "echo ${#1} ${#2}", "sh", "x" * 100_000, "y" * 30_000)
    assert "100000 30000" in result.stdout.splitlines()


@situation
def variables_that_are_handed_on(place: Place) -> None:
    value = "a,b 'c' \"d\"\nsecond $HOME"
    text = 'printf "%s\\n" "$TOKEN"; echo "caller=${TOKEN_OF_CALLER:-none}"'
    result = place.shell(text, "--env", f"TOKEN={value}")
    assert f"{value}\ncaller=none\n" in result.stdout
    [secrets] = (place.folder / ".envbuild/jobs").glob("*.env")
    assert secrets.stat().st_mode & 0o777 == 0o600
    place.wait(*NOTHING)
    assert not secrets.exists(), "removed when the next job is submitted"


@situation
def what_the_scheduler_shows_holds_no_secret(place: Place) -> None:
    hold = place.pick(slurm="--hold", gridengine="-h", pbs="-h")
    job = place.submit(f"--option={hold}", "--env", "TOKEN=hush-hush", *NOTHING)
    asked = place.pick(
        slurm=f"scontrol show job -dd {job}", gridengine=f"qstat -j {job}", pbs=f"qstat -f {job}"
    )
    shown = place.client(*asked.split())
    assert "tiny" in shown
    assert "hush-hush" not in shown + place.run("status", job).stdout
    place.run("cancel", job)


@situation
def cores_become_threads(place: Place) -> None:
    result = place.shell('echo "threads=$OMP_NUM_THREADS"', "--cpus", "2")
    assert "threads=2" in result.stdout.splitlines()


@situation
def threads_of_one_process_among_several(place: Place) -> None:
    # torchrun starts two processes of one core each; the image has no Python, and the script is what counts
    place.add_to_site("")
    text = place.run(
        *("job", "./tiny.sif", "--on", place.scheduler, "--launcher", "torchrun", "--tasks", "2"),
        *("--cpus", "1", *NOTHING),
    ).stdout
    assert 'OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"' in text
    if place.scheduler == "pbs":
        assert "#PBS -l select=1:ncpus=2:ompthreads=1" in text


@situation
def files_have_the_users_mode(place: Place) -> None:
    place.shell("touch made; mkdir sub")
    [log] = (place.folder / "logs").glob("*.log")
    modes = [
        path.stat().st_mode & 0o777 for path in (place.folder / "made", place.folder / "sub", log)
    ]
    assert modes == [0o644, 0o755, 0o644]


@situation
def scratch_that_is_not_set_on_the_node(place: Place) -> None:
    place.add_to_site('\n[folders]\nscratch = "$NO_SUCH_SCRATCH"\n')
    result = place.wait("--", "touch", "ran", code=125)
    assert "NO_SUCH_SCRATCH is not set on this node" in result.stdout


@situation
def jobs_without_an_environment(place: Place) -> None:
    """Guides recommend --export=NONE, with which srun starts ranks without PATH."""
    if place.scheduler != "slurm":
        raise NotHereError("not a matter of other schedulers")
    words = ("--launcher", "lightning", "--gpus", "1", "--option=--export=NONE")
    result = place.shell('echo "rank=$SLURM_PROCID"', *words)
    assert "rank=0" in result.stdout.splitlines()


@situation
def gpus_that_the_scheduler_names(place: Place) -> None:
    """Univa's and Altair's Grid Engine name those of a job in a variable of the resource."""
    if place.scheduler != "gridengine":
        raise NotHereError("not a matter of other schedulers")
    text = 'echo "devices=${CUDA_VISIBLE_DEVICES:-all}"'
    result = place.shell(text, "--gpus", "1", "--option=-v SGE_HGR_gpu='1 3'")
    assert "devices=1,3" in result.stdout.splitlines()
    plain = place.shell(text, "--gpus", "1")
    assert "devices=all" in plain.stdout.splitlines()
    assert "it sees all of the node" in plain.stdout


@situation
def room_for_temporary_files(place: Place) -> None:
    """/var/tmp of a sealed container is 64 MB in memory by itself."""
    text = (
        "a=xxxxxxxxxx; i=0; while [ $i -lt 20 ]; do a=$a$a; i=$((i+1)); done; for f in /tmp /var/tmp; do "
        'for i in 1 2 3 4 5 6 7 8; do echo "$a"; done >$f/big && echo room; done'
    )
    lines = place.shell(text).stdout.splitlines()
    assert lines.count("room") == 2, lines


@situation
def a_log_that_is_no_text(place: Place) -> None:
    """Bytes that are no UTF-8, colours, carriage returns and a line without an end."""
    result = place.shell(r"printf '\377\376\033[31mred\033[0m\r50%%\rdone'; exit 2", code=2)
    assert "done" in result.stdout
    assert "Traceback" not in result.stderr


@situation
def the_output_is_read_by_a_program_that_ends_first(place: Place) -> None:
    job = place.submit(
        "--", "sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; exit 3"
    )
    assert place.run("logs", job, "-f").code == 3
    line = shlex.join(place.project.command("logs", job).argv)
    inner = Command(
        argv=("bash", "-c", f'{line} | head -n 1; echo "code=${{PIPESTATUS[0]}}"'),
        cwd=place.folder,
        env=place.project.environment,
        timeout=60,
    )
    result = LocalRunner()(inner, check=False)
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


@situation
def a_user_without_home_or_locale(place: Place) -> None:
    environment = dict(place.project.environment)
    del environment["HOME"], environment["LANG"]
    bare = Place(
        scheduler=place.scheduler, project=Project(folder=place.folder, environment=environment)
    )
    result = bare.wait("--", "sh", "-c", 'echo "<$1>"; exit 4', "sh", "日本 é", code=4)
    assert "Traceback" not in result.stderr


@situation
def a_name_given_twice_by_jobs_that_run_at_once(place: Place) -> None:
    jobs = [place.submit("--name", "same", "--", "sh", "-c", f"exit {n}") for n in (3, 4)]
    assert [place.run("logs", job, "-f").code for job in jobs] == [3, 4]


@situation
def a_program_that_crashes_and_one_that_reads_its_input(place: Place) -> None:
    place.shell("kill -SEGV $$", code=139)
    # nobody types: a program that asks gets the end of its input, and does not wait for ever
    assert "[]" in place.shell('echo "[$(cat)]"').stdout


@situation
def a_folder_of_four_hundred_letters(place: Place) -> None:
    folder = place.folder
    while len(str(folder)) < 400:
        folder /= "d" * 60
    folder.mkdir(parents=True)
    (folder / "sites").symlink_to(place.folder / "sites")
    project = Project(folder=folder, environment=place.project.environment)
    inner = Place(scheduler=place.scheduler, project=project)
    inner.shell("touch here; exit 4", image=str(place.folder / "tiny.sif"), code=4)
    assert (folder / "here").exists()


@situation
def a_temporary_folder_that_the_node_has_not(place: Place) -> None:
    result = place.run(
        *("submit", "./tiny.sif", "--on", place.scheduler, "--wait", "--", "sh", "-c"),
        "touch /tmp/made && exit 4",
        variables={"TMPDIR": "/no/such/folder"},
    )
    if place.scheduler == "pbs":  # its qsub writes there
        assert result.code == 125
        assert "/no/such/folder" in result.stderr
    else:
        assert result.code == 4, result.stdout + result.stderr
