"""Real requirement sets on real package lists (cases/README.md), resolved at a date, so that the answer stays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from envbuild.base.model import BaseFacts, Dist
from envbuild.errors import NoSolutionError
from envbuild.resolve.couplings import protected_names
from envbuild.resolve.framework import with_framework
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.settings import Settings, load_settings
from tests.resolve.conftest import versions
from tests.support import quiet_context

pytestmark = pytest.mark.live
CASES = Path(__file__).parent / "cases"
KERAS_BERT = (
    "keras-bert",
    "tensorflow",
    "keras",
    "sentencepiece",
    "scikit-learn",
    "transformers",
    "matplotlib",
    "pydot",
)
BOOKWORM = BaseFacts(
    image="debian:bookworm",
    python="3.11.2",
    machine="x86_64",
    glibc="2.36",
    dists=(
        Dist(name="pip", version="23.0.1"),
        Dist(name="setuptools", version="66.1.1"),
        Dist(name="wheel", version="0.38.4"),
    ),
)


@pytest.fixture(scope="module")
def live_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with the machine's own index and uv's own cache, and a store that this module shares."""
    folder = tmp_path_factory.mktemp("live")
    return dataclasses.replace(load_settings(cwd=folder), store=folder / "store")


def facts_of(case: str) -> BaseFacts:
    return msgspec.json.decode((CASES / f"{case}.json").read_bytes(), type=BaseFacts)


def resolve(
    settings: Settings, facts: BaseFacts, *requirements: str, **other: object
) -> Resolution:
    request = Request(facts=facts, requirements=requirements, **other)  # type: ignore[arg-type]
    return UvResolver(quiet_context(settings))(request)


def assert_framework_survives(facts: BaseFacts, resolution: Resolution) -> None:
    assert not protected_names(facts) & set(versions(resolution))
    assert not {
        name for name in versions(resolution) if name.startswith(("nvidia-", "triton", "torch-"))
    }
    assert not {"torch", "tensorflow", "tensorflow-gpu", "jax", "jaxlib", "cupy"} & set(
        versions(resolution)
    )


def test_keras_bert_on_tensorflow_2_1(live_settings: Settings) -> None:
    facts = facts_of("keras-bert-tf21")
    answer = resolve(live_settings, facts, *KERAS_BERT, as_of="2020-04-08")
    found = versions(answer)
    assert {name: found[name] for name in KERAS_BERT if name in found} == {
        "keras": "2.3.1",
        "keras-bert": "0.81.0",
        "matplotlib": "3.2.1",
        "pydot": "1.4.1",
        "scikit-learn": "0.22.2.post1",
        "sentencepiece": "0.1.85",
        "transformers": "2.8.0",
    }
    assert len(found) == 32
    assert [
        f"{package.name}=={package.version}" for package in answer.packages if package.is_sdist
    ] == [
        "keras-bert==0.81.0",
        "keras-embed-sim==0.7.0",
        "keras-layer-normalization==0.14.0",
        "keras-multi-head==0.22.0",
        "keras-pos-embd==0.11.0",
        "keras-position-wise-feed-forward==0.6.0",
        "keras-self-attention==0.41.0",
        "keras-transformer==0.32.0",
        "pyyaml==5.3.1",
        "sacremoses==0.0.38",
    ]
    assert {package.name for package in answer.build} == {"setuptools", "wheel"}
    assert answer.moved == ()
    assert_framework_survives(facts, answer)


def test_chainer_on_cupy(live_settings: Settings) -> None:
    facts = facts_of("chainer-cupy")
    answer = resolve(
        live_settings, facts, "chainer", "cupy", "matplotlib", "pandas", as_of="2022-10-15"
    )
    found = versions(answer)
    assert (found["chainer"], found["matplotlib"], found["pandas"]) == ("7.8.1", "3.6.1", "1.5.0")
    assert len(found) == 12
    assert [package.name for package in answer.packages if package.is_sdist] == ["chainer"]
    assert {item.name: item.alias_of for item in answer.provided}["cupy"] == "cupy-cuda114"
    assert answer.moved == ()
    assert_framework_survives(facts, answer)


def test_jax_keeps_its_plugin(live_settings: Settings) -> None:
    facts = facts_of("jax-flax")
    wanted = ("jax", "flax", "optax", "orbax-checkpoint", "chex", "distrax")
    answer = resolve(live_settings, facts, *wanted, as_of="2024-11-15")
    assert versions(answer)["distrax"] == "0.1.5"
    assert not set(wanted[:5]) & set(versions(answer))
    assert len(answer.packages) == 7
    assert answer.moved == ()
    assert_framework_survives(facts, answer)


@pytest.mark.parametrize(
    ("case", "wanted", "as_of"),
    [
        (
            "lightning-ngc2406",
            ("pytorch-lightning", "torchmetrics", "tensorboard", "hydra-core"),
            "2024-09-12",
        ),
        (
            "hf-llm-torch24",
            ("transformers", "datasets", "accelerate", "peft", "evaluate"),
            "2024-10-22",
        ),
    ],
)
def test_torch_of_the_base_survives(
    case: str, wanted: tuple[str, ...], as_of: str, live_settings: Settings
) -> None:
    facts = facts_of(case)
    answer = resolve(live_settings, facts, *wanted, as_of=as_of)
    assert_framework_survives(facts, answer)
    assert "torch" in {item.name for item in answer.provided}
    assert "tensorboard" not in versions(answer)


