"""Environments of others: kept as conda by init, taken over as they are by lock --from."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.app.lock import read_given
from envbuild.errors import IntegrityError, NoSolutionError, UsageError
from envbuild.project.conda.locked_lists import is_conda_list, read_conda_list
from envbuild.project.conda.recipe import draft_conda_recipe, find_conda_file
from envbuild.recipe.find import find_recipe
from tests.conda.channels import Served
from tests.conda.test_conda_export import text_of
from tests.conda.test_conda_lock import Project, Run, run  # noqa: F401  (a fixture)

ENVIRONMENT = """
name: rnaseq
channels: [bioconda, conda-forge, defaults]
dependencies:
  - samtools >=1.20
  - r-base=4.4
  - pip
  - pip:
    - course==1.0
    - git+https://example.invalid/x.git
variables: {LAB: "1"}
"""
FORMS = ("conda-explicit", "conda-lock", "pixi")
NAMES = {"conda-explicit": "list.txt", "conda-lock": "conda-lock.yml", "pixi": "pixi.lock"}


@pytest.fixture
def project(tmp_path: Path, channels: Served) -> Project:
    return Project(tmp_path, channels)


def test_an_environment_file_is_kept_as_conda(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(ENVIRONMENT)
    assert find_conda_file(tmp_path) == path
    made = draft_conda_recipe(path, None)
    recipe = made.recipe
    assert recipe.name == "rnaseq"
    assert recipe.conda.channels == ("bioconda", "conda-forge")
    assert recipe.conda.dependencies == ("samtools >=1.20", "r-base=4.4", "pip")
    assert recipe.python.dependencies == ("course==1.0",)
    assert recipe.run.environment == {"LAB": "1"}
    assert recipe.base.cpu
    assert any("channels (defaults)" in note for note in made.below["conda"])
    assert any("example.invalid" in note for note in made.below["conda"])


def test_a_list_of_another_system_loses_what_is_of_that_system(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    specs = ["numpy=1.19.2=py38hadc3359_0", "vs2015_runtime=14.27=h5e58377_2", "pip", "zlib=1.2=h1"]
    path.write_text(f"dependencies: {specs}\n")
    made = draft_conda_recipe(path, None)
    assert made.recipe.conda.dependencies == ("numpy=1.19.2", "pip", "zlib=1.2")
    told = "exported on Windows or macOS: without build strings, and without vs2015_runtime"
    assert told in made.below["conda"]
    # a list of Linux keeps its builds
    path.write_text("channels: [conda-forge]\ndependencies: [numpy=1.19.2=py38hadc3359_0]\n")
    kept = draft_conda_recipe(path, None).recipe.conda.dependencies
    assert kept == ("numpy=1.19.2=py38hadc3359_0",)


def test_a_framework_asks_for_its_nodes(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text("dependencies: [pytorch, python=3.12]\n")
    made = draft_conda_recipe(path, None)
    assert made.recipe.conda.channels == ("conda-forge",)
    assert not made.recipe.base.cpu
    assert "driver" in made.below["target"][0]
    assert draft_conda_recipe(path, "lab:gpu").recipe.target.sites == ("lab:gpu",)


@pytest.mark.parametrize("wheel", ["torch==2.4.1", "jax[cuda12]"])
def test_a_framework_of_pip_is_one_for_the_gpu_too(wheel: str, tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(f"dependencies: [samtools, pip, {{pip: ['{wheel}']}}]\n")
    assert not draft_conda_recipe(path, None).recipe.base.cpu


def test_a_channel_that_a_line_names_is_asked_after_the_others(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(
        "channels: [default]\ndependencies: ['nvidia::cuda-nvcc=12.4', 'a::b', samtools, samtools]\n"
    )
    made = draft_conda_recipe(path, None)
    assert made.recipe.conda.channels == ("conda-forge", "nvidia", "a")
    assert made.recipe.conda.dependencies == ("nvidia::cuda-nvcc=12.4", "a::b", "samtools")
    assert made.below["conda"] == ("Anaconda Inc.'s channels (default): conda-forge is taken",)


def test_what_is_no_match_spec_is_mended_or_told(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    lines = ["python=>3.11", "ray[tune]", "a=<2", "b c/d", "anaconda::numpy"]
    path.write_text(f"channels: [main, lab]\ndependencies: {lines}\n")
    made = draft_conda_recipe(path, None)
    assert made.recipe.conda.channels == ("conda-forge", "lab")
    assert made.recipe.conda.dependencies == ("python>=3.11", "ray", "a<=2", "numpy")
    assert made.below["conda"] == (
        "Anaconda Inc.'s channels (main): conda-forge is taken",
        "conda has no extras: ray[tune] is taken as ray",
        "not taken: 'b c/d' names no package; addresses and files are not allowed here",
    )


@pytest.mark.parametrize("line", ["jax", "lightning", "cudatoolkit", "{pip: [timm]}"])
def test_what_requires_a_framework_is_no_draft_for_the_processor(line: str, tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(f"dependencies: [samtools, {line}]\n")
    assert not draft_conda_recipe(path, None).recipe.base.cpu


STAND_INS = {
    "the vendor's own packages and builds": (
        """
