from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from envbuild.data.package_tables import (
    CompanionTable,
    CouplingRow,
    CouplingRule,
    load_aliases,
    load_companions,
)
from envbuild.resolve.aliases import stand_ins
from envbuild.resolve.couplings import TEMPLATE, couplings_for, extras_for, protected_names
from envbuild.resolve.stubs import Stubs, plan_stubs
from tests.resolve.conftest import base
from tests.resolve.rowchecks import CHECKS

RULES = [(rule, row) for rule in load_companions().rule for row in rule.rows]


def stubs_of(*pins: str, **facts: str) -> Stubs:
    held = base(*pins, **facts)
    return plan_stubs(held, protected=protected_names(held), aliases=stand_ins())


def constraints(*pins: str, **facts: str) -> list[str]:
    rows = couplings_for(base(*pins, **facts), stubs_of(*pins, **facts))
    return [row.constraint for row in rows if row.binding]


# ------------------------------------------------------------------ the data itself


@pytest.mark.parametrize(("rule", "row"), RULES, ids=lambda value: getattr(value, "constrain", ""))
def test_every_row_is_well_formed(rule: CouplingRule, row: CouplingRow) -> None:
    assert rule.source
    assert (row.check or rule.check) in CHECKS
    assert rule.declared in ("yes", "partly", "extra", "name", "no")
    assert {rule.sure, row.sure or rule.sure} <= {"verified", "documented", "reported", "memory"}
    assert Requirement(row.when).name == rule.framework
    named = Requirement(TEMPLATE.sub("1", row.constrain)).name
    # mmcv before 2.0 was published as mmcv-full; a template stands for the packages of one beginning
    published = {rule.package, *rule.packages} | (
        {"mmcv-full"} if rule.package == "mmcv" else set()
    )
    family = [name for name in rule.packages if name.startswith(named.removesuffix("1"))]
    assert named in published or family
    assert all(found[1] == rule.framework for found in TEMPLATE.finditer(row.constrain))


def test_rows_of_a_rule_do_not_overlap() -> None:
    releases = [
        f"{major}.{minor}.{patch}" for major in range(4) for minor in range(25) for patch in (0, 5)
    ]
    for rule in load_companions().rule:
        if rule.package == "mmcv":
            continue  # one row is about mmcv, the other about mmcv-full
        ranges = [(row.when, Requirement(row.when).specifier) for row in rule.rows]
        for release in releases:
            hits = [when for when, bounds in ranges if bounds.contains(release)]
            assert len(hits) <= 1, (rule.package, release, hits)


def test_sources_are_named() -> None:
    aliases = load_aliases()
    assert aliases.source
    assert all(rule.source for rule in aliases.extras.values())


# ------------------------------------------------------------------ what holds for a base


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        (
            ("tensorflow==2.10.1",),
            {
                "keras==2.10.*",
                "tensorflow-io==0.27.*",
                "tensorflow-probability<0.19",
                "tensorflow-text==2.10.*",
            },
        ),
        (
            ("tensorflow-gpu==2.1.0",),
            {
                "keras>=2.3,<2.4",
                "keras-bert<0.85",
                "h5py<3",
                "numpy<2",
                "protobuf<4",
                "tensorflow-hub<0.16",
            },
        ),
        (
            ("torch==2.4.0a0+f70bd71a48.nv24.6",),
            {"torchvision==0.19.*", "torchaudio==2.4.*", "torchtext<0", "transformers<5.15"},
        ),
        (
            ("torch==1.12.1",),
            {"torchvision==0.13.*", "torchaudio==0.12.*", "torchtext==0.13.*", "numpy<2"},
        ),
        (("jaxlib==0.4.31",), {"jax-cuda12-plugin==0.4.31"}),
        (
            ("tensorflow-gpu==2.3.0",),
            {"tensorflow-addons>=0.11,<0.14", "tensorflow-probability<0.12"},
        ),
        (("tensorflow==2.6.0",), {"tensorflow-addons>=0.14,<0.17", "tensorflow-probability<0.15"}),
        (("torch==1.13.1",), {"transformers<4.48"}),
        (("torch==2.0.1",), {"transformers<4.52"}),
        (("mxnet-cu112==1.9.1",), {"numpy<1.24"}),
        (("torchvision==0.4.2",), {"pillow<7"}),
    ],
)
def test_companions_of_a_base(pins: tuple[str, ...], expected: set[str]) -> None:
    assert expected <= set(constraints(*pins))


def test_no_row_for_a_base_without_a_framework() -> None:
    assert constraints("six==1.16.0") == []


def test_what_the_base_protects_or_breaks_is_no_constraint() -> None:
    found = constraints("torch==2.4.0", "torchvision==0.18.0", "transformers==5.20.0")
    assert not any(text.startswith(("torchvision", "transformers")) for text in found)


