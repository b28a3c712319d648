"""What a project's own source imports."""

from __future__ import annotations

import json
from pathlib import Path

from envbuild.check.checks.sources import find_uses

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
    found = find_uses(tmp_path)
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
    assert set(find_uses(tmp_path)) == {"torch"}


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
    found = find_uses(tmp_path, attributes=True)
    assert found["torch"] == ("compile",)
    assert found["numpy"] == found["wandb"] == found["cv2"] == found["einops"] == ()
    assert found["tqdm"] == ("tqdm",)
    (tmp_path / "train.py").write_text("import numpy as np\nx = np.float(3)\n")
    assert find_uses(tmp_path, attributes=True) == {"numpy": ("float",)}
    (tmp_path / "compat.py").write_text("import numpy as np\nnp.float = float\n")
    assert find_uses(tmp_path, attributes=True) == {"numpy": ()}


def test_a_folder_without_python_uses_nothing(tmp_path: Path) -> None:
    assert find_uses(tmp_path) == {}
