"""What a project's own source imports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.project.code.uses import find_uses

TRAIN = """\
from __future__ import annotations
import torch.nn as nn, numpy
from transformers import AutoModel, Trainer
from .local import helper
if True:
    import optional_one
try:
    import apex
except ImportError:
    apex = None

def late():
    from datasets import load_dataset
    return load_dataset
"""


def test_unconditional_imports_of_scripts_and_notebooks(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    cells = [
        {"cell_type": "code", "source": ["%pip install x\n", "from transformers import pipeline\n"]}
    ]
    (tmp_path / "look.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "old.py").write_text("print 'Python 2'\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_train.py").write_text("import nose\n")
    found = find_uses(tmp_path).names
    assert set(found) == {"__future__", "torch.nn", "numpy", "transformers", "datasets"}
    assert set(found["transformers"]) == {"AutoModel", "Trainer", "pipeline"}
    assert found["datasets"] == ("load_dataset",)
    assert found["torch.nn"] == ()


def test_what_the_project_itself_holds_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "data.py").write_text("")
    (tmp_path / "scripts" / "near.py").write_text("")
    (tmp_path / "torch").mkdir()  # of downloads: no Python in it
    (tmp_path / "scripts" / "train.py").write_text(
        "import lab.data, near, torch\nfrom lab import data\n"
    )
    assert set(find_uses(tmp_path).names) == {"torch"}


def test_what_stands_below_match_is_optional(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\nimport numpy as np\nmatch np.__version__[0]:\n    case '1':\n"
        "        import nose\n        print(np.float)\n"
    )
    assert find_uses(tmp_path, attributes=True).names == {"sys": (), "numpy": ("__version__",)}


def test_a_folder_of_scripts_does_not_hide_a_framework(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "plot.py").write_text("")
    (tmp_path / "train.py").write_text("import jax\n")
    assert set(find_uses(tmp_path).names) == {"jax"}
    (tmp_path / "jax" / "__init__.py").write_text("")
    assert not find_uses(tmp_path).names


def test_what_each_program_takes_in_files_of_its_own_is_needed(tmp_path: Path) -> None:
    text = "import numpy as np\nfrom transformers import AdamW, {}\nnp.float(1)\n"
    (tmp_path / "fit.py").write_text(text.format("Trainer"))
    (tmp_path / "score.py").write_text(text.format("pipeline"))
    needed = find_uses(tmp_path, attributes=True).needed
    both = {("transformers", ""), ("transformers", "AdamW"), ("numpy", ""), ("numpy", "float")}
    assert needed == both | {("numpy", "float(1,0=1)")}


def test_a_module_longer_than_a_file_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import {'a' * 300}, numpy\n")
    assert set(find_uses(tmp_path).names) == {"a" * 300, "numpy"}


ATTRIBUTES = """\
import numpy as np, torch, wandb, cv2, tqdm
import einops
from tqdm import tqdm
if np.__version__ < "2":
    np.old
try:
    np.tried
except AttributeError:
    pass
x = np.float(3) if x else np.other
with torch.no_grad():
    torch.late.name
def late(wandb):
    wandb.log_of_the_argument()
    return torch.compile(cv2.aruco.name)
