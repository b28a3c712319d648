"""scripts/find-couplings.py: what it reads in files, and the rows that it makes of it."""

from __future__ import annotations

import ast
import importlib.util
import io
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from packaging.version import Version

from envbuild.data.package_tables import CompanionTable
from envbuild.run import Command, LocalRunner
from envbuild.toml import convert, parse_toml
from tests.resolve.published import Opened, opened_archive

SCRIPTS = Path(__file__).parents[2] / "scripts"


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def needs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return loaded("wheelneeds", monkeypatch)


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return loaded("find-couplings", monkeypatch)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return loaded("couplingrules", monkeypatch)


MODULE = """\
import torchvision, torch.nn as nn
import pyarrow as pa
from torchvision.transforms.functional_tensor import rgb_to_grayscale
if torchvision.__version__ > "0.17":
    from torchvision.transforms import gone
try:
    import torchaudio
    torchaudio.set_audio_backend("sox")
except ImportError:
    pass

class Kind(pa.PyExtensionType):
    size = pa.int32()

def load(path: torchaudio.AudioMetaData, way=nn.Module) -> pa.Table:
    return torchaudio.info(path)

later = lambda: pa.gone()
"""


def test_what_a_module_needs_when_it_is_imported(needs: ModuleType) -> None:
    found = needs.python_needs(
        "basicsr/data.py", ast.parse(MODULE), {"torchvision", "torchaudio", "pyarrow"}
    )
    assert {(need.kind, need.what) for need in found} == {
        ("module", "torchvision"),
        ("module", "pyarrow"),
        ("module", "torchvision.transforms.functional_tensor"),
        ("attribute", "torchvision.transforms.functional_tensor.rgb_to_grayscale"),
        ("attribute", "pyarrow.PyExtensionType"),
        ("attribute", "pyarrow.int32"),
        ("attribute", "torchaudio.AudioMetaData"),
        ("attribute", "pyarrow.Table"),
    }


def test_annotations_that_are_not_evaluated_need_nothing(needs: ModuleType) -> None:
    text = "from __future__ import annotations\nimport torchaudio\ndef f(x: torchaudio.AudioMetaData): ...\n"
    found = needs.python_needs("a.py", ast.parse(text), {"torchaudio"})
    assert {need.what for need in found} == {"torchaudio"}


def test_only_files_that_the_import_runs_are_read(needs: ModuleType) -> None:
    files = {
        "engine/__init__.py": "from .core import run\nfrom engine import data\n",
        "engine/core.py": "import os\n",
        "engine/data/__init__.py": "import importlib\nimportlib.import_module(f'engine.data.{os.name}')\n",
        "engine/data/one_dataset.py": "",
        "engine/unused.py": "import torchvision.gone\n",
        "engine/tests/__init__.py": "",
        "engine/broken.py": "print 'no'\n",
    }
    found = needs.imported_files("engine", set(files), files.__getitem__)
    assert set(found) == {
        "engine/__init__.py",
        "engine/core.py",
        "engine/data/__init__.py",
        "engine/data/one_dataset.py",
    }


def test_names_that_a_module_binds(needs: ModuleType) -> None:
    files = {
        "a": (
            "a/__init__.py",
            "from .b import *\nfrom .c import one as two\nX = 1\ndef f(): pass\n",
        ),
        "a.b": ("a/b.py", "class B: pass\nwith open('x') as handle: pass\n"),
        "lazy": ("lazy/__init__.py", "import sys\nsys.modules[__name__] = object()\n"),
    }
    assert needs.bound_names("a", files.get) == {"B", "handle", "two", "X", "f"}
    assert needs.bound_names("lazy", files.get) is None
    assert needs.bound_names("compiled", files.get) is None
    files["a"] = ("a/__init__.py", "from ._C import *\n")
    assert needs.bound_names("a", files.get) is None