channels: [pytorch, defaults]
dependencies: [numpy=1.18.1=py37h4f9e942_0, keras-gpu=2.3.1, blas=1.0=mkl,
  pytorch=1.8.1=py3.8_cuda10.2_cudnn7.6.5_0]
""",
        ("numpy=1.18.1", "keras=2.3.1", "pytorch=1.8.1=py3.8_cuda10.2_cudnn7.6.5_0"),
        (),
        "the channel defaults alone has keras-gpu (keras), blas (left out)",
    ),
    "a dump of the vendor's channels": (
        """
channels: [defaults]
dependencies: [_libgcc_mutex=0.1=main, openssl=1.1.1k=h27cfd23_0, mkl=2020.2=256, six=1.16=pyhd3_0,
  pip=21.0=py38_0, cudatoolkit=10.1=h6bb024c_0, python=3.8.8=h12_5, tensorflow-gpu=2.4=h30a_0,
  pandas=1.2.4=py38ha9, samtools=1.3=0, xz=5.2.5=h7b]
""",
        (
            "six",
            "cudatoolkit=10.1",
            "python=3.8.8",
            "tensorflow-gpu=2.4",
            "pandas=1.2.4",
            "samtools=1.3",
        ),
        (),
        "a dump of a whole environment: 5 libraries are left out, for others bring them; conda env export --from-history lists what was asked for",
    ),
    "a dump of several channels with CUDA of pip": (
        """
channels: [pytorch, nvidia, conda-forge, defaults]
dependencies: [_openmp_mutex=4.5=2_gnu, xorg-libx11=1.8.11=h4f16b4b_0, intel-openmp=2022.0.1=h06a4308_3633,
  cuda-cudart=12.1.105=0, cuda-cupti=12.1.105=0, libnpp=12.0.2.50=0, pytorch-cuda=12.1=ha16c6d3_6, cmake=3.31.5=h74e3db0_0,
  python=3.9.21=h9c0c6dc_1_cpython, jinja2=3.1.5=py39h06a4308_0, xz, {pip: [torch==2.8.0, nvidia-cublas-cu12==12.8.4.1]}]
""",
        ("cmake=3.31.5", "python=3.9.21", "jinja2"),
        ("torch==2.8.0", "nvidia-cublas-cu12==12.8.4.1"),
        "a dump of a whole environment: 8 libraries are left out, for others bring them; conda env export --from-history lists what was asked for",
    ),
    "builds of conda-forge beside the vendor's": (
        "channels: [conda-forge, defaults]\ndependencies: [numpy=1.18.1=py37h4f9e942_0]",
        ("numpy=1.18.1=py37h4f9e942_0",),
        (),
        "Anaconda Inc.'s channels (defaults): conda-forge is taken",
    ),
    "pytorch-cuda without its channel": (
        "channels: [nvidia, conda-forge]\ndependencies: [pytorch=2.1, pytorch-cuda=11.8=h7_5]",
        ("pytorch=2.1", "cuda-version=11.8"),
        (),
        "the channel pytorch alone has pytorch-cuda (cuda-version)",
    ),
    "pytorch-cuda of its channel": (
        "channels: [pytorch, nvidia]\ndependencies: [pytorch, pytorch-cuda=11.8]",
        ("pytorch", "pytorch-cuda=11.8"),
        (),
        None,
    ),
    "wheels of what conda brings": (
        """