cv2.mine = 1
tqdm.write("of the class")
"""


def test_attributes_that_are_read_of_whole_modules(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ATTRIBUTES)
    found = find_uses(tmp_path, attributes=True).names
    assert set(found["torch"]) == {"no_grad(0)", "no_grad", "late.name", "compile(1)", "compile"}
    assert found["wandb"] == found["cv2"] == found["einops"] == ()
    assert found["numpy"] == ("__version__",)
    assert found["tqdm"] == ("tqdm",)
    (tmp_path / "train.py").write_text("import numpy as np\nx = np.float(3)\n")
    assert find_uses(tmp_path, attributes=True).names == {"numpy": ("float(1,0=3)", "float")}
    (tmp_path / "compat.py").write_text("import numpy as np\nnp.float = float\n")
    assert find_uses(tmp_path, attributes=True).names == {"numpy": ()}


FLOAT = "import numpy as np\nkind = np.float\n"
IN_FUNCTION = "import numpy as np\ndef convert(x):\n    return np.float(x)\n"
PROJECTS = {
    "the only program": ({"eval.py": FLOAT}, True),
    "one of two programs": ({"eval.py": FLOAT, "show.py": "import numpy\n"}, False),
    "the program called train": ({"train.py": FLOAT, "show.py": "import numpy\n"}, True),
    "a tool beside the program": ({"train.py": "import numpy\n", "tools/old.py": FLOAT}, False),
    "a module that the program loads": (
        {"a.py": "from lab.data import kind\n", "lab/__init__.py": "", "lab/data.py": FLOAT},
        True,
    ),
    "a module that no program loads": (
        {"a.py": "import lab\n", "lab/__init__.py": "", "lab/data.py": FLOAT},
        False,
    ),
    "a module that both programs load": (
        {"a.py": "import data\n", "b.py": "from data import kind\n", "data.py": FLOAT},
        True,
    ),
    "a function that nothing calls": ({"train.py": IN_FUNCTION}, False),
    "a function that is called": ({"train.py": f"{IN_FUNCTION}convert(1)\n"}, True),
    "a function that is decorated": (
        {"train.py": IN_FUNCTION.replace("def", "@np.vectorize\ndef")},
        True,
    ),
    "a function that another file calls": (
        {"train.py": "from data import convert\n", "data.py": IN_FUNCTION},
        True,
    ),
    "the only script of a folder": ({"scripts/fit.py": FLOAT}, True),
}


@pytest.mark.parametrize("name", PROJECTS)
def test_what_every_run_of_a_project_takes(name: str, tmp_path: Path) -> None:
    files, needed = PROJECTS[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    found = find_uses(tmp_path, attributes=True)
    assert "float" in found.names["numpy"]
    assert (("numpy", "float") in found.needed) == needed
    holder = next(path for path, text in files.items() if "np.float" in text)
    assert found.files["numpy", "float"] == holder


def test_what_every_run_takes_is_tried_first(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from numpy import old\n")
    (tmp_path / "train.py").write_text("from numpy import array, ones\n")
    assert find_uses(tmp_path).names == {"numpy": ("array", "ones", "old")}


CHAINS = """\
import torch
import torch.nn as nn
import torchvision.models as models, numpy as np, os.path
from PIL import Image
from scipy import integrate
from .own import part
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.enabled
models.mine.net = 3
models.mine.net.size
models.resnet18
kind = Image.ANTIALIAS
integrate.simps([1])
nn.functional.relu6(torch.ones(3).cuda().mean)
part.anything
if hasattr(np.random, "default_rng"):
    pass
np.random.rand
"""


def test_attributes_of_modules_inside_modules(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CHAINS)
    found = find_uses(tmp_path, attributes=True).names
    assert found == {
        "torch": (
            *("backends.cudnn.enabled", "ones().cuda().mean"),
            *("ones().cuda(0)", "ones().cuda", "ones(1,0=3)", "ones"),
        ),
        "torch.nn": ("functional.relu6(1)", "functional.relu6"),
        "torchvision.models": ("resnet18",),
        "numpy": (),
        "os.path": (),
        "PIL": ("Image", "Image.ANTIALIAS"),
        "scipy": ("integrate", "integrate.simps(1,0=%5B1%5D)", "integrate.simps"),
    }


RESULTS = """\
import kit, other
from kit import Kind
pipe = Kind.from_saved("a")
pipe.load("b")
twice = kit.Kind()
twice = other.Kind()
twice.load()
given = kit.Kind()
def late(given):
    given.load()
if pipe:
    pipe.show()
"""


def test_what_is_called_of_a_result_is_told_with_its_maker(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RESULTS)
    found = find_uses(tmp_path, attributes=True).names
    calls = {name for taken in found.values() for name in taken if name.endswith(")")}
    assert calls == {
        "Kind(0)",
        "Kind.from_saved(1,0=%27a%27)",
        "Kind.from_saved().load(1,0=%27b%27)",
    }


def test_a_folder_without_python_uses_nothing(tmp_path: Path) -> None:
    assert find_uses(tmp_path).names == {}
