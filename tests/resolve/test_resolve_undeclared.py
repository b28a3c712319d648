"""What packages import and do not require: added, or a note where it is a GPU framework."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.data.package_tables import UndeclaredImport, load_undeclared
from envbuild.resolve.aliases import stand_ins
from envbuild.resolve.model import Resolution
from envbuild.resolve.uv.answer_checks.undeclared_imports import missing_imports
from tests.resolve.conftest import SyntheticIndex, base, versions

Resolve = Callable[..., Resolution]


@pytest.mark.parametrize("row", load_undeclared().undeclared, ids=lambda row: row.package)
def test_every_row_names_releases_and_one_distribution(row: UndeclaredImport) -> None:
    assert Requirement(row.package).name == canonicalize_name(row.name)
    assert row.imports == canonicalize_name(row.imports)
    asked = Requirement(row.ask.format(minor="1.2")).name
    assert asked in {row.imports, *stand_ins().get(row.imports, ())}


def test_rows_about_one_import_of_a_package_do_not_overlap() -> None:
    rows = load_undeclared().undeclared
    for row in rows:
        pair = (row.name, row.imports)
        others = [one for one in rows if (one.name, one.imports) == pair and one is not row]
        for bound in Requirement(row.package).specifier:
            inside = [
                one for one in (row, *others) if bound.version in Requirement(one.package).specifier
            ]
            assert len(inside) <= 1, (pair, bound)


@pytest.mark.parametrize(
    ("new", "held", "variables", "told"),
    [
        ({"keras": "2.9.0"}, {"torch"}, {}, 'nothing here brings: add "tensorflow==2.9.*" to'),
        ({"keras": "2.4.3"}, {"torch"}, {}, 'add "tensorflow>=2.2,<2.6" to'),
        ({"keras": "2.9.0", "tensorflow-cpu": "2.9.1"}, {"torch"}, {}, None),
        ({"keras": "2.9.0"}, {"tensorflow-gpu"}, {}, None),
        ({"keras": "2.3.1"}, {"torch"}, {}, None),
        ({"mmdet": "3.3.0"}, {"torch"}, {}, "imports mmcv, which its metadata does not require"),
        ({"mmdet": "2.28.2", "mmcv-full": "1.7.0"}, {"torch"}, {}, None),
        ({"xesmf": "0.8.4"}, {"torch"}, {}, "nothing here brings: bring esmpy (in conda-forge"),
        ({"rembg": "2.0.69"}, {"torch"}, {}, 'add "onnxruntime-gpu" to [python] dependencies'),
        ({"rembg": "2.0.69", "onnxruntime-gpu": "1.20.0"}, {"torch"}, {}, None),
        ({"keras": "3.8.0"}, {"torch"}, {}, 'put KERAS_BACKEND = "torch" under [run]'),
        ({"keras": "3.8.0", "jax": "0.4.30"}, {"numpy"}, {}, 'KERAS_BACKEND = "jax" under [run]'),
        ({"keras": "3.8.0"}, {"torch"}, {"KERAS_BACKEND": "torch"}, None),
        ({"keras": "3.8.0", "tensorflow": "2.18.0"}, {"torch"}, {}, None),
    ],
)
def test_an_import_of_a_framework_that_nothing_brings_is_told(
    new: dict[str, str], held: set[str], variables: dict[str, str], told: str | None
) -> None:
    notes = list(missing_imports(new, held, variables))
    assert (told in notes[0]) if told else not notes


def test_what_a_package_imports_and_does_not_require_comes_along(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("bitsandbytes", "0.41.1")
    index.wheel("scipy", "1.11.4")
    answer = resolve(base("torch==2.1.2"), "bitsandbytes==0.41.1")
    assert versions(answer) == {"bitsandbytes": "0.41.1", "scipy": "1.11.4"}
    told = "scipy 1.11.4: bitsandbytes 0.41.1 imports it, and its metadata does not require it"
    assert told in answer.notes
    index.wheel("clip-anytorch", "2.6.0")
    index.wheel("setuptools", "80.9.0", "82.0.0")
    alone = resolve(base("torch==2.1.2"), "clip-anytorch")
    assert versions(alone) == {"clip-anytorch": "2.6.0", "setuptools": "80.9.0"}
    assert versions(resolve(base("torch==2.1.2"), "clip-anytorch", "setuptools")) == versions(alone)
    # what the base has is not brought twice
    assert versions(resolve(base("torch==2.1.2", "scipy==1.10.1"), "bitsandbytes==0.41.1")) == {
        "bitsandbytes": "0.41.1"
    }
