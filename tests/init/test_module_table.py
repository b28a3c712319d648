"""The table of modules by the distribution that is meant (modules.txt), and folders that several distributions fill."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from packaging.utils import canonicalize_name

from envbuild.data.package_tables import load_conda_same, load_names
from envbuild.project.code.imports import top_module
from envbuild.project.names import distribution_of, is_standard

WORDS = [
    "act",
    "app",
    "args",
    "augment",
    "base",
    "checkpoint",
    "cli",
    "common",
    "config",
    "configs",
    "core",
    "criterion",
    "data",
    "dataset",
    "datasets",
    "demo",
    "docs",
    "engine",
    "env",
    "envs",
    "eval",
    "evaluate",
    "example",
    "examples",
    "experiments",
    "features",
    "helper",
    "helpers",
    "inference",
    "infer",
    "layer",
    "layers",
    "lib",
    "logger",
    "logs",
    "loss",
    "losses",
    "main",
    "metrics",
    "misc",
    "model",
    "models",
    "modules",
    "net",
    "nets",
    "network",
    "networks",
    "options",
    "ops",
    "optim",
    "params",
    "pipeline",
    "plot",
    "preprocess",
    "preprocessing",
    "runner",
    "sampler",
    "scripts",
    "server",
    "settings",
    "solver",
    "src",
    "test",
    "tests",
    "tools",
    "train",
    "trainer",
    "training",
    "transforms",
    "types",
    "util",
    "utils",
    "vis",
    "visualize",
]
"""What projects call their own modules."""


def rows() -> list[list[str]]:
    text = resources.files("envbuild.data").joinpath("modules.txt").read_text("utf-8")
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def test_table_is_in_order_and_has_each_module_once() -> None:
    modules = [module for module, _ in rows()]
    assert modules == sorted(set(modules))
    assert len(modules) > 2000


def test_rows_say_what_no_other_table_says() -> None:
    names = load_names()
    decided = {*names.module, *names.same.names}
    assert [row for row in rows() if row[0] in decided] == []
    assert [row for row in rows() if canonicalize_name(row[0]) == row[1] in load_conda_same()] == []
    assert [row for row in rows() if canonicalize_name(row[1]) != row[1]] == []


def test_rows_are_no_words_of_projects_and_no_modules_of_python() -> None:
    modules = {module for module, _ in rows()}
    assert modules.intersection(WORDS) == set()
    assert [
        one for one in modules if is_standard(one) or not re.fullmatch(r"[A-Za-z]\w+", one)
    ] == []
    assert [one for one in modules if re.match(r"tests?(_|$)", one)] == []


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("z3", "z3-solver"),
        ("bidi", "python-bidi"),
        ("pyspiel", "open-spiel"),
        ("apex", ""),
        ("yaml", "pyyaml"),
    ],
)
def test_modules_have_the_distribution_that_is_meant(module: str, distribution: str) -> None:
    assert distribution_of(module) == distribution


@pytest.mark.parametrize(
    ("imported", "distribution"),
    [
        ("google.cloud.bigquery.table", "google-cloud-bigquery"),
        ("google.genai", "google-genai"),
        ("google.colab.drive", ""),
        ("azure.storage.blob", "azure-storage-blob"),
        ("pyannote.core", "pyannote-core"),
        ("mpl_toolkits.basemap", "basemap"),
        ("mpl_toolkits.mplot3d", "matplotlib"),
        ("google.nobody", None),
    ],
)
def test_parts_of_a_shared_folder_are_told_by_their_whole_name(
    imported: str, distribution: str | None
) -> None:
    assert distribution_of(top_module(imported)) == distribution
