"""From a recipe to an image, for real, through the command line: the thin path end to end."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from envbuild.host import read_driver
from envbuild.run import Command, LocalRunner, Result
from tests.project import SMALL, SUMMARY, Project, small_project
from tests.support import needs

TOOLS = needs("apptainer", "mmdebstrap", "apt-get")


def partials(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.name.endswith((".partial", ".sif")) and "images" not in path.parts
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Result]:
    """The small project, locked and built once for this module."""
    folder = tmp_path_factory.mktemp("small")
    project = small_project(folder, folder / "store")
    project.read_shared_store()
    # no other test makes this image: the build itself is what is tested
    project.write("recipes/small.toml", SMALL.replace(SUMMARY, f"{SUMMARY}, and no image of it"))
    project.succeed("lock", "small")
    return project, project.run("make", "--mode", "fakeroot")


@pytest.mark.live
@TOOLS
class TestSmall:
    def test_make_says_what_was_built_proved_and_how_to_run_it(
        self, made: tuple[Project, Result]
    ) -> None:
        project, result = made
        assert result.code == 0, result.stderr
        assert "small: " in result.stderr
        assert "an image of about" in result.stderr
        assert result.stdout.startswith("\nsmall.sif: ")
        assert "proved " in result.stdout
        unseen = "this machine has no NVIDIA driver" in result.stdout
        assert unseen == (read_driver() is None)
        assert "envbuild exec small -- python train.py" in result.stdout
        assert "exec small.sif python train.py" in result.stdout  # no CUDA, so no --nv
        assert (project.folder / "small.sif").is_file()
        assert partials(project.folder) == [project.folder / "small.sif"]

    def test_the_image_holds_what_is_locked(self, made: tuple[Project, Result]) -> None:
        project, _ = made
        code = "import six, docopt, sys; print(six.__version__, docopt.__version__, sys.version_info[:2])"
        result = project.run("exec", "small", "--", "python", "-c", code)
        assert (result.code, result.stdout) == (0, "1.16.0 0.6.2 (3, 11)\n"), result.stderr
        assert project.run("exec", "small", "--", "hello").stdout == "Hello, world!\n"

    def test_bytecode_is_compiled_and_never_stale(self, made: tuple[Project, Result]) -> None:
        project, _ = made
        code = (
            "import six, importlib.util as u; data = open(u.cache_from_source(six.__file__), 'rb').read(16);"
            "print(int.from_bytes(data[4:8], 'little'))"
        )
        # PEP 552: flags 1 = hash-based, unchecked
        assert project.run("exec", "small", "--", "python", "-c", code).stdout == "1\n"

    def test_nothing_of_the_build_is_left(self, made: tuple[Project, Result]) -> None:
        project, _ = made
        listing = project.run(
            "exec", "small", "--", "ls", "-A", "/", "/tmp", "/var/cache/apt", "/var/lib/apt/lists"
        )
        assert ".envbuild" not in listing.stdout.split()
        assert ".deb" not in listing.stdout
        sources = project.run(
            "exec", "small", "--", "cat", "/etc/apt/sources.list", "/.singularity.d/Singularity"
        )
        assert "://" not in sources.stdout.replace('://"', "")

    def test_exit_codes_are_the_commands_own(self, made: tuple[Project, Result]) -> None:
        project, _ = made
        assert project.run("exec", "small", "--", "python", "-c", "raise SystemExit(41)").code == 41
        assert project.run("run", "small").stdout == "the default command\n"
        assert project.run("exec", "nothing.sif", "--", "true").code == 125

    def test_plain_apptainer_agrees(self, made: tuple[Project, Result]) -> None:
        project, _ = made
        run = LocalRunner()
        image = str(project.folder / "small.sif")
        labels = run(Command(argv=("apptainer", "inspect", "--json", image))).stdout
        attributes = json.loads(labels)["data"]["attributes"]["labels"]
        assert attributes["envbuild.recipe"] == "small"
        assert attributes["envbuild.base"].startswith("debian:bookworm sha256:")
        tested = run(
            Command(argv=("apptainer", "--quiet", "test", "--userns", image), env=project.env),
            check=False,
        )
        assert tested.code == 0, tested.stderr

    def test_check_as_json_satisfies_its_schema(self, made: tuple[Project, Result]) -> None:
        import jsonschema

        project, _ = made
        report = json.loads(project.run("check", "small", "--json").stdout)
        schema = json.loads(project.run("schema", "--of", "report").stdout)
        jsonschema.validate(report, schema)
        assert report["verdict"] == "passed"
        outcomes = {finding["check"]: finding["outcome"] for finding in report["findings"]}
        assert outcomes["script"] == outcomes["direct-imports"] == "passed"
        if not Path("/dev/nvidiactl").exists():
            assert outcomes["driver"] == "skipped"
            required = project.run("check", "small", "--require-gpu")
            assert required.code == 1

    def test_the_second_make_takes_the_image_from_the_store(
        self, made: tuple[Project, Result]
    ) -> None:
        project, _ = made
        (project.folder / "small.sif").unlink()
        result = project.run("make", "small", "--mode", "fakeroot")
        assert result.code == 0
        assert "the store has this image already" in result.stderr
        assert (project.folder / "small.sif").is_file()

    def test_a_stale_lock_is_refused_with_the_line(self, made: tuple[Project, Result]) -> None:
        project, _ = made
        recipe = project.folder / "recipes" / "small.toml"
        text = recipe.read_text()
        try:
            recipe.write_text(text.replace('"six==1.16.0"', '"six==1.15.0"'))
            result = project.run("make", "small")
        finally:
            recipe.write_text(text)
        assert result.code == 4
        assert (
            'requirement "six==1.15.0" was added; requirement "six==1.16.0" was removed'
            in result.stderr
        )
        assert "what to do: run: envbuild lock small" in result.stderr

    def test_relocking_changes_nothing(self, made: tuple[Project, Result]) -> None:
        project, _ = made
        lock = project.folder / "lockfiles" / "small.lock"
        before = lock.read_text()
        result = project.run("lock", "small")
        assert (result.code, lock.read_text()) == (0, before)
        assert "no package changed" in result.stderr
        assert project.run("lock", "small", "--check").code == 0

    def test_a_failing_check_script_leaves_no_image(self, made: tuple[Project, Result]) -> None:
        project, _ = made
        script = project.folder / "recipes" / "check.py"
        recipe = project.folder / "recipes" / "small.toml"
        text, image = recipe.read_text(), project.folder / "other.sif"
        try:
            script.write_text("raise SystemExit('the model did not learn')\n")
            recipe.write_text(text.replace("the default command", "another"))
            for kept in (project.store / "v1" / "images").glob("*.sif"):
                kept.unlink()
            result = project.run("make", "small", "-o", str(image), "--mode", "fakeroot")
        finally:
            script.write_text("import six\n")
            recipe.write_text(text)
        assert result.code == 1
        assert "the model did not learn" in result.stderr
        assert not image.exists()
        assert not list((project.store / "v1" / "images").glob("*.sif"))

    def test_ctrl_c_in_the_build_leaves_nothing_and_the_next_run_works(
        self, made: tuple[Project, Result]
    ) -> None:
        project, _ = made
        image = project.folder / "interrupted.sif"
        for kept in (project.store / "v1" / "images").glob("*.sif"):
            kept.unlink()
        process = project.start(
            "-v", "make", "small", "--no-check", "--mode", "fakeroot", "-o", str(image)
        )
        assert process.stderr is not None
        for line in process.stderr:
            if line == "install and pack …\n":
                break
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
        assert process.returncode == 130, rest
        assert "interrupted" in rest
        assert "Traceback" not in rest
        assert not image.exists()
        assert not list((project.store / "v1" / "tmp").glob("build-*"))
        assert (
            project.run("make", "small", "--no-check", "--mode", "fakeroot", "-o", str(image)).code
            == 0
        )
        assert image.is_file()

    def test_the_definition_stands_alone(self, made: tuple[Project, Result]) -> None:
        """Plain Apptainer, without envbuild and its store, installs the same packages."""
        project, _ = made
        alone = project.folder / "alone"
        alone.mkdir()
        definition = project.run("def", "small").stdout
        (alone / "small.def").write_text(definition)
        argv = ("apptainer", "build", "--fakeroot", "small.sif", "small.def")
        env = {**project.env, "TMPDIR": str(alone), "APPTAINER_NO_MOUNT": "tmp"}
        built = LocalRunner()(Command(argv=argv, cwd=alone, env=env, timeout=600), check=False)
        assert built.code == 0, built.stderr[-3000:]
        checked = project.run("check", str(alone / "small.sif"), "--json")
        assert json.loads(checked.stdout)["verdict"] == "passed"
        code = "import six, docopt; print(six.__version__, docopt.__version__)"
        assert (
            project.run("exec", str(alone / "small.sif"), "--", "python", "-c", code).stdout
            == "1.16.0 0.6.2\n"
        )


@pytest.mark.live
@pytest.mark.slow
@TOOLS
def test_make_keras_bert_from_an_empty_folder(tmp_path: Path) -> None:
    """The main job: the shipped recipe and lock, an empty folder, an empty HOME."""
    project = Project(tmp_path / "empty", tmp_path / "store")
    project.read_shared_store()
    result = project.run("make", "keras-bert", timeout=1500)
    assert result.code == 0, result.stderr[-4000:]
    assert "tensorflow 2.15.1" in result.stdout
    report = json.loads(project.run("check", "keras-bert", "--json", timeout=300).stdout)
    script = next(finding for finding in report["findings"] if finding["check"] == "script")
    assert script["outcome"] == "passed"
    assert "loss" in json.dumps(script)
