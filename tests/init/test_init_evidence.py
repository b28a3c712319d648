"""init: what a project says in passing — a CUDA, a Python, its own name — bounds the base of its draft."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.data.lookup import released
from envbuild.project.draft.propose import BaseNeeds, propose_base
from envbuild.project.model import Requirement
from tests.init.projects import comments, dependencies, drafted, write


def base_of(folder: Path) -> str:
    base = drafted(folder).recipe.base
    return f"{base.image or base.bootstrap} {base.framework or ''}"


@pytest.mark.parametrize(
    ("cuda", "line"),
    [("cu116", "torch==1.13."), ("cu118", "torch:2.1."), ("cu121", "torch==2.4.")],
)
def test_the_index_of_a_cuda_tells_the_pytorch_it_has_builds_of(
    tmp_path: Path, cuda: str, line: str
) -> None:
    index = f"--extra-index-url https://mirror.invalid/whl/{cuda}"
    write(tmp_path, {"setup.sh": f"pip install torch {index}\n"})
    write(tmp_path, {"train.py": "import torch\n"})
    assert line in base_of(tmp_path)


@pytest.mark.parametrize(
    ("listed", "line"),
    [
        ("torch\ntorchtext\n", "torch==2.3."),
        ("torch>=1.13,<3\ntorchtext\n", "torch==2.3."),
        # the list knows better
        ("torch>=2.5\ntorchtext\n", "torch==2.10."),
        ("torch\nbasicsr\n", "torch==2.1."),
        ("tensorflow\ntensorflow-io\n", "==2.17."),
    ],
)
def test_a_package_that_has_ended_bounds_the_framework(
    tmp_path: Path, listed: str, line: str
) -> None:
    write(tmp_path, {"requirements.txt": listed})
    assert line in base_of(tmp_path)
    assert ("has no release for" in comments(tmp_path)) == (line != "torch==2.10.")


@pytest.mark.parametrize(
    ("name", "text"), [(".python-version", "3.6.8\n"), ("runtime.txt", "python-3.6.15")]
)
def test_a_file_with_a_python_tells_the_base(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, {name: text, "requirements.txt": "tensorflow>=2,<2.16\n"})
    assert "tensorflow:2.6." in base_of(tmp_path)


@pytest.mark.parametrize("name", ["jax-vit", "vit"])
def test_of_two_frameworks_the_one_that_the_project_is_called_after_counts(
    tmp_path: Path, name: str
) -> None:
    files = {
        "flax_model.py": "import jax\n",
        "model.py": "import torch\n",
        "data.py": "import torch\n",
    }
    write(tmp_path / name, files)
    assert ("jax" if name == "jax-vit" else "torch") in base_of(tmp_path / name)


def test_packages_of_a_framework_count_for_it(tmp_path: Path) -> None:
    lists = "jax\nflax\noptax\ntorch\n"
    files = {
        "train.py": "import jax, flax, optax\n",
        "a.py": "import torch\n",
        "b.py": "import torch\n",
    }
    write(tmp_path, {"requirements.txt": lists, **files})
    assert "jax" in base_of(tmp_path)


@pytest.mark.parametrize(("python", "held"), [("==3.7.*", "2.4"), ("==3.6.*", "2.2.2")])
def test_the_next_line_of_the_framework_costs_less_than_pins_without_files(
    python: str, held: str
) -> None:
    wanted = BaseNeeds(
        framework=Requirement(text="tensorflow==2.2.*", name="tensorflow", where=""),
        python=python,
        pythons=("3.7", "3.8") if python == "==3.7.*" else ("3.6",),
    )
    found = propose_base(wanted)
    assert ("21.05-tf2" if held == "2.4" else "2.2.2-gpu") in str(found.base.image)
    assert found.exact == (held == "2.2.2")


def test_programs_whose_own_files_are_missing_do_not_hide_the_others(tmp_path: Path) -> None:
    write(
        tmp_path, {"train.py": "from tools.gone import Model\n", "models/net.py": "import einops\n"}
    )
    write(tmp_path, {"tools/loader.py": "import numpy\n", "requirements.txt": "tqdm\n"})
    assert dependencies(tmp_path) == ["einops", "numpy", "tqdm"]


def test_a_folder_of_tools_counts_where_the_programs_load_it(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "tqdm\n", "tools/loader.py": "import einops\n"})
    write(
        tmp_path,
        {
            "tests/helper.py": "import numpy\n",
            "train.py": "import tqdm, tools.loader, tests.helper\n",
        },
    )
    assert dependencies(tmp_path) == ["einops", "tqdm"]


def test_a_dump_vouches_for_a_module_that_no_table_knows(tmp_path: Path) -> None:
    lines = "".join(f"  - p{number}=1.0=py39_0\n" for number in range(12))
    dump = f"dependencies:\n{lines}  - pip:\n    - quux-lab==0.3\n"
    write(tmp_path, {"environment.yml": dump, "requirements.txt": "tqdm\n"})
    write(tmp_path, {"train.py": "import quux_lab\n"})
    assert dependencies(tmp_path) == ["quux-lab==0.3", "tqdm"]


def test_a_script_at_the_root_is_a_list_and_a_pin_of_a_readme_is_meant(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import einops\n"})
    write(tmp_path / "of-script", {"setup.sh": "pip install einops sacremoses\n", "train.py": ""})
    assert dependencies(tmp_path / "of-script") == ["einops", "sacremoses"]
    readme = "```\npip install einops protobuf==3.20.3 sacremoses\n```\n"
    write(tmp_path / "of-readme", {"README.md": readme, "train.py": "import einops\n"})
    assert dependencies(tmp_path / "of-readme") == ["einops", "protobuf==3.20.3"]
    assert "sacremoses" in comments(tmp_path / "of-readme")


def test_a_line_of_a_readme_may_be_one_command(tmp_path: Path) -> None:
    text = "First:\n\n`pip install lap`\n- `pip install einops`\nor `pip install tqdm` instead\n"
    write(
        tmp_path,
        {
            "README.md": text,
            "train.py": "try:\n    import lap, tqdm\nexcept ImportError:\n    pass\n",
        },
    )
    assert dependencies(tmp_path) == ["lap"]


def test_a_full_stop_behind_a_version_is_a_slip(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "openai>=0.26.1.   # later\nnumpy==1.24.*\n"})
    assert dependencies(tmp_path) == ["numpy==1.24.*", "openai>=0.26.1"]


def test_a_line_that_only_images_have_is_as_old_as_the_next_one() -> None:
    assert released("torch", "1.14.0") == released("torch", "2.0.0") != released("torch", "1.13.1")
    assert released("torch", "99.0") is None is released("torch", None)


def test_a_list_for_apples_gpus_is_another_machines(tmp_path: Path) -> None:
    write(tmp_path, {"requirements_gpu.txt": "einops\n", "requirements_metal.txt": "ijson\n"})
    assert dependencies(tmp_path) == ["einops"]


def test_the_python_that_is_named_costs_more_than_another_patch_of_the_framework() -> None:
    pinned = Requirement(text="tensorflow==2.4.1", name="tensorflow", where="")
    # the image of 2.4.1 has Python 3.6
    found = propose_base(BaseNeeds(framework=pinned, python="==3.8.*"))
    assert "21.05-tf2" in str(found.base.image)


def test_of_environments_for_two_frameworks_the_codes_one_counts(tmp_path: Path) -> None:
    lists = "channels:\n  - x\ndependencies:\n  - pip:\n    - {}\n"
    write(
        tmp_path,
        {"environment_tf.yml": lists.format("tensorflow==2.12.0"), "a.py": "import torch\n"},
    )
    write(
        tmp_path,
        {"environment_torch.yml": lists.format("torch==2.0.0"), "b.py": "import tensorflow\n"},
    )
    write(tmp_path, {"c.py": "import torch\n"})
    assert "torch==2.0." in base_of(tmp_path)


def test_of_two_companions_the_older_one_bounds_the_framework(tmp_path: Path) -> None:
    listed = "torch>=2.2,<3\ntorchaudio>=2.2.2,<3\ntorchvision>=0.17.2,<0.18\n"
    write(tmp_path, {"requirements.txt": listed})
    assert "torch==2.2." in base_of(tmp_path)


def test_a_program_at_the_root_may_be_called_a_test(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "tqdm\n", "train.py": "import tqdm\n"})
    write(
        tmp_path, {"test_images.py": "import pandas\n", "test_unit.py": "import pytest, einops\n"}
    )
    assert dependencies(tmp_path) == ["pandas", "tqdm"]


def test_another_backend_of_an_optional_group_is_not_taken(tmp_path: Path) -> None:
    table = '[project]\nname = "lab"\ndependencies = ["numpy"]\n[project.optional-dependencies]\n'
    groups = 'tensorflow = ["tensorflow>=2.16"]\ntorch = ["torch"]\n'
    write(tmp_path, {"pyproject.toml": table + groups, "lab/__init__.py": ""})
    write(tmp_path, {"lab/a.py": "import torch\n", "lab/b.py": "import torch\n"})
    write(tmp_path, {"lab/c.py": "import tensorflow\n"})
    assert "torch" in base_of(tmp_path)
    assert dependencies(tmp_path) == ["numpy"]


def test_what_a_slip_at_the_prompt_installed_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "install==1.3.5\nrequirements-txt\nnumpy\n"})
    assert dependencies(tmp_path) == ["numpy"]


def test_where_nothing_else_starts_the_scripts_are_the_programs(tmp_path: Path) -> None:
    write(tmp_path, {"agents/dqn.py": "import torch\n", "scripts/train.py": "import einops\n"})
    assert dependencies(tmp_path) == ["einops"]
    write(tmp_path, {"main.py": "import torch\nfrom agents import dqn\n"})
    assert dependencies(tmp_path) == []


@pytest.mark.parametrize(
    "asked", ["is_einops_available()", "importlib.util.find_spec('einops')", "TYPE_CHECKING"]
)
def test_an_import_after_a_question_for_its_package_is_not_needed(
    tmp_path: Path, asked: str
) -> None:
    code = f"import torch\nif {asked}:\n    import einops\nif torch.cuda.is_available():\n    import rich\n"
    write(tmp_path, {"train.py": code})
    made = drafted(tmp_path)
    assert made.recipe.python.dependencies == ("rich",)
    assert "not taken: einops" in "\n".join(made.below["python"])