def test_names_of_files_and_libraries(needs: ModuleType) -> None:
    paths = [
        "dgl/graphbolt/libgraphbolt_pytorch_2.2.1.so",
        "dgl/libdgl.so",
        "c.libs/libcudnn-74a4c495.so.9.1.0",
    ]
    assert [need.what for need in needs.named_needs(paths)] == ["2.2.1"]
    data = b"\0libcublas.so.12\0libcudnn.so.9\0libfoo.so.1\0"
    found = {(need.kind, need.what) for need in needs.library_needs("c/x.so", data, paths)}
    assert found == {("cublas", "12")}, "libcudnn.so lies in the wheel"
    assert {(n.kind, n.what) for n in needs.library_needs(paths[2], b"", paths)} == {("cudnn", "9")}
    whole = [*paths, "c.libs/libcudnn_ops-1.so.9"]
    assert not list(needs.library_needs(paths[2], b"", whole)), "all of cuDNN lies in the wheel"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_symbols_of_a_shared_object(needs: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("extern int wanted(void); int given(void) { return wanted(); }\n")
    command = ("cc", "-shared", "-fPIC", "-o", str(tmp_path / "a.so"), str(source))
    LocalRunner()(Command(argv=command))
    data = (tmp_path / "a.so").read_bytes()
    assert "given" in needs.symbols(data, defined=True)
    assert "wanted" in needs.symbols(data, defined=False)
    assert "given" not in needs.symbols(data, defined=False)
    assert needs.symbols(b"no ELF", defined=True) == set()


def archive(kind: str, files: dict[str, bytes]) -> Opened:
    stream = io.BytesIO()
    if kind == "whl":
        with zipfile.ZipFile(stream, "w") as wheel:
            for path, data in files.items():
                wheel.writestr(path, data)
        return opened_archive(stream, "a-1-py3-none-any.whl")
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for path, data in files.items():
            member = tarfile.TarInfo(f"a-1/src/{path}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    stream.seek(0)
    return opened_archive(stream, "a-1.tar.gz")


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_wheels_and_source_archives_are_read_alike(kind: str, finder: ModuleType) -> None:
    files = {
        "a/__init__.py": b"from torchvision.gone import x\n",
        "a/liba_torch_2.1.0.so": b"libcudnn.so.8",
    }
    found = finder.read_needs(archive(kind, files), ["torchvision"])
    assert [tuple(one) for one in found] == [
        ("attribute", "torchvision.gone.x", "a/__init__.py"),
        ("built", "2.1.0", "a/liba_torch_2.1.0.so"),
        ("cudnn", "8", "a/liba_torch_2.1.0.so"),
        ("module", "torchvision.gone", "a/__init__.py"),
    ]


@pytest.mark.parametrize(
    ("states", "bound"),
    [
        ("GGB", "<3.0"),
        ("BGG", ">=2.0"),
        ("BGB", ">=2.0,<3.0"),
        ("BBB", "<0"),
        ("GBG", ">=3.0"),
        ("DGB", "<3.0"),
        ("UBB", "<0"),
    ],
)
def test_bounds_keep_the_newest_good_releases(states: str, bound: str, rules: ModuleType) -> None:
    known = {"G": rules.GOOD, "B": rules.BAD, "D": rules.DECLARED, "U": rules.UNTOLD}
    assert rules.bounds(["1.0", "2.0", "3.0"], [known[one] for one in states]) == bound


def test_rows_are_in_the_form_of_the_table(finder: ModuleType, needs: ModuleType) -> None:
    releases = [Version("1.0.3"), Version("1.1.0")]
    table = finder.Table("engine", "torch", releases, ["2.0.1", "2.1.0", "2.2.0"])
    lack = needs.Need("symbol", "_ZN3c10", "engine/x.so")
    for release, other, state in [
        (releases[0], "2.0.1", finder.GOOD), (releases[1], "2.0.1", finder.BAD),
        (releases[0], "2.1.0", finder.BAD), (releases[1], "2.1.0", finder.GOOD),
        (releases[0], "2.2.0", finder.BAD), (releases[1], "2.2.0", finder.BAD),
    ]:  # fmt: skip
        table.states[release, other] = state
        table.needs[release, other] = lack
    text = "schema = 1\n" + "".join(finder.rules_of(table))
    (rule,) = convert(parse_toml(text, "found"), CompanionTable, text=text, where="found").rule
    assert [(row.when, row.constrain) for row in rule.rows] == [
        ("torch<2.1", "engine<1.1"),
        ("torch>=2.1,<2.2", "engine>=1.1"),
        ("torch>=2.2", "engine<0"),
    ]
    assert "_ZN3c10 in engine/x.so" in rule.source


def test_a_row_for_every_compared_release_begins_with_the_first(
    finder: ModuleType, needs: ModuleType
) -> None:
    release, others = Version("1.0"), ["0.4.38", "0.5.3"]
    table = finder.Table("engine", "jax", [release], others)
    for other in others:
        table.states[release, other] = finder.BAD
        table.needs[release, other] = needs.Need("module", "jax.gone", "engine/__init__.py")
    assert 'when = "jax>=0.4", constrain = "engine<0"' in "".join(finder.rules_of(table))


class Wheels:
    """An index of wheels: name and version to day and files."""

    def __init__(self, wheels: dict[tuple[str, str], tuple[str, dict[str, bytes]]]) -> None:
        self.wheels = wheels

    def releases(self, name: str) -> list[Version]:
        return sorted(Version(version) for one, version in self.wheels if one == name)

    def uploaded(self, name: str, version: Version) -> str:
        return self.wheels[name, str(version)][0]

    def learn(
        self, name: str, version: Version, _: str, answer: Callable[[Opened], object]
    ) -> object:
        return answer(archive("x-1-py3-none-any.whl", self.wheels[name, str(version)][1]))


def test_names_of_tf_keras_are_looked_for_in_the_keras_of_that_time(
    finder: ModuleType, needs: ModuleType
) -> None:
    layers = "keras/_tf_keras/keras/layers/__init__.py"
    tensorflow = {
        "tensorflow/__init__.py": b"globals()['keras']",
        "tensorflow/_api/v2/compat/v2/__init__.py": b"",
    }
    index = Wheels(
        {
            ("tensorflow", "2.15.0"): ("2023-11-14", tensorflow),
            ("tensorflow", "2.16.1"): ("2024-03-08", tensorflow),
            ("keras", "3.3.0"): ("2024-04-20", {layers: b"Dense = RNN = 1"}),
            ("keras", "3.9.0"): ("2025-03-05", {layers: b"Dense = Gone = 1"}),
        }
    )
    found = finder.Finder(index, 8, None)

    def meets(kind: str, what: str, version: str) -> bool:
        return bool(found.meets("tensorflow", version, needs.Need(kind, what)))

    assert meets("attribute", "tensorflow.keras.layers.RNN", "2.16.1")
    assert meets("attribute", "tensorflow.compat.v2.keras.layers.RNN", "2.16.1")
    assert not meets("attribute", "tensorflow.keras.layers.Gone", "2.16.1")
    assert meets("attribute", "tensorflow.keras.layers.Gone", "2.15.0")  # no file says it
    assert meets("module", "tensorflow.compat.v2", "2.15.0")
    assert meets("module", "tensorflow.keras.layers", "2.15.0")
    assert not meets("module", "tensorflow.contrib", "2.15.0")


def test_names_of_tensorflow_are_those_of_its_public_api(
    finder: ModuleType, needs: ModuleType
) -> None:
    """tensorflow/distribute holds other things than tensorflow.distribute; no file binds what is put in place late."""
    files = {
        "tensorflow/__init__.py": b"setattr(module, 'losses', lazy)",
        "tensorflow/distribute/experimental/rpc.py": b"",
        "tensorflow/_api/v2/distribute/__init__.py": b"from x import MirroredStrategy",
    }
    found = finder.Finder(Wheels({("tensorflow", "2.8.4"): ("2022-11-18", files)}), 8, None)

    def meets(what: str) -> bool:
        return bool(found.meets("tensorflow", "2.8.4", needs.Need("attribute", what)))

    assert meets("tensorflow.distribute.MirroredStrategy")
    assert not meets("tensorflow.distribute.Gone")
    assert meets("tensorflow.losses.Loss")
    assert not meets("tensorflow.contrib.eager.python.tfe")


def test_packages_are_named_once(finder: ModuleType) -> None:
    groups = parse_toml((SCRIPTS / "gpu-packages.toml").read_text("utf-8"), "gpu-packages.toml")[
        "packages"
    ]
    names = [name for group in groups.values() for name in group]
    assert sorted(names) == sorted(set(names))
    assert 400 < len(names) <= 520
    assert all(name == finder.canonicalize_name(name) for name in names)
