"""Leaves with everything that a page can show, made from a shipped lock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from envbuild.lock.read import read_lock
from envbuild.shelf.site.gather import dependency_tree, lay_out_treemap, layer_sizes
from envbuild.shelf.site.model import CheckProof, EntryPage, HistoryEntry, PageCommand

ROOT = Path(__file__).parents[2]
HOSTILE = "</title><script>alert(1)</script>\" onload='x' {{ 7*7 }} &amp;"


def full_leaf(name: str = "keras-bert") -> EntryPage:
    lock = read_lock(ROOT / f"lockfiles/{name}.lock")
    layers = layer_sizes(lock)
    return EntryPage(
        name=name,
        digest="sha256:" + "a" * 64,
        number=2,
        summary="BERT in Keras on TensorFlow 2.15",
        framework="tensorflow 2.15.1",
        cuda="12.2",
        python="3.11.2",
        base="debian:bookworm",
        platform="linux/amd64",
        who="mika",
        day="2026-11-20",
        signer="mika@lab.invalid",
        size=2_700_000_000,
        size_of="image",
        lock="sha256:" + "b" * 64,
        image="sha256:" + "c" * 64,
        direct=lock.direct,
        proofs=(
            CheckProof(
                outcome="passed",
                level="full",
                day="2026-11-20",
                gpu="NVIDIA A100-SXM4-40GB",
                driver="535.104.05",
            ),
            CheckProof(
                outcome="failed",
                level="quick",
                day="2026-10-01",
                gpu="Tesla V100-PCIE-16GB",
                driver="450.80.02",
            ),
        ),
        roots=dependency_tree(lock),
        tiles=lay_out_treemap(layers),
        sizes=tuple(
            (layer, name, "1.0", size) for layer, rows in layers.items() for name, size in rows
        ),
        history=(
            HistoryEntry(
                number=2,
                digest="sha256:" + "a" * 64,
                day="2026-11-20",
                who="mika",
                changes=("~ keras-bert 0.88.0 -> 0.89.0", "+ pydot 2.0.0", "- graphviz 0.19"),
            ),
            HistoryEntry(
                number=1, digest="sha256:" + "d" * 64, day="2026-10-01", who="ken", changes=()
            ),
        ),
        commands=(
            PageCommand(title="Make the image here", lines=f"envbuild make lab/{name}"),
            PageCommand(
                title="As a job on amane",
                lines=f"envbuild submit {name} --on amane -- python train.py",
            ),
        ),
        recipe=(ROOT / f"recipes/{name}.toml").read_text("utf-8"),
        post=("echo built",),
    )


def many(count: int) -> list[EntryPage]:
    """A refused one, a full one, and as many variations as are missing."""
    first = full_leaf()
    rest = [
        replace(
            first,
            name=f"recipe-{number:04d}",
            summary=f"invented recipe {number}",
            framework="torch 2.5.1" if number % 3 else "jax 0.4.30",
            direct=("torch",) if number % 3 else ("jax",),
        )
        for number in range(count - 2)
    ]
    return [
        first,
        *rest,
        EntryPage(name="broken", refused="its lock was changed on the shelf: sha256 is 00ff"),
    ]
