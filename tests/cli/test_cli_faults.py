"""What a user sees when something is wrong: one clear error, its exit code, no traceback, and nothing half-made."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.project import SMALL, Project, small_project
from tests.support import AS_ROOT, may_be_root, needs, run_here

FACTS = {
    "image": "lab/base:1",
    "created": "2026-01-05",
    "python": "3.11.2",
    "machine": "x86_64",
    "glibc": "2.36",
    "dists": [{"name": "pip", "version": "23.0.1", "requires": []}],
}


LONG, NO_TEXT = "/".join(["a" * 250] * 30), os.fsdecode(b"a\xff\xfeb")


class ProjectHere(Project):
    """A project whose command line runs in this process: what is told here comes before any work."""

    def run(self, *arguments: str, timeout: float = 600, **env: str) -> Result:
        return run_here(self.folder, {**self.env, **env}, *arguments)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return small_project(tmp_path / "project", tmp_path / "store")


def told(result: Result, code: int, *texts: str) -> None:
    """Check an error: exit code, what it says, and that no traceback and no noise surrounds it."""
    assert result.code == code, result.stderr
    for text in texts:
        assert text in result.stderr
    assert "Traceback" not in result.stderr + result.stdout
    assert result.stderr.count("envbuild: error:") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(closed: str, project: Project) -> None:
    """The first file that is opened would take the place of one, and get all that is said into it."""
    (project.folder / "recipes/small.toml").write_text("[")
    words = f"exec '{sys.executable}' -m envbuild"
    lists, fails = (f"{words} {verb} {closed}" for verb in ("list", "lock small"))
    for line, code in ((lists, 0), (fails, 2)):
        command = Command(argv=("sh", "-c", line), cwd=project.folder, env=project.env)
        ran = LocalRunner()(command, check=False)
        assert (ran.code, "Traceback" in ran.stderr) == (code, False), ran.stderr
    left = [path for path in project.folder.rglob("*") if path.is_file()]
    assert not [path for path in left if b"envbuild: error" in path.read_bytes()]


class TestCommandLine:
    @pytest.fixture
    def project(self, project: Project) -> Project:
        here = ProjectHere.__new__(ProjectHere)
        here.__dict__ = project.__dict__
        return here

    def test_unknown_verb(self, project: Project) -> None:
        told(
            project.run("mkae"),
            2,
            'there is no command "mkae"; did you mean "make"?',
            "envbuild --help",
        )

    @pytest.mark.parametrize(
        ("line", "meant"),
        [
            ("install numpy", "add"),
            ("activate small", "shell"),
            ("update", "lock --upgrade"),
            ("squeue", "status"),
            ("env create -f environment.yml", "init"),
            ("pip install six", "add"),
            ("conda create -n x python=3.10", "init"),
            ("docker build .", "build"),
            ("docker compose up", "make"),
            ("compose build", "build"),
            ("volume ls", "exec --bind SRC:DEST NAME -- CMD"),
        ],
    )
    def test_words_of_other_tools(self, line: str, meant: str, project: Project) -> None:
        word, *_ = line.split()
        told(project.run(*line.split()), 2, f'no command "{word}"; try: envbuild {meant}\n')

    @pytest.mark.parametrize(
        ("line", "does"),
        [("docker login ghcr.io", "apptainer registry login "), ("rmi small", "rm NAME.sif")],
    )
    def test_words_for_what_others_do(self, line: str, does: str, project: Project) -> None:
        told(project.run(*line.split()), 2, does)

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (("exec", LONG), 125),
            (("shelf", "get", LONG), 2),
            (("shelf", "add", "lab", NO_TEXT), 2),
            (("lock", f"{NO_TEXT}\n\x1b[2J"), 2),
            (("flatten", "/"), 2),
            (("init", "/"), 2),
            (("base", "suggest", "--python", "9" * 5000), 2),
        ],
        ids=[
            *("longer than a path", "a shelf's name", "no text", "no text and escapes"),
            *("a folder without a name", "all folders", "a number of 5,000 digits"),
        ],
    )
    def test_words_that_no_system_takes(
        self, line: tuple[str, ...], code: int, project: Project
    ) -> None:
        told(project.run(*line), code)

    @pytest.mark.parametrize("word", ["—help", "“small”", "\u2013mode"])
    def test_words_copied_from_a_page(self, word: str, project: Project) -> None:
        told(project.run("show", word), 2, f"{word}: this has a long dash or curly quotes")

    def test_quotes_in_the_users_command_are_the_users(self, project: Project) -> None:
        result = project.run("exec", "tiyn", "--", "echo", "“hello”")
        told(result, 125, 'there is no recipe called "tiyn"')

    @pytest.mark.parametrize(
        ("line", "code", "hint"),
        [
            ("make --fakeroot small", 2, "what to do: it is called --mode fakeroot"),
            ("exec --nv small python", 125, "leave it out: programs in the image see this"),
            ("submit small --time 1:00:00 -- python", 2, "what to do: it is called --walltime"),
            ("submit small --qos=long -- true", 2, "goes to it as it is: --option '--qos=VALUE'"),
            ("submit small -p gpu -- true", 2, "what to do: it is called --partition"),
            ("run --gpus all small", 125, "leave it out: programs in the image see this"),
            ("exec --gpu small python", 125, "what to do: envbuild exec --help"),
            ("exec -it small bash", 125, "leave it out: the command gets your terminal"),
            ("make -t mine small", 2, "what to do: it is called --output"),
            ("make -f Dockerfile", 2, "becomes a recipe first: envbuild init FILE"),
            ("init --print", 2, "what to do: it is called --dry-run"),
            ("run -v /a:/b small ls", 125, "what to do: it is called --bind"),
            ("run --restart always small", 125, "what to do: envbuild run --help"),
        ],
    )
    def test_options_of_other_tools(
        self, line: str, code: int, hint: str, project: Project
    ) -> None:
        result = project.run(*line.split())
        told(result, code, "no such option", hint)
        assert "Did you mean" not in result.stderr

    @pytest.mark.parametrize(
        ("line", "hint"),
        [
            ("build x.sif x.def", "to draft a recipe from it: envbuild init x.def"),
            ("init compose.yml", "what to do: name a list of requirements, an environment.yml"),
            ("init devcontainer.json", "what to do: name a list of requirements"),
            ("remove small", "to remove the image, remove its file: rm small.sif"),
            ("make x.def", "to draft a recipe from it: envbuild init x.def"),
            ("make docker://a/b:1", 'write image = "docker://a/b:1" under its [base]'),
        ],
    )
    def test_definitions_and_images_are_no_recipes(
        self, line: str, hint: str, project: Project
    ) -> None:
        project.write("x.def", "Bootstrap: docker\n")
        project.write("compose.yml", "services: {}\n")
        project.write("devcontainer.json", '{"build": {"dockerfile": "Dockerfile"}}\n')
        told(project.run(*line.split()), 2, hint)

    def test_a_command_is_taken_for_a_recipe(self, project: Project) -> None:
        hint = "what to do: if this is your command: envbuild exec -- python train.py\n"
        told(project.run("exec", "python", "train.py"), 125, hint)

    def test_a_recipe_that_may_be_on_a_shelf(self, project: Project, tmp_path: Path) -> None:
        project.run("shelf", "add", "lab", str(tmp_path / "shelf"))
        told(project.run("make", "course"), 2, "envbuild shelf get lab/course\n")

    @pytest.mark.parametrize("verb", ["job", "submit", "exec"])
    def test_a_script_is_taken_for_a_recipe(self, verb: str, project: Project) -> None:
        project.write("hw1.py", "print()\n")
        result = project.run(verb, "hw1.py", "7")
        told(result, result.code, f"behind the recipe: envbuild {verb} small -- python hw1.py\n")

    def test_nothing_typed_shows_the_help(self, project: Project) -> None:
        assert project.run().stdout == project.run("--help").stdout

    def test_a_file_is_no_recipe(self, project: Project) -> None:
        project.write("run.sh", "python train.py\n")
        hint = "what to do: the recipes of this project: small\n"
        told(project.run("make", "run.sh"), 2, '"run.sh" is a file, not a recipe', hint)

    def test_a_bind_of_docker(self, project: Project) -> None:
        result = project.run("run", "-v", "/tmp:/data", "small", "--", "ls")
        told(result, 125, "to show a folder inside: --bind /tmp:/data")

    def test_a_home_is_no_project(self, project: Project) -> None:
        """A folder with many projects gave one recipe of all of them."""
        project.write("one/requirements.txt", "six\n")
        result = project.run("init", "--yes", HOME=str(project.folder))
        told(result, 2, "this is your home folder", "envbuild init DIR")

    def test_an_image_that_is_not_made_yet(self, project: Project) -> None:
        told(project.run("exec", "small.sif", "--", "ls"), 125, "what to do: envbuild make small\n")

    def test_unknown_option(self, project: Project) -> None:
        told(project.run("make", "--mod", "x"), 2, "no such option '--mod'", "envbuild make --help")

    def test_switches_stand_on_either_side_of_the_verb(self, project: Project) -> None:
        for line in (
            ("-q", "list"),
            ("list", "-q"),
            ("--color", "never", "list"),
            ("list", "--color=never"),
        ):
            assert project.run(*line).code == 0

    def test_no_recipe_at_all(self, tmp_path: Path) -> None:
        told(
            Project(tmp_path / "p").run("make"),
            2,
            "there is no recipe in ./recipes",
            "chainer-mnist, keras-bert",
        )

    @pytest.mark.parametrize("line", ["lock", "exec small -- ls", "show small"])
    def test_typed_in_a_folder_below(self, line: str, project: Project) -> None:
        inner = Project(project.folder / "src/models")
        code = 125 if line.startswith("exec") else 2
        told(inner.run(*line.split()), code, "../../recipes holds small. Go there first: cd ../../")

    def test_several_recipes_and_no_name(self, project: Project) -> None:
        project.write("recipes/other.toml", SMALL.replace("small", "other"))
        told(project.run("lock"), 2, "which recipe? ./recipes holds several: other, small")

    def test_a_recipe_that_is_not_there(self, project: Project) -> None:
        told(
            project.run("make", "keras-brt"),
            2,
            'there is no recipe called "keras-brt"',
            "did you mean keras-bert",
        )
        told(
            project.run("make", "recipes/nowhere.toml"),
            2,
            "recipes/nowhere.toml: there is no such recipe file",
        )

    def test_a_closed_pipe_is_no_error(self, project: Project) -> None:
        line = f"{sys.executable} -m envbuild def keras-bert | head -1"
        result = LocalRunner()(
            Command(argv=("/bin/sh", "-c", line), cwd=project.folder, env=project.env)
        )
        assert result.stdout.startswith("# keras-bert: BERT in Keras")
        assert result.stderr == ""

    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("lock recipes", '"recipes" is a folder, not a recipe'),
            ("lock recipes/x.toml", "recipes/x.toml: this is a folder, not a recipe"),
            ("check .", '"." is a folder, not a recipe'),
            ("explain .", ".: this is a folder, not a log"),
            ("init nothere", "name the folder of your project"),
            ("lock empty", "recipes/empty.toml: this recipe is empty"),
            ("lock " + 300 * "a", f'there is no recipe called "{60 * "a"}…"'),
        ],
    )
    def test_what_is_no_recipe(self, line: str, text: str, project: Project) -> None:
        (project.folder / "recipes/x.toml").mkdir()
        project.write("recipes/empty.toml", "# nothing yet\n")
        told(project.run(*line.split()), 2, text)

    def test_list_passes_over_folders_and_names_files_as_typed(self, project: Project) -> None:
        (project.folder / "recipes/x.toml").mkdir()
        project.write("recipes/empty.toml", "")
        listed = project.run("list").stdout.splitlines()
        assert [line.split()[0] for line in listed][1:3] == ["empty", "small"]
        assert listed[1].endswith("broken: recipes/empty.toml: this recipe is empty")

    @pytest.mark.parametrize("verb", ["lock", "make"])
    def test_a_tmpdir_that_is_not_there(self, verb: str, project: Project) -> None:
        project.env["TMPDIR"] = "/nowhere"
        told(
            project.run(verb),
            7,
            "/nowhere: TMPDIR is no folder that you may write in",
            "TMPDIR=/tmp",
        )
        assert not (project.folder / "lockfiles").exists()

    @pytest.mark.parametrize("verb", ["lock", "make"])
    def test_a_tmpdir_where_no_program_starts(self, verb: str, project: Project) -> None:
        place = project.folder / "noexec"
        place.mkdir()
        line = f"mount -t tmpfs -o noexec none {place} || exit 99; exec {sys.executable} -m envbuild {verb}"
        inside = ("unshare", "--map-root-user", "--mount", "sh", "-c", line)
        env = {**project.env, "TMPDIR": str(place)}
        result = LocalRunner()(Command(argv=inside, cwd=project.folder, env=env), check=False)
        if result.code == 99 or "unshare" in result.stderr:
            pytest.skip("no mount can be made here")
        told(result, 7, "noexec: TMPDIR is a folder where no program can be started")

    def test_output_in_a_folder_of_another(self, project: Project, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir(mode=0o500)
        if may_be_root():
            pytest.skip("root writes everywhere")
        text = "other: you may not write in this folder"
        result = project.run("make", "small", "-o", str(other / "x.sif"))
        told(result, 2, text)
        assert not (project.folder / "lockfiles").exists()

    def test_output_in_a_folder_that_is_not_there(self, project: Project) -> None:
        told(
            project.run("make", "keras-bert", "-o", "nowhere/x.sif", "--dry-run"),
            2,
            "nowhere: there is no such folder",
        )

    def test_output_that_is_a_folder(self, project: Project) -> None:
        told(
            project.run("make", "keras-bert", "-o", "recipes", "--dry-run"),
            2,
            "recipes: is a folder",
        )


class TestSettings:
    def test_unknown_key_in_the_settings_file(self, project: Project) -> None:
        project.write("home/.config/envbuild/config.toml", "[mirrors]\ndebain = 'x'\n")
        told(
            project.run("list"),
            2,
            "line 2: unknown key 'debain' in [mirrors]; did you mean \"debian\"?",
        )

    def test_broken_settings_file(self, project: Project) -> None:
        project.write("home/.config/envbuild/config.toml", "[store\n")
        told(project.run("list"), 2, "config.toml, line 1, column ", "is not valid TOML")

    def test_a_store_that_cannot_be_written(self, project: Project) -> None:
        blocker = project.write("blocker", "a file, where the store should be")
        told(project.run("lock", "small", ENVBUILD_STORE=str(blocker)), 7, "blocker")


class TestLocking:
    def facts(self, project: Project) -> str:
        return str(project.write("facts.json", json.dumps(FACTS)))

    def recipe(self, project: Project, *lines: str) -> None:
        quoted = ", ".join(json.dumps(line) for line in lines)
        text = '[recipe]\nname = "small"\n\n[base]\nimage = "lab/base:1"\n\n[python]\ndependencies = [%s]\n'
        project.write("recipes/small.toml", text % quoted)

    def test_unreachable_index(self, project: Project) -> None:
        self.recipe(project, "six")
        result = project.run(
            "lock",
            "small",
            "--facts",
            self.facts(project),
            ENVBUILD_INDEX="http://127.0.0.1:9/simple",
        )
        told(result, 5, "127.0.0.1:9")
        assert not (project.folder / "lockfiles").exists()

    def test_bad_date(self, project: Project) -> None:
        told(
            project.run("lock", "small", "--as-of", "soon"),
            2,
            "--as-of soon: write a day as YYYY-MM-DD, or none",
        )

    def test_facts_that_are_none(self, project: Project) -> None:
        self.recipe(project, "six")
        project.write("facts.json", "{}")
        told(project.run("lock", "small", "--facts", "facts.json"), 2, "facts.json")

    def test_check_without_a_lock(self, project: Project) -> None:
        told(
            project.run("lock", "small", "--check"),
            4,
            "there is no lock yet",
            "run: envbuild lock small",
        )

    def test_a_lock_that_is_garbage(self, project: Project) -> None:
        project.write("lockfiles/small.lock", "not a lock")
        told(project.run("make", "small"), 2, "small.lock, line 1, column ", "is not valid TOML")


class TestTools:
    def path_without(self, tmp_path: Path, *missing: str) -> str:
        """Return a PATH that holds every program of this machine but the missing ones."""
        folder = tmp_path / "bin"
        folder.mkdir()
        for place in os.environ["PATH"].split(":"):
            for program in Path(place).glob("*") if Path(place).is_dir() else ():
                if program.name not in missing and not (folder / program.name).exists():
                    (folder / program.name).symlink_to(program)
        return str(folder)

    def test_apptainer_missing(self, project: Project, tmp_path: Path) -> None:
        path = self.path_without(tmp_path, "apptainer", "singularity")
        result = project.run("make", "keras-bert", PATH=path)
        told(
            result,
            7,
            "neither apptainer nor singularity was found on PATH",
            "bash scripts/setup-debian.sh",
        )

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ("apptainer version 1.0.3", "apptainer 1.0.3 is too old: 1.1 or newer is needed"),
            ("hello", "this is not a working Apptainer or Singularity"),
        ],
    )
    def test_apptainer_that_will_not_do(
        self, said: str, expected: str, project: Project, tmp_path: Path
    ) -> None:
        path = self.path_without(tmp_path, "apptainer", "singularity")
        program = Path(path) / "apptainer"
        program.write_text(f"#!/bin/sh\necho {said}\n")
        program.chmod(0o755)
        told(project.run("make", "keras-bert", PATH=path), 7, expected)

    @needs("apptainer")
    def test_no_apt_and_no_mirror(self, project: Project, tmp_path: Path) -> None:
        path = self.path_without(tmp_path, "apt-get", "apt-config", "apt-cache")
        told(project.run("lock", "small", PATH=path), 7, "apt-get")


@pytest.mark.live
@needs("apptainer", "mmdebstrap", "apt-get")
class TestReal:
    def locked(self, project: Project) -> Path:
        project.succeed("lock", "small")
        return project.folder / "lockfiles" / "small.lock"

    def test_a_hash_that_the_index_does_not_have(self, tmp_path: Path) -> None:
        project = small_project(tmp_path / "project")
        lock = self.locked(project)
        text = lock.read_text()
        found = re.search(
            r'six-1.16.0-py2.py3-none-any.whl", size = \d+, sha256 = "([0-9a-f]{64})"', text
        )
        assert found is not None
        lock.write_text(text.replace(found[1], "0" * 64))
        result = project.run("make", "small")
        told(result, 6, "six-1.16.0-py2.py3-none-any.whl", "0" * 64)
        assert not (project.folder / "small.sif").exists()

    def test_a_debian_package_that_is_gone(self, tmp_path: Path) -> None:
        project = small_project(tmp_path / "project")
        lock = self.locked(project)
        text = lock.read_text()
        found = re.search(
            r'(pool/main/h/hello-traditional/\S+\.deb)", size = \d+, sha256 = "([0-9a-f]{64})"',
            text,
        )
        assert found is not None
        lock.write_text(
            text.replace(found[1], "pool/main/h/hello-traditional/gone_1_amd64.deb").replace(
                found[2], "1" * 64
            )
        )
        told(project.run("make", "small"), 5, "gone_1_amd64.deb", "--upgrade-system")

    def test_a_system_package_that_does_not_exist(self, tmp_path: Path) -> None:
        project = small_project(tmp_path / "project")
        project.write("recipes/small.toml", SMALL.replace("hello-traditional", "grafviz"))
        told(project.run("lock", "small"), 2, "grafviz")
        assert not (project.folder / "lockfiles").exists()

    @pytest.mark.skipif(
        not may_be_root(), reason="only root, or a user with sudo, can mount a small file system"
    )
    def test_no_space_is_told_before_anything_is_downloaded(self, tmp_path: Path) -> None:
        small = tmp_path / "small-disk"
        small.mkdir()
        run = LocalRunner()
        mounted = run(
            Command(argv=(*AS_ROOT, "mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(small))),
            check=False,
        )
        if mounted.code != 0:
            pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
        try:
            project = Project(tmp_path / "project", small / "store")
            told(project.run("make", "keras-bert"), 8, "are needed", "are free", "ENVBUILD_STORE")
            assert not list(small.rglob("*.partial"))
        finally:
            run(Command(argv=(*AS_ROOT, "umount", str(small))))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_a_user_without_subuid_lines(self, tmp_path: Path) -> None:
        from tests.tiny_image import AS_NOBODY, open_folder

        folder = open_folder() / "nobody"
        project = small_project(folder)
        self.locked(project)
        run = LocalRunner()
        for sha256 in set(
            re.findall(r'sha256 = "([0-9a-f]{64})"', (folder / "lockfiles/small.lock").read_text())
        ):
            kept = project.store / "v1/artifacts" / sha256[:2] / sha256
            if kept.exists():
                (folder / "store/v1/artifacts" / sha256[:2]).mkdir(parents=True, exist_ok=True)
                shutil.copy(kept, folder / "store/v1/artifacts" / sha256[:2] / sha256)
        run(Command(argv=("chown", "-R", "65534:65534", str(folder))))
        program = (*AS_NOBODY, sys.executable, "-m", "envbuild")
        if (
            run(
                Command(argv=(*program, "--version"), cwd=folder, env=project.env), check=False
            ).code
            != 0
        ):
            pytest.skip("another user may not enter the folder that the tests run from")
        argv = (*program, "make", "small")
        env = {**project.env, "TMPDIR": str(folder), "ENVBUILD_STORE": str(folder / "store")}
        result = run(Command(argv=argv, cwd=folder, env=env, timeout=300), check=False)
        told(result, 7, "/etc/subuid")
        assert not (folder / "small.sif").exists()


STAGES = {
    "choose the Debian packages": "lock",
    "download": "make",
    "make Debian": "make",
    "check": "make",
}


@pytest.mark.live
@needs("apptainer", "mmdebstrap", "apt-get")
@pytest.mark.parametrize("stage", sorted(STAGES))
def test_ctrl_c_in_every_stage(stage: str, tmp_path: Path) -> None:
    """The build stage itself has its own test beside the other tests of make."""
    project = small_project(tmp_path / "project", tmp_path / "store" if stage != "check" else None)
    if stage == "check":
        # another text each time: the shared store may know that this very image has passed this very script
        project.write("recipes/check.py", f"import time; time.sleep(600)  # {time.time_ns()}\n")
    process = project.start("-v", STAGES[stage], "small")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(stage) and line.endswith((" …\n", "B\n")):
            break
    else:
        pytest.fail(f"the stage {stage!r} was never told")
    time.sleep(1.0 if stage != "download" else 0.05)
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[1]
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert not list(project.folder.glob("*.sif"))
    assert not list((project.store / "v1").glob("bases/*.partial"))
    assert not _left_running(tmp_path)


IMPORTED = """\
import sys
from envbuild.__main__ import main

class Interrupt:
    @staticmethod
    def find_spec(name, *_):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt)
main()
"""


def test_ctrl_c_while_the_program_is_still_imported() -> None:
    ran = LocalRunner()(Command(argv=(sys.executable, "-c", IMPORTED, "--help")), check=False)
    assert (ran.code, ran.stdout, ran.stderr) == (130, "", "")


def _left_running(folder: Path) -> str:
    """Return the processes that name a folder; the kernel may take a second to clear a namespace away."""
    for _ in range(50):
        found = LocalRunner()(Command(argv=("pgrep", "-f", str(folder))), check=False).stdout
        if not found:
            return ""
        time.sleep(0.1)
    return found
