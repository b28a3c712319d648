"""init on code of another time, place or machine: what newer releases have not, and what a README lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envbuild.data.package_tables import load_names
from tests.init.projects import comments, dependencies, drafted, write

USES = {
    "scipy<1.2": "from scipy.misc import imread, imresize",
    "scikit-learn<0.20": "from sklearn.cross_validation import train_test_split",
    "scikit-learn<0.23": "from sklearn.externals import joblib",
    "scikit-image<0.18": "from skimage.measure import compare_ssim",
    "librosa<0.8": "import librosa\nlibrosa.output.write_wav('a.wav', [], 16000)",
    "pillow<10": "from PIL import Image\nprint(Image.ANTIALIAS)",
    "numpy<1.24": "import numpy as np\nprint(np.int(1))",
    "numpy<2": "import numpy as np\nprint(np.NaN)",
    "torch<2": "from torch._six import inf",
    "torch<1.8": "import torchtext\nprint(torchtext.data.BucketIterator)",
    "torch<1.11": "from torchtext.legacy import data",
    "protobuf<3.21": "from google.protobuf import descriptor as _descriptor\n"
    "DESCRIPTOR = _descriptor.FileDescriptor(name='x')",
    "tensorflow<2.8": "from tensorflow.python.keras.applications import vgg16",
    "tensorflow<2.13": "from keras.utils import np_utils",
    "tensorflow<2.6": "from keras.engine.topology import Layer",
    "spektral<1": "from spektral.layers import GraphConv",
}
OF_FRAMEWORKS = {
    "torch<2": "1.13",
    "torch<1.8": "1.7",
    "torch<1.11": "1.10",
    "tensorflow<2.8": ":2.7",
    "tensorflow<2.13": ":2.12",
    "tensorflow<2.6": ":2.5",
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


@pytest.mark.parametrize("bounded", sorted(USES.keys() - OF_FRAMEWORKS))
def test_what_newer_releases_have_no_more_bounds_the_package(bounded: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {"train.py": f"import torch\n{USES[bounded]}\n"})
    assert bounded in dependencies(folder)
    row = next(row for row in load_names().old if f"{row.package}{row.bounds}" == bounded)
    assert f"{bounded}: {row.what} (train.py)" in comments(folder)


def test_what_a_handler_or_a_question_of_the_release_guards_bounds_nothing(tmp_path: Path) -> None:
    code = (
        "import numpy as np, torch\n"
        "try:\n    from torch._six import inf\nexcept ImportError:\n    from torch import inf\n"
        'if hasattr(np, "int"):\n    kind = np.int\n'
        'def half():\n    """Return np.NaN."""\n'
    )
    folder = write(tmp_path, {"train.py": code})
    assert "numpy" in dependencies(folder)
    assert not [line for line in comments(folder) if "alone" in line]


def test_images_of_scipy_by_another_name(tmp_path: Path) -> None:
    code = "import torch, scipy.misc\nimport scipy.misc as misc\nmisc.imread('a.png')\n"
    assert "scipy<1.2" in dependencies(write(tmp_path, {"train.py": code}))


def test_an_old_use_chooses_a_base_of_its_python(tmp_path: Path) -> None:
    files = {"train.py": f"import torch\n{USES['scipy<1.2']}\n"}
    made = drafted(write(tmp_path, files))
    assert (made.recipe.base.image or "").startswith("docker://pytorch/pytorch:1.")
    # a pin of the framework counts more, and has no such Python
    (tmp_path / "requirements.txt").write_text("torch==2.4.0\nscipy\n")
    assert "scipy" in dependencies(tmp_path)
    assert "not taken, for Python <3.8 alone: scipy<1.2" in comments(tmp_path)


@pytest.mark.parametrize(
    ("line", "drafted_as"),
    [
        ("pillow>=9.1", "pillow>=9.1"),
        ("pillow<11", "pillow<11,<10"),
        ("pillow ; python_version > '3'", 'pillow ; python_version > "3"'),
    ],
)
def test_bounds_of_a_list_beside_those_of_code(line: str, drafted_as: str, tmp_path: Path) -> None:
    files = {"train.py": USES["pillow<10"], "requirements.txt": f"torch\n{line}\n"}
    assert drafted_as in dependencies(write(tmp_path, files))


@pytest.mark.parametrize("bounded", OF_FRAMEWORKS)
def test_an_old_use_bounds_the_framework(bounded: str, tmp_path: Path) -> None:
    base = drafted(write(tmp_path, {"train.py": USES[bounded]})).recipe.base
    assert OF_FRAMEWORKS[bounded] in f"{base.image}{base.framework}"


def test_the_oldest_of_two_uses_bounds_the_framework(tmp_path: Path) -> None:
    files = {"a.py": USES["tensorflow<2.13"], "b.py": USES["tensorflow<2.8"]}
    assert ":2.7" in (drafted(write(tmp_path, files)).recipe.base.image or "")


def test_what_draws_by_tk_gets_debians_package(tmp_path: Path) -> None:
    made = drafted(write(tmp_path, {"net.py": "from turtle import forward\nimport torch\n"}))
    assert "python3-tk" in made.recipe.system.packages
    # the Python of an image has its own
    (tmp_path / "requirements.txt").write_text("torch==1.4.0\n")
    assert drafted(tmp_path).recipe.system.packages == ()


def test_keras_reads_images_by_pillow(tmp_path: Path) -> None:
    code = "from tensorflow.keras.preprocessing import image\nimage.load_img('a.png')\n"
    assert dependencies(write(tmp_path, {"train.py": code})) == ["pillow"]


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
    assert made.recipe.base.image == "docker://pytorch/pytorch:1.8.1-cuda11.1-cudnn8-runtime"
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


def test_extensions_below_the_root_are_told(tmp_path: Path) -> None:
    setup = "from torch.utils.cpp_extension import CUDAExtension\nsetup(ext_modules=[CUDAExtension('a', ['a.cu'])])\n"
    folder = write(tmp_path, {"ops/setup.py": setup, "train.py": "import torch\n"})
    assert "ops/setup.py compiles CUDA code: take a base with nvcc" in comments(folder)
