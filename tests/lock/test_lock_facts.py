"""``envbuild lock RECIPE --facts FILE --json`` on real package lists: no image and no runtime at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.cli import run_cli

pytestmark = pytest.mark.live
CASES = Path(__file__).parent.parent / "resolve" / "cases"
REQUIREMENTS = {path.stem: tuple(path.read_text().split()) for path in sorted(CASES.glob("*.in"))}
GPU_STACK = (
    "torch",
    "tensorflow",
    "tensorflow-gpu",
    "jax",
    "jaxlib",
    "cupy",
    "triton",
    "torchvision",
    "torchaudio",
)
Lock = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def lock(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Lock:
    """Lock a case in an empty project; return the exit code, and the JSON or what was said on standard error."""
    for name in [name for name in os.environ if name.startswith(("ENVBUILD_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ENVBUILD_STORE", str(store))
    monkeypatch.chdir(tmp_path)

    def run(
        case: str, *options: str, facts: Path | None = None, requirements: tuple[str, ...] = ()
    ) -> tuple[int, Any]:
        path = facts or CASES / f"{case}.json"
        image = json.loads(path.read_text())["image"]
        wanted = json.dumps(list(requirements or REQUIREMENTS[case]))
        recipe = f'[recipe]\nname = "case"\nsummary = "A case"\n\n[base]\nimage = "{image}"\n\n'
        (tmp_path / "case.toml").write_text(f"{recipe}[python]\ndependencies = {wanted}\n")
        code = run_cli(["lock", "case.toml", "--facts", str(path), "--json", *options])
        out, err = capsys.readouterr()
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
            {"case.toml", *([path.name] if facts else [])}
        )
        return code, (json.loads(out) if code == 0 else err)

    return run


def versions(answer: Any) -> dict[str, str]:
    return {package["name"]: package["version"] for package in answer["packages"]}


@pytest.mark.parametrize("case", [case for case in REQUIREMENTS if case != "conflict-vllm-ngc2406"])
@pytest.mark.parametrize("as_of", [(), ("--as-of", "none")], ids=["dated", "undated"])
def test_the_framework_survives(case: str, as_of: tuple[str, ...], lock: Lock) -> None:
    code, answer = lock(case, *as_of)
    assert code == 0
    found = versions(answer)
    held = {dist["name"] for dist in json.loads((CASES / f"{case}.json").read_text())["dists"]}
    assert not set(GPU_STACK) & set(found)
    assert not {
        name for name in found if name.startswith(("nvidia-", "cuda-", "jax-cuda", "cupy-cuda"))
    }
    assert {move["name"] for move in answer["moved"]} == set(found) & held
    assert all(move["reason"] and move["before"] != move["after"] for move in answer["moved"])
    files = [file for package in answer["packages"] for file in package["files"]]
    assert len(files) == len(found)
    assert all(file["size"] > 0 and len(file["sha256"]) == 64 for file in files)
    assert answer["base"]["framework"]


def test_answers_at_a_date(lock: Lock) -> None:
    _, bert = lock("keras-bert-tf21", "--as-of", "2020-04-08")
    found = versions(bert)
    assert len(found) == 32
    assert (found["keras"], found["keras-bert"], found["transformers"]) == (
        "2.3.1",
        "0.81.0",
        "2.8.0",
    )
    assert (bert["as_of"], bert["moved"], bert["held_back"]) == ("2020-04-08", [], [])
    assert {"name": "tensorflow", "version": "2.1.0", "alias_of": "tensorflow-gpu"} in bert[
        "provided"
    ]
    _, chainer = lock("chainer-cupy", "--as-of", "2022-10-15")
    assert len(versions(chainer)) == 12
    assert {"name": "cupy", "version": "10.6.0", "alias_of": "cupy-cuda114"} in chainer["provided"]
    _, jax = lock("jax-flax", "--as-of", "2024-11-15")
    assert len(versions(jax)) == 7
    assert versions(jax)["distrax"] == "0.1.5"


def test_what_is_direct_and_fits_is_left_alone(lock: Lock) -> None:
    _, answer = lock("lightning-ngc2406", "--as-of", "none")
    assert "tensorboard" not in versions(answer)
    assert {"name": "tensorboard", "version": "2.9.0", "alias_of": None} in answer["provided"]


def test_release_that_would_switch_torch_off_is_held_back(lock: Lock) -> None:
    _, answer = lock("hf-llm-torch24", "--as-of", "none")
    assert versions(answer)["transformers"] == "5.14.1"
    (held,) = [row for row in answer["held_back"] if row["name"] == "transformers"]
    assert held["reason"].startswith("transformers<5.15 goes with torch 2.4.0 ")


@pytest.mark.parametrize("as_of", [(), ("--as-of", "none")], ids=["dated", "undated"])
def test_conflict_names_who_what_and_which_base(as_of: tuple[str, ...], lock: Lock) -> None:
    code, error = lock("conflict-vllm-ngc2406", *as_of)
    assert code == 3, error
    lines = error.splitlines()
    assert (
        "- vllm==0.8.5 needs torch==2.6.0; the base holds torch 2.4.0a0+f70bd71a48.nv24.6, taken as 2.4.0"
        in lines
    )
    assert any(
        "what to do: loosen vllm==0.8.5: vllm 0." in line and line.endswith("fits this base")
        for line in lines
    )
    assert any(
        "or take a base that holds torch==2.6.0" in line and "docker://" in line for line in lines
    )


def test_the_machine_of_the_facts_counts(tmp_path: Path, lock: Lock) -> None:
    facts = json.loads((CASES / "jax-flax.json").read_text()) | {"machine": "aarch64"}
    (tmp_path / "arm.json").write_text(json.dumps(facts))
    code, answer = lock("jax-flax", "--as-of", "2024-11-15", facts=tmp_path / "arm.json")
    assert code == 0
    assert (answer["platform"], answer["base"]["machine"]) == ("linux/arm64", "aarch64")
    files = {
        package["name"]: package["files"][0]["file"]
        for package in (*answer["packages"], *answer["build"])
    }
    assert files["uv"].endswith("aarch64.whl")
    assert "aarch64" in files["dm-tree"]