channels: [conda-forge]
dependencies: [jaxlib=0.4.20, numpy, pytorch, pip, {pip: [
  'jaxlib==0.4.20+cuda12.cudnn89', 'numpy<2', 'torch==2.4.1+cu121', 'six',
  'torchvision==0.19.1+cu121']}]
""",
        ("jaxlib=0.4.20", "numpy <2", "pytorch ==2.4.1", "pip"),
        ("six", "torchvision==0.19.1"),
        "conda brings it, so pip does not: jaxlib==0.4.20+cuda12.cudnn89",
    ),
    "the project with a group for the GPU": (
        "channels: [conda-forge]\ndependencies: [samtools, pip, {pip: ['-e .[gpu]', 'six']}]",
        ("samtools", "pip"),
        ("six", "pandas", "cupy-cuda12x"),
        None,
    ),
}


@pytest.mark.parametrize("case", STAND_INS)
def test_what_stands_for_lines_that_cannot_stay(case: str, tmp_path: Path) -> None:
    text, specs, wheels, told = STAND_INS[case]
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "own"\nversion = "1"\ndependencies = ["pandas"]\n'
        '[project.optional-dependencies]\ngpu = ["cupy-cuda12x"]\ndev = ["ruff"]\n'
    )
    path = tmp_path / "environment.yml"
    path.write_text(text)
    made = draft_conda_recipe(path, None)
    assert made.recipe.conda.dependencies == specs
    assert made.recipe.python.dependencies == wheels
    assert told is None or told in made.below["conda"]
    on_gpu = "conda-forge beside" not in case
    assert made.recipe.base.cpu != on_gpu


def test_an_explicit_list_is_known_by_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "env.yml"
    path.write_text(f"@EXPLICIT\n{ARCHIVE.format('lab', 'tool')}\n")
    assert draft_conda_recipe(path, None).recipe.conda.dependencies == ("tool ==1",)


ARCHIVE = "https://x.invalid/{}/linux-64/{}-1-0.conda"
CHANNELS = {
    "conda-lock.yml": """\
metadata: {{channels: [{{url: second}}, {{url: "https://x.invalid/first/"}}, {{url: unused}}]}}
package:
- {{name: a, version: 1, platform: linux-64, manager: conda, url: "{a}"}}
- {{name: b, version: 1, platform: linux-64, manager: conda, url: "{b}"}}
""",
    "pixi.lock": """\
version: 6
environments:
  default:
    channels: [{{url: "https://x.invalid/second/"}}, {{url: "https://x.invalid/first/"}}]
    packages:
      linux-64: [{{conda: "{a}"}}, {{conda: "{b}"}}]