def test_transformers_that_would_switch_torch_off_is_held_back(live_settings: Settings) -> None:
    answer = resolve(live_settings, facts_of("hf-llm-torch24"), "transformers", as_of="2026-11-01")
    assert versions(answer)["transformers"] == "5.14.1"
    assert [row.name for row in answer.held_back] == ["transformers"]
    assert answer.held_back[0].reason.startswith("transformers<5.15 goes with torch 2.4.0 ")


def test_conflict_names_framework_and_requirement(live_settings: Settings) -> None:
    with pytest.raises(NoSolutionError) as caught:
        resolve(live_settings, facts_of("conflict-vllm-ngc2406"), "vllm==0.8.5")
    assert caught.value.what.splitlines()[1] == (
        "- vllm==0.8.5 needs torch==2.6.0; the base holds torch 2.4.0a0+f70bd71a48.nv24.6, taken as 2.4.0"
    )
    loosen, other_base = (caught.value.hint or "").splitlines()[:2]
    assert loosen.startswith("loosen vllm==0.8.5: vllm ")
    assert other_base.startswith("or take a base that holds torch==2.6.0")


def test_keras_bert_on_a_bootstrapped_tensorflow(live_settings: Settings) -> None:
    framework = resolve(live_settings, BOOKWORM, "tensorflow[and-cuda]==2.15.*", as_of="2024-06-10")
    facts = with_framework(BOOKWORM, framework)
    assert (facts.framework, facts.created) == ("tensorflow 2.15.1", "2024-03-08")
    held = versions(framework)
    assert (held["keras"], held["numpy"], held["nvidia-cudnn-cu12"]) == (
        "2.15.0",
        "1.26.4",
        "8.9.4.25",
    )
    answer = resolve(live_settings, facts, *KERAS_BERT, as_of="2024-06-10", protect=tuple(held))
    found = versions(answer)
    assert (found["keras-bert"], found["transformers"], found["scikit-learn"]) == (
        "0.89.0",
        "4.41.2",
        "1.5.0",
    )
    assert not set(held) & set(found)
    assert answer.moved == ()
    assert answer.held_back == ()
    assert {(item.name, item.version) for item in answer.provided} >= {
        ("keras", "2.15.0"),
        ("numpy", "1.26.4"),
    }
    assert {item.name for item in answer.build} == {"setuptools", "wheel"}


def test_torch_comes_once_on_a_bootstrapped_base(live_settings: Settings) -> None:
    framework = resolve(live_settings, BOOKWORM, "torch==2.5.1", as_of="2025-01-27")
    facts = with_framework(BOOKWORM, framework)
    held = versions(framework)
    assert held["torch"] == "2.5.1"
    assert held["triton"] == "3.1.0"
    answer = resolve(
        live_settings, facts, "torchvision", "numpy", as_of="2025-01-27", protect=tuple(held)
    )
    assert set(versions(answer)) == {"numpy", "pillow", "torchvision"}
    assert versions(answer)["torchvision"] == "0.20.1"


@pytest.mark.parametrize(
    ("case", "wanted", "as_of", "expected"),
    [
        (
            "tf26",
            (
                "tensorflow-probability",
                "tensorflow-io",
                "tensorflow-addons",
                "keras",
                "opencv-python",
                "protobuf",
            ),
            "2021-11-09",
            {
                "tensorflow-probability": "0.14.1",
                "tensorflow-io": "0.21.0",
                "tensorflow-addons": "0.14.0",
            },
        ),
        (
            "tf217",
            ("tensorflow-cpu", "tensorflow-text", "transformers", "spacy"),
            "2024-10-10",
            {
                "tensorflow-text": "2.17.0",
                "transformers": "4.45.2",
                "tf-keras": "2.17.0",
                "spacy": "3.7.5",
            },
        ),
        (
            "torch113",
            ("diffusers", "accelerate", "transformers", "xformers", "torchdata"),
            "2023-06-18",
            {
                "torchdata": "0.5.1",
                "xformers": "0.0.16",
                "transformers": "4.30.2",
                "accelerate": "0.20.3",
            },
        ),
        (
            "rapids",
            ("umap-learn", "hdbscan", "dask-ml", "pandas", "shap"),
            "2025-06-01",
            {"dask-ml": "2024.4.4", "umap-learn": "0.5.7", "hdbscan": "0.8.40"},
        ),
        (
            "mmdet",
            ("mmdet", "mmcv-full", "mmsegmentation"),
            "2023-06-01",
            {"mmdet": "2.28.2", "mmcv-full": "1.7.1", "mmsegmentation": "0.30.0"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalnum() else "",
)
def test_what_goes_with_other_bases(
    case: str,
    wanted: tuple[str, ...],
    as_of: str,
    expected: dict[str, str],
    live_settings: Settings,
) -> None:
    facts = facts_of(case)
    answer = resolve(live_settings, facts, *wanted, as_of=as_of)
    found = versions(answer)
    assert {name: found.get(name) for name in expected} == expected
    assert not any(move.name in protected_names(facts) for move in answer.moved)
    assert_framework_survives(facts, answer)
