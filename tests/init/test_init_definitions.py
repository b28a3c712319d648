"""init on definitions: Dockerfiles taken apart, chained lines, what a build could not do, conda names."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.project.cuda import cuda_of
from envbuild.project.images.dockerfile import read_dockerfile
from envbuild.project.names import conda_name, debian_name, implied_framework
from envbuild.project.shell.installs import read_lines, removes_framework
from tests.init.projects import comments, dependencies, drafted, write


def test_a_dockerfile_taken_apart() -> None:
    stages = read_dockerfile(
        '# escape=\\\nARG V=2.1\nFROM --platform=linux/amd64 base:${V} AS One\nARG NAME=x\nARG V\nENV A=1 B="two words"\nENV OLD form of it\n'
        "WORKDIR /opt/${NAME}\nRUN echo $A ${B} $V ${NONE:-else} $UNKNOWN \\\n  # a comment\n\n  && make\n"
        'COPY --chown=1:1 a.txt b.txt /tmp/\nCOPY --from=other /x /y\nCMD run\nFROM one\nENTRYPOINT ["python", "t.py"]\n'
        "RUN <<EOF bash\npip install numpy\n\nmake\nEOF\nRUN cat <<'E' > /f\nhidden\nE\n"
    )
    first, last = stages
    assert (first.start, first.name, last.start) == ("base:2.1", "one", "one")
    assert [line.split() for line in first.lines] == [
        ["cd", "/opt/x"],
        ["echo", "1", "two", "words", "2.1", "else", "$UNKNOWN", "&&", "make"],
    ]
    assert first.variables == {"A": "1", "B": "two words", "OLD": "form of it"}
    assert first.copies == [("a.txt", "/tmp/"), ("b.txt", "/tmp/")]
    assert last.entrypoint == ("python", "t.py")
    assert last.lines[-3:] == ["cat <<'E' > /f", "hidden", "E"]
    assert read_dockerfile("RUN x") == []
    assert read_dockerfile("FROM a\nRUN echo \\") != []


def test_secrets_are_not_filled_in() -> None:
    [stage] = read_dockerfile(
        "FROM a\nARG API_TOKEN=abc\nENV MY_KEY=k1\nRUN use $API_TOKEN ${MY_KEY}\n"
    )
    assert stage.lines == ["use $API_TOKEN ${MY_KEY}"]


def test_lists_under_another_name_and_packages_of_a_file(tmp_path: Path) -> None:
    files = {
        "Dockerfile": "FROM python:3.11\nCOPY docker/reqs.txt /tmp/requirements.txt\nCOPY apt.txt /apt.txt\n"
        "RUN apt-get update && apt-get install -y $(cat /apt.txt) && pip install -r /tmp/requirements.txt\n",
        "docker/reqs.txt": "einops\n",
        "apt.txt": "sox\n# a comment\nffmpeg\n",
    }
    made = drafted(write(tmp_path, files)).recipe
    assert made.python.dependencies == ("einops",)
    assert made.system.packages == ("sox", "ffmpeg")
    assert made.base.bootstrap == "debian:bookworm"


def test_an_apptainer_definition_with_everything(tmp_path: Path) -> None:
    text = """\
Bootstrap: docker
From: nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04  # no Python in it
%files
    reqs/base.txt /opt/requirements.txt
%post
    apt-get update && apt-get install -y libgl1-mesa-glx gcc-9 \\
        language-pack-ja || true
    cd /opt && python3 -m pip install -r requirements.txt -e . ; bash -c "pip install numba && make"
    pip install "jax[cuda12]" --find-links https://x.invalid/jax && conda install -y -c nvidia cuda-toolkit=11.8
    wget https://x.invalid/tool.tar.gz && tar xf tool.tar.gz
    cd tool && ./configure
    pip uninstall -y jax
%environment
    export OMP_NUM_THREADS=4; export HF_HOME=/models
    export LD_PRELOAD=/x.so
%runscript
    exec python3 t.py "$@"