def test_numpy_major_is_frozen_for_every_base() -> None:
    assert constraints("numpy==1.19.5") == ["numpy<2"]
    assert constraints("numpy==2.0.1")[-1] == "numpy<3"


def test_beside_numpy_2_nothing_comes_that_was_compiled_against_numpy_1() -> None:
    found = constraints("numpy==2.0.1")
    assert {"pandas>=2.2.2", "scipy>=1.13.0", "opencv-python>=4.10.0.84", "thinc>=8.3"} <= set(
        found
    )
    assert constraints("numpy==2.0.1", "pandas==2.0.3").count("pandas>=2.2.2") == 0


def test_cuda_chooses_one_of_the_tagged_distributions() -> None:
    found = constraints(cuda="12.4")
    assert "cupy-cuda11x<0" in found
    assert "cupy-cuda13x<0" in found
    assert "cupy-cuda12x<0" not in found
    assert "onnxruntime-gpu<1.27,>=1.19" in {str(Requirement(text)) for text in found}
    assert "cupy-cuda110<0" not in constraints(cuda="11.0.3")


def test_a_row_from_memory_only_does_not_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    row = CouplingRow(when="tensorflow>=2.9", constrain="tensorflow-model-optimization==0.7.*")
    rule = CouplingRule(
        framework="tensorflow",
        declared="no",
        sure="memory",
        source="nobody",
        check="listed",
        rows=(row,),
        package="x",
    )
    monkeypatch.setattr(
        "envbuild.resolve.couplings.load_companions", lambda: CompanionTable(schema=1, rule=(rule,))
    )
    (found,) = couplings_for(base("tensorflow==2.9.3"), stubs_of("tensorflow==2.9.3"))
    assert not found.binding
    assert found.reason == "tensorflow 2.9.3 (nobody)"


def test_transformers_keeps_its_tensorflow_models_where_there_is_no_torch() -> None:
    assert "transformers<5" in constraints("tensorflow==2.17.0")
    found = constraints("tensorflow==2.17.0", "torch==2.6.0")
    assert not any(text.startswith("transformers") for text in found)
    held = base("tensorflow==2.17.0")
    rows = couplings_for(held, stubs_of("tensorflow==2.17.0"), {"transformers", "torch"})
    assert not any(row.package == "transformers" for row in rows)


# ------------------------------------------------------------------ protected, extras, groups


def test_protected_are_framework_companions_cuda_and_what_the_framework_pins_narrowly() -> None:
    facts = base(
        "tensorflow==2.15.1",
        "keras==2.15.0",
        "numpy==1.26.4",
        "h5py==3.11.0",
        "nvidia-cudnn-cu12==8.9.4.25",
        "nvidia-ml-py==12.535",
        "requests==2.31.0",
        "ml_dtypes==0.3.2",
        "gast==0.4.0",
        "wrapt==1.14.1",
        requires={
            "tensorflow": (
                "numpy<2.0.0,>=1.23.5",
                "h5py>=2.9.0",
                "ml-dtypes~=0.3.1",
                "gast==0.4.0 ; sys_platform == 'linux'",
                "wrapt==1.14.1 ; extra == 'x'",
                "requests<3 ; extra == 'x'",
            )
        },
    )
    assert protected_names(facts) == {
        "tensorflow",
        "keras",
        "nvidia-cudnn-cu12",
        "ml-dtypes",
        "gast",
    }


def test_rapids_pins_count_where_there_is_no_greater_framework() -> None:
    requires = {"cuml": ("scikit-learn==1.5", "dask-cudf==24.6.*", "scipy>=1.8")}
    pins = ("cuml==24.6.0", "dask-cudf==24.6.0", "scikit-learn==1.5.0", "scipy==1.13.1")
    assert protected_names(base(*pins, requires=requires)) == {"cuml", "dask-cudf", "scikit-learn"}
    assert "scikit-learn" not in protected_names(base(*pins, "torch==2.1.0a0", requires=requires))


def test_framework_of_the_facts_and_of_the_caller_are_protected() -> None:
    facts = base("mindspore==2.2", "six==1.16", "rich==13", framework="MindSpore 2.2")
    assert protected_names(facts, extra=("six", "absent")) == {"mindspore", "six"}


def test_extras_are_asked_for_only_beside_their_framework() -> None:
    assert extras_for({"transformers", "rich"}, stubs_of("torch==2.4.0")) == {
        "transformers": "torch"
    }
    assert extras_for({"transformers"}, stubs_of("tensorflow==2.15.0")) == {}
    assert extras_for({"transformers"}, stubs_of("torch==2.4.0", "transformers==4.40")) == {}


def test_no_row_is_from_memory_only() -> None:
    assert [
        (rule.package, row.when) for rule, row in RULES if (row.sure or rule.sure) == "memory"
    ] == []