packages:
- {{conda: "{a}"}}
- {{conda: "{b}"}}
""",
}


@pytest.mark.parametrize("name", sorted(CHANNELS))
def test_channels_keep_the_order_of_the_lock(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    archives = {"a": ARCHIVE.format("first", "a"), "b": ARCHIVE.format("second", "b")}
    path.write_text(CHANNELS[name].format_map(archives))
    assert draft_conda_recipe(path, None).recipe.conda.channels == ("second", "first")


def test_what_conda_lock_writes_for_pip_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "conda-linux-64.lock"
    files = "https://x.invalid/p"
    path.write_text(
        f"@EXPLICIT\n{ARCHIVE.format('forge', 'a')}\n"
        f"# pip antlr4-python3-runtime @ {files}/antlr4-python3-runtime-4.9.3.tar.gz#sha256=f2\n"
        f"# pip six @ {files}/six-1.16.0-py2.py3-none-any.whl#sha256=f2\n"
    )
    wheels = draft_conda_recipe(path, None).recipe.python.dependencies
    assert wheels == ("antlr4-python3-runtime==4.9.3", "six==1.16.0")


def test_init_writes_a_recipe_that_can_be_read(project: Project, run: Run) -> None:  # noqa: F811
    (project.folder / "environment.yml").write_text(ENVIRONMENT)
    code, _, err = run("init", "--conda", "--offline")
    assert code == 0, err
    assert "samtools" not in err
    assert find_recipe("rnaseq", project.settings).recipe.conda.channels[0] == "bioconda"


@pytest.mark.parametrize("form", FORMS)
def test_a_locked_environment_is_taken_over_as_it_is(form: str, project: Project) -> None:
    lock = project.lock("dated", "samtools", "requests", "python 3.11.*", as_of="2026-03-01")
    path = project.folder / NAMES[form]
    path.write_text(text_of(form, lock, project))
    assert is_conda_list(path)
    made = draft_conda_recipe(path, None).recipe
    assert made.conda.channels == ("forge",)
    assert "dated ==1.0" in made.conda.dependencies
    given = read_given(find_recipe("cell", project.settings), path)
    # the newest would be another one
    again = project.lock("dated", "samtools", "requests", "python", given=given)
    assert [p.file for p in again.conda] == [p.file for p in lock.conda]


def test_what_is_given_and_does_not_fit_is_refused(project: Project) -> None:
    lock = project.lock("samtools")
    path = project.folder / "list.txt"
    text = text_of("conda-explicit", lock, project)
    path.write_text(text)
    source = find_recipe("cell", project.settings)
    with pytest.raises(NoSolutionError, match="is not whole: it also needs r-base"):
        project.lock("samtools", "r-base", given=read_given(source, path))
    digest = text.rstrip().rpartition("#")[2]
    path.write_text(text.replace(digest, "0" * 32))
    with pytest.raises(IntegrityError, match="another file of that name"):
        project.lock("samtools", given=read_given(source, path))


BROKEN = {
    "no hash sign": ("@EXPLICIT\nnot a package\n", "is no conda package"),
    "another platform": (
        "@EXPLICIT\nhttps://x.invalid/forge/osx-64/a-1-0.conda\n",
        "has packages for osx-64",
    ),
    "nothing": ("@EXPLICIT\n", "has no packages"),
    "not YAML": ("package:\n  - {\n", "is not YAML"),
    "rows of text": ("package: [a, b]\n", "has no list of packages"),
    "a host in a build": (
        "@EXPLICIT\nhttps://x.invalid/forge/linux-64/a-1-../../b.conda\n",
        "is no conda package",
    ),
    "no environments": ("environments: 7\n", "is not a pixi.lock"),
    "something else": ("hello\n", "is not a locked conda environment"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_list_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "pixi.lock"
    text, message = BROKEN[name]
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_conda_list(path, "linux-64")


def test_a_list_with_archives_of_the_vendor_says_so(tmp_path: Path) -> None:
    path = tmp_path / "spec-file.txt"
    path.write_text(
        "@EXPLICIT\nhttps://repo.anaconda.com/pkgs/main/linux-64/blas-1.0-mkl.tar.bz2\n"
    )
    notes = draft_conda_recipe(path, None).below["conda"]
    assert any("Anaconda Inc." in note and "blas-1.0-mkl" in note for note in notes)


def test_a_package_of_a_lock_that_requires_nothing_by_name(tmp_path: Path) -> None:
    path = tmp_path / "pixi.lock"
    text = CHANNELS["pixi.lock"].format(a=ARCHIVE.format("c", "a"), b=ARCHIVE.format("c", "b"))
    path.write_text(text.replace('"}\n- {', '", depends: [""]}\n- {'))
    assert read_conda_list(path, "linux-64").archives[0].requires == ("",)


def test_a_token_in_a_list_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("@EXPLICIT\nhttps://u:geheim@x.invalid/t/tk-1/forge/linux-64/a.zip\n")
    with pytest.raises(UsageError) as refused:
        read_conda_list(path, "linux-64")
    assert "geheim" not in str(refused.value)
    assert "tk-1" not in str(refused.value)