"""
    folder = write(tmp_path, {"lab.def": text, "reqs/base.txt": "einops\n", "t.py": "import jax\n"})
    made = drafted(folder)
    assert made.recipe.python.dependencies == ("einops", "numba")
    assert made.recipe.base.framework == "jax[cuda12]==0.12.*"
    assert made.recipe.system.packages == ("libgl1",)
    assert made.recipe.system.build_packages == ("gcc",)
    assert made.recipe.system.post == ("cd /opt", "make")
    assert made.recipe.run.environment == {"OMP_NUM_THREADS": "4", "HF_HOME": "/models"}
    assert made.recipe.run.command == ("python3", "t.py")
    said = comments(folder)
    for line in ("libgl1-mesa-glx is called libgl1 in Debian", "not taken: Debian has no package language-pack-ja",
                 "not taken: wget https://x.invalid/tool.tar.gz (lab.def): a build has no network",
                 "not taken: tar xf tool.tar.gz (lab.def): it needs what a line before it fetches",
                 "not taken: ./configure (lab.def): it needs what a line before it fetches",
                 "not taken: pip uninstall -y jax (lab.def): it would remove the base's framework",
                 "not taken: variable LD_PRELOAD (lab.def): it loads a library into every program"):  # fmt: skip
        assert line in said


@pytest.mark.parametrize(
    "line",
    ["pip uninstall -y torch numpy", "pip3 uninstall tensorflow-gpu", "conda remove -y pytorch", "rm -rf /usr/lib/python3/dist-packages/torch",
     "rm -r /opt/conda/lib/python3.10/site-packages/*"],
)  # fmt: skip
def test_lines_that_remove_the_framework(line: str) -> None:
    assert removes_framework(line)
    assert not read_lines([line], "a.def").post


@pytest.mark.parametrize(
    "line",
    [
        "pip uninstall -y numpy",
        "rm -rf /opt/conda/lib/python3.10/site-packages/tests",
        "rm -rf /torch",
    ],
)
def test_lines_that_do_not(line: str) -> None:
    assert not removes_framework(line)


def test_editable_folders_are_no_names() -> None:
    found = read_lines(["pip install -e detectron2 && pip install -e . ./part"], "a.def")
    assert found.requirements == []
    assert [text for text, _ in found.aside] == ["detectron2", "./part"]


@pytest.mark.parametrize(
    ("text", "cuda"),
    [("2.0.1+cu118", "11.8"), ("https://x.invalid/whl/cu92", "9.2"), ("docker://nvidia/cuda:11.3.1-cudnn8", "11.3"), ("jax[cuda12_pip]", "12"),
     ("2.1.0+pt113cu117", "11.7"), ("torch-2.0.1%2Bcu118-cp310", "11.8"), ("whl/cpu", None), ("customers/cu1", None), ("cu130", "13.0")],
)  # fmt: skip
def test_cuda_versions(text: str, cuda: str | None) -> None:
    assert cuda_of(text) == cuda


@pytest.mark.parametrize(
    ("package", "known"),
    [
        ("pyg", "torch-geometric"),
        ("c-ares", ""),
        ("mmseqs2", "system:mmseqs2"),
        ("numpy", "numpy"),
        ("pymunk", "pymunk"),
        ("h3-py", "h3"),
        ("rdkit", "rdkit"),
        ("glfw", "system:libglfw3"),
        ("xxhash", ""),
        ("ourlab-tools", None),
        ("r-base", None),
    ],
)
def test_conda_names(package: str, known: str | None) -> None:
    assert conda_name(package) == known


def test_a_conda_package_without_a_row_is_a_comment(tmp_path: Path) -> None:
    text = "name: lab\ndependencies:\n  - python=3.9\n  - cudatoolkit=11.3\n  - ourlab-tools\n  - numpy\n  - pip: einops tqdm\n"
    folder = write(tmp_path, {"environment.yml": text})
    assert dependencies(folder) == ["einops", "numpy", "tqdm"]
    assert (
        "not taken: ourlab-tools (environment.yml: a conda package that nothing is known of"
        in comments(folder)
    )
    assert drafted(folder / "environment.yml").recipe.name == "lab"


def test_names_of_debian_and_frameworks() -> None:
    assert (debian_name("gcc-9"), debian_name("libssl1.1"), debian_name("git")) == ("gcc", "", None)
    assert (implied_framework("pytorch-lightning"), implied_framework("numpy")) == ("torch", None)


def test_copies_and_commands_are_read_as_docker_reads_them() -> None:
    text = """FROM debian:12
