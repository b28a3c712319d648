"""init on code of another time, place or machine: what newer releases have not, and what a README lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envbuild.data.package_tables import load_names
from tests.init.projects import comments, dependencies, drafted, notebook, write

USES = {
    "scipy<1.2": "from scipy.misc import imread, imresize",
    "scikit-learn<0.20": "from sklearn.cross_validation import train_test_split",
    "scikit-learn<0.23": "from sklearn.externals import joblib",
    "scikit-image<0.18": "from skimage.measure import compare_ssim",
    "librosa<0.8": "import librosa\nlibrosa.output.write_wav('a.wav', [], 16000)",
    "pillow<10": "from PIL import Image\nprint(Image.ANTIALIAS)",
    "numpy<1.24": "import numpy as np\nprint(np.int(1))",
    "torch<2": "from torch._six import inf",
}
NEW = """
import librosa, numpy as np, sklearn.model_selection
from PIL import Image
from skimage.metrics import structural_similarity
print(np.int64(1), np.float32(1), np.floating, np.object_, Image.LANCZOS)  # np.int is gone
"""


def test_each_old_use_has_an_example() -> None:
    rows = load_names().old
    assert [f"{row.package}{row.bounds}" for row in rows] == list(USES)
    assert all(row.source and row.what for row in rows)
    for row in rows:
        bounded = f"{row.package}{row.bounds}"
        assert [one for one, text in USES.items() if re.search(row.says, text)] == [bounded]
        assert not re.search(row.says, NEW)


@pytest.mark.parametrize("bounded", sorted(set(USES) - {"torch<2"}))
def test_what_newer_releases_have_no_more_bounds_the_package(bounded: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {"train.py": f"import torch\n{USES[bounded]}\n"})
    assert bounded in dependencies(folder)
    row = next(row for row in load_names().old if f"{row.package}{row.bounds}" == bounded)
    assert f"{bounded}: {row.what} (train.py)" in comments(folder)


def test_an_old_use_chooses_a_base_of_its_python(tmp_path: Path) -> None:
    files = {"train.py": f"import torch\n{USES['scipy<1.2']}\n"}
    made = drafted(write(tmp_path, files))
    assert (made.recipe.base.image or "").startswith("docker://pytorch/pytorch:1.")
    # a pin of the framework counts more, and has no such Python
    (tmp_path / "requirements.txt").write_text("torch==2.4.0\nscipy\n")
    assert "scipy" in dependencies(tmp_path)
    assert "not taken, for Python <3.8 alone: scipy<1.2" in comments(tmp_path)


def test_bounds_of_a_list_stay_as_they_are(tmp_path: Path) -> None:
    files = {"train.py": USES["pillow<10"], "requirements.txt": "torch\npillow>=9.1\n"}
    assert "pillow>=9.1" in dependencies(write(tmp_path, files))


def test_an_old_use_bounds_the_framework(tmp_path: Path) -> None:
    made = drafted(write(tmp_path, {"train.py": f"import torch\n{USES['torch<2']}\n"}))
    base = made.recipe.base
    assert "1.13" in f"{base.image}{base.framework}"


BROUGHT = "asttokens attrs backcall appdirs certifi cffi charset-normalizer cycler decorator idna kiwisolver packaging pycparser six urllib3"
DUMP = "".join(f"{name}==1.0\n" for name in BROUGHT.split())
LISTED = """
Needs these:
```
dgl == 0.8.2
torch == 1.8.2
sklearn == 1.0.2
lr = 0.001
python = 3.8.15
tqdm
```
"""


def test_a_list_in_a_readme_bounds_what_the_code_imports(tmp_path: Path) -> None:
    code = "import dgl, sklearn, torch, tqdm\n"
    made = drafted(write(tmp_path, {"README.md": LISTED, "train.py": code}))
    assert made.recipe.python.dependencies == ("dgl==0.8.2", "scikit-learn", "tqdm")
    assert "1.8" in f"{made.recipe.base.image}{made.recipe.base.framework}"
    said = comments(tmp_path)
    assert "lr" not in re.findall(r"\w+", said)
    assert "torch==1.8.*: README.md asks for it" in said


def test_the_framework_that_the_readme_speaks_of(tmp_path: Path) -> None:
    files = {f"old/{name}.py": "import tensorflow\n" for name in "abc"}
    files |= {"new/a.py": "import torch\n", "README.md": "Powered by PyTorch (>= 1.13).\n"}
    assert "torch" in (drafted(write(tmp_path, files)).recipe.base.framework or "")
    (tmp_path / "README.md").write_text(
        "TensorFlow code, see tensorflow.org; new/ is a port to PyTorch.\n"
    )
    assert "tensorflow" in (drafted(tmp_path).recipe.base.framework or "")


def test_a_dump_of_one_example_tells_nothing_of_another(tmp_path: Path) -> None:
    dump = DUMP + "torch==1.0.1\n"
    files = {
        "one/requirements.txt": "numpy\n",
        "one/train.py": "import torch, numpy\n",
        "two/environment.yml": "dependencies:\n"
        + "".join(f"- {line.replace('==', '=')}=py36_0\n" for line in dump.split()),
        "two/train.py": "import torch\n",
    }
    assert "torch==1.0.1" not in comments(write(tmp_path, files))


def test_what_a_dump_beside_a_short_list_adds(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(name='x', install_requires=['numpy', 'scipy', 'tqdm', 'torch', 'joblib'])\n"
    files = {
        "setup.py": setup,
        "requirements.txt": f"{DUMP}matplotlib==3.4.3\nnumpy==1.20.3\n",
        "train.py": "import matplotlib, numpy, torch\n",
    }
    found = dependencies(write(tmp_path, files))
    assert "matplotlib==3.4.3" in found
    assert "numpy" in found


def test_a_wheel_that_lies_elsewhere_hides_no_package(tmp_path: Path) -> None:
    cells = ("!pip install /content/timm-0.4.12-py3-none-any.whl", "import torch, timm")
    folder = write(tmp_path, {"run.ipynb": notebook(*cells)})
    assert "timm" in dependencies(folder)


def test_extensions_below_the_root_are_told(tmp_path: Path) -> None:
    setup = "from torch.utils.cpp_extension import CUDAExtension\nsetup(ext_modules=[CUDAExtension('a', ['a.cu'])])\n"
    folder = write(tmp_path, {"ops/setup.py": setup, "train.py": "import torch\n"})
    assert "ops/setup.py compiles CUDA code: take a base with nvcc" in comments(folder)


def test_packages_for_other_machines_are_left_out(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "jax==0.4.20\njax-metal==0.0.5\ndotenv\n",
        "train.py": "import jax\n",
    }
    assert dependencies(write(tmp_path, files)) == ["python-dotenv"]
    assert "it is for Apple's GPUs alone" in comments(tmp_path)