COPY --chown=1:1 one.py two.py /app/
COPY ["three.py", "/app/"]
CMD old
ENTRYPOINT ["python", "/app/one.py"]
CMD ["--steps", "3"]
FROM debian:12
COPY
CMD exec python "a b.py"
"""
    first, last = read_dockerfile(text)
    assert first.copies == [("one.py", "/app/"), ("two.py", "/app/"), ("three.py", "/app/")]
    assert (first.entrypoint, first.command) == (("python", "/app/one.py"), ("--steps", "3"))
    assert (last.copies, last.entrypoint, last.command) == ([], (), ("python", "a b.py"))


NO_ONE = "the project itself is not installed: its folder is bound when the image runs"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Dockerfile", "FROM python:3.11\nRUN cd /app && pip install -e .[dev]\n"),
        ("Dockerfile", "FROM python:3.11\nRUN pip install numpy && pip install .\n"),
        ("Dockerfile", "FROM python:3.11\nRUN python setup.py develop\n"),
        ("env.def", "Bootstrap: docker\nFrom: python:3.11\n%post\n    pip install -e /app\n"),
        ("requirements.txt", "-e .\nnumpy\n"),
        ("requirements.txt", ".[extra]\nnumpy\n"),
        ("environment.yml", "name: a\ndependencies:\n  - pip:\n    - -e .\n"),
    ],
)
def test_what_installs_the_project_itself_is_told(name: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, {name: text, "train.py": "import numpy\n"})
    assert comments(tmp_path).count(NO_ONE) == 1


def test_a_package_that_only_an_installation_finds_is_told(tmp_path: Path) -> None:
    table = '[project]\nname = "lab"\ndependencies = ["numpy"]\n'
    write(tmp_path, {"pyproject.toml": table, "src/lab/__init__.py": "", "t.py": "import lab\n"})
    assert 'lab (in src/) can be imported once it is installed: add "-e ."' in comments(tmp_path)
    flat = tmp_path / "flat"
    write(flat, {"pyproject.toml": table, "lab/__init__.py": "", "t.py": "import lab\n"})
    assert "installed" not in comments(flat)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "-e ./ops[gpu]\nnumpy\n"),
        ("requirements.txt", "./ops[gpu]\n"),
        ("Dockerfile", "FROM python:3.11\nRUN pip install -e ./ops[gpu]\n"),
        ("image.def", "Bootstrap: docker\nFrom: python:3.11\n%post\n pip install ./ops[gpu]\n"),
        (
            "image.def",
            "Bootstrap: docker\nFrom: python:3.11\n%files\n ops /ours\n%post\n pip install -e /ours[gpu]\n",
        ),
        ("Dockerfile", "FROM python:3.11\nCOPY . /all/\nRUN pip install /all/ops[gpu]\n"),
        ("Dockerfile", "FROM python:3.11\nCOPY ops /ours\nWORKDIR /ours\nRUN pip install .[gpu]\n"),
    ],
)
def test_a_folder_of_the_project_is_named_as_a_recipe_has_it(
    name: str, text: str, tmp_path: Path
) -> None:
    write(tmp_path, {name: text, "ops/pyproject.toml": "[build-system]\n"})
    assert 'a folder of the project: "-e ./ops[gpu]" in the dependencies' in comments(tmp_path)


@pytest.mark.parametrize(("tag", "told"), [("runtime", True), ("devel", False)])
def test_a_base_with_nvcc_is_asked_for_where_it_has_none(
    tag: str, told: bool, tmp_path: Path
) -> None:
    image = f"pytorch/pytorch:2.5.1-cuda12.4-cudnn9-{tag}"
    write(
        tmp_path,
        {"Dockerfile": f"FROM {image}\nRUN pip install flash-attn\n", "t.py": "import torch\n"},
    )
    assert ("compiled for the GPU" in comments(tmp_path)) == told


def test_code_that_the_project_compiles_is_told(tmp_path: Path) -> None:
    setup = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        'setup(name="roll", ext_modules=[CUDAExtension("roll", ["roll.cu"])], install_requires=["torch"])\n'
    )
    write(tmp_path, {"setup.py": setup, "train.py": "import torch, roll\n"})
    told = comments(tmp_path)
    assert (
        'setup.py compiles code of the project: add "-e ." to the dependencies '
        "and take a base with nvcc" in told
    )
    assert "unknown: the module roll" not in told


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", 'setup(name="lab", ext_modules=[Extension("lab_fast.core", ["c.c"])])'),
        (
            "setup.py",
            'setup(name="lab", ext_modules=[cpp.CppExtension(name="lab_fast", sources=[])])',
        ),
        ("ops/setup.py", 'setup(name="ops", ext_modules=[CUDAExtension("lab_fast", ["k.cu"])])'),
        ("pyproject.toml", '[[tool.setuptools.ext-modules]]\nname = "lab_fast.core"\n'),
        ("pyproject.toml", '[tool.maturin]\nmodule-name = "lab_fast._core"\n'),
    ],
)
def test_a_module_that_the_project_compiles_is_its_own(
    name: str, text: str, tmp_path: Path
) -> None:
    write(tmp_path, {name: text, "train.py": "import torch, lab_fast.core, lab_slow\n"})
    told = comments(tmp_path)
    assert "the module lab_slow" in told
    assert "lab_fast" not in told


def test_chained_lines_of_a_dockerfile_are_single_commands(tmp_path: Path) -> None:
    dockerfile = (
        "FROM python:3.11\n"
        "RUN apt-get update && \\\n    apt-get install -y --no-install-recommends \\\n"
        "      ffmpeg \\\n      # for the videos\n      sox && \\\n    rm -rf /var/lib/apt/lists/* \\\n"
        "    && pip install --no-cache-dir einops==0.8.0 \\\n        'rich>=13' ; pip3 install six || true\n"
    )
    made = drafted(write(tmp_path, {"Dockerfile": dockerfile})).recipe
    assert made.system.packages == ("ffmpeg", "sox")
    assert made.python.dependencies == ("einops==0.8.0", "rich>=13", "six")
    assert made.system.post == ()


def test_files_that_a_definition_copies_are_read_and_told(tmp_path: Path) -> None:
    text = (
        "Bootstrap: docker\nFrom: debian:12\n%files\n    lists/all.txt /opt/r.txt\n    data /opt/data\n"
        "%post\n    pip install -r /opt/r.txt\n"
    )
    folder = write(tmp_path, {"x.def": text, "lists/all.txt": "einops\n", "data/a.csv": "1\n"})
    assert dependencies(folder) == ["einops"]
    copied = "copies files into the image: lists/all.txt /opt/r.txt, data /opt/data;"
    assert copied in comments(folder)


def test_variables_of_a_definition_are_those_of_the_image(tmp_path: Path) -> None:
    text = (
        "Bootstrap: docker\nFrom: debian:12\n%environment\n    export OMP_NUM_THREADS=2\n"
        "    TOKENIZERS_PARALLELISM='false'\n    export TOKENIZERS_PARALLELISM\n"
        "    export HF_TOKEN=hf_abc PATH=/opt/x:$PATH\n%post\n    pip install einops\n"
    )
    folder = write(tmp_path, {"x.def": text})
    environment = drafted(folder).recipe.run.environment
    assert environment == {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"}
    assert "hf_abc" not in comments(folder)


@pytest.mark.parametrize(
    ("workdir", "target"), [("/app", "/app"), ("/app", "/app/"), ("/app", "."), ("app", ".")]
)
def test_what_a_dockerfile_runs_on_the_project_s_files_is_told(
    workdir: str, target: str, tmp_path: Path
) -> None:
    lines = f"WORKDIR {workdir}\nCOPY . {target}\nRUN chmod -R 777 config\nWORKDIR /opt/x\nRUN touch a\n"
    text = "FROM python:3.11\nRUN apt-get install -y google-cloud-sdk sox\n" + lines
    made = drafted(write(tmp_path, {"Dockerfile": text, "train.py": "import numpy\n"})).recipe
    made_and_run = "(mkdir -p /opt/x && cd /opt/x && touch a)"
    assert made.system.packages == ("sox",)
    assert made.system.post == (() if target == "." else (made_and_run,))
    said = comments(tmp_path)
    assert "not taken: chmod -R 777 config (Dockerfile): it works on the project's files" in said
    assert "not taken: Debian has no package google-cloud-sdk" in said
