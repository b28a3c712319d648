"""Facts read from layers without running them agree with what the probe tells inside."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from envbuild.base.facts import probe_text, read_probe
from envbuild.base.model import BaseFacts
from envbuild.base.oci.layers import Tree
from envbuild.base.oci.static import keep_file, read_static
from envbuild.errors import UsageError
from envbuild.run import Command, LocalRunner
from tests.base.interpreters import parameters
from tests.base.ociimages import Link, dist, python_tar, tar_of

Files = dict[str, "bytes | str | Link | None"]


def static(folder: Path, *tars: bytes, **environment: str) -> BaseFacts:
    tree = Tree(keep_file(environment))
    for number, tar in enumerate(tars):
        path = folder / f"layer{number}"
        path.write_bytes(gzip.compress(tar, 1))
        tree.add_layer(path, None, number=number, where="test")
    return read_probe(read_static(tree, environment, machine="x86_64", where="test"), image="test")


LIBC: Files = {
    "lib64/libc.so.6": b"\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n",
    "var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\nArchitecture: amd64\n",
    "etc/os-release": "ID=ubuntu\nVERSION_ID='22.04'\n",
}


@pytest.mark.parametrize("python", parameters())
def test_every_python_is_told_as_it_tells_itself(python: Path, tmp_path: Path) -> None:
    """The static facts of a Python's files against the probe run by that very Python."""
    name = python.name
    real = python.resolve()
    site = f"/opt/conda/lib/{name}/site-packages"
    extra = tar_of(
        {**LIBC, **dist(site, "six", "1.16.0"), f"{site}/more.pth": "# x\nimport os\nadded\n"}
    )
    facts = static(
        tmp_path, python_tar(real, "/opt/conda", whole=False), extra, PATH="/nowhere:/opt/conda/bin"
    )
    command = Command(
        argv=(str(real), "-s", "-B", "-"), env={"PATH": "/usr/bin:/bin"}, stdin=probe_text()
    )
    running = read_probe(LocalRunner()(command).stdout, image="test")
    assert (facts.python, facts.abi, facts.machine) == (
        running.python,
        running.abi,
        running.machine,
    )
    assert facts.python_path == "/opt/conda/bin/python3"
    assert facts.prefix == "/opt/conda"
    assert facts.site == (site,)
    assert facts.glibc == "2.36"
    assert facts.distro == "ubuntu 22.04"
    assert [d.name for d in facts.dists] == ["six"]
    assert [p.name for p in facts.apt] == ["libc6"]


def a_python(minor: int = 11, *, at: str = "usr", binary: bytes = b"ELF\0") -> Files:
    version = b"\0003.%d.9\0" % minor
    return {
        **LIBC,
        f"{at}/bin/python3": Link(f"python3.{minor}"),
        f"{at}/bin/python3.{minor}": binary + version,
        f"{at}/lib/python3.{minor}/os.py": "",
        f"{at}/lib/python3.{minor}/lib-dynload/x.cpython-3{minor}{'m' if minor < 8 else ''}-x86_64-linux-gnu.so": "",
    }


def test_debians_own_python_has_dist_packages(tmp_path: Path) -> None:
    files = {
        **a_python(),
        **dist("/usr/lib/python3/dist-packages", "six", "1.15.0"),
        **dist("/usr/local/lib/python3.11/dist-packages", "six", "1.16.0"),
        "usr/lib/python3.11/EXTERNALLY-MANAGED": "",
    }
    facts = static(tmp_path, tar_of(files))
    assert facts.externally_managed
    assert facts.site == (
        "/usr/local/lib/python3.11/dist-packages",
        "/usr/lib/python3/dist-packages",
    )
    six = facts.dist("six")
    assert six is not None
    assert (six.version, six.note) == ("1.16.0", "hides 1.15.0 in /usr/lib/python3/dist-packages")


def test_a_virtual_environment_on_the_path_counts(tmp_path: Path) -> None:
    files = {
        **a_python(8),
        "venv/bin/python3": Link("/usr/bin/python3"),
        "venv/pyvenv.cfg": "home = /usr/bin\n",
        **dist("/venv/lib/python3.8/site-packages", "torch", "2.0.0"),
    }
    facts = static(tmp_path, tar_of(files), PATH="/venv/bin:/usr/bin")
    assert (facts.prefix, facts.python_path, facts.framework) == (
        "/venv",
        "/venv/bin/python3",
        "torch 2.0.0",
    )


def test_the_images_variables_name_constraints_and_libraries(tmp_path: Path) -> None:
    files = {
        **a_python(),
        "srv/pins.list": "numpy<2\n",
        "opt/nccl/libnccl.so.2": Link("libnccl.so.2.18.3"),
        "opt/nccl/libnccl.so.2.18.3": "",
        "usr/lib/python3.11/site-packages/README": "",
        "usr/local/cuda/version.json": '{"cuda": {"version": "12.3.2"}}',
    }
    facts = static(
        tmp_path, tar_of(files), PIP_CONSTRAINT="/srv/pins.list", LD_LIBRARY_PATH="/opt/nccl"
    )
    assert facts.constraints == "numpy<2\n"
    assert (facts.nccl, facts.cuda) == ("2.18.3", "12.3")
    assert facts.environment == {"PIP_CONSTRAINT": "/srv/pins.list", "LD_LIBRARY_PATH": "/opt/nccl"}


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (
            {**LIBC, "usr/bin/python": Link("python2.7"), "usr/bin/python2.7": "x"},
            "the image's Python is python2.7; a base needs Python 3.6 or newer",
        ),
        (a_python(5), "the image's Python is python3.5; a base needs Python 3.6 or newer"),
        (
            {**a_python(), "usr/bin/python3.11": "x"},
            "the version of /usr/bin/python3.11 cannot be read from its files",
        ),
        ({**a_python(), "lib64/libc.so.6": Link("nowhere")}, "the image's C library is not glibc"),
    ],
)
def test_what_cannot_be_a_base_is_told(files: Files, what: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        static(tmp_path, tar_of(files))
    assert caught.value.what == what
    assert caught.value.hint


TOOL = '{"name": "samtools", "version": "1.21", "build": "h1_0", "channel": "bioconda"}'


@pytest.mark.parametrize(
    ("home", "environment"),
    [
        ("usr/local", {}),
        ("opt/conda", {}),
        ("opt/mambaforge", {}),
        ("srv/env", {"PATH": "/srv/env/bin:/usr/bin"}),
        ("srv/env", {"CONDA_PREFIX": "/srv/env"}),
        ("srv/env", {"MAMBA_ROOT_PREFIX": "/srv/env"}),
        ("work/.pixi/envs/default", {}),
    ],
)
def test_an_environment_without_python_is_found(
    home: str, environment: dict[str, str], tmp_path: Path
) -> None:
    files = {**LIBC, f"{home}/conda-meta/samtools-1.21-h1_0.json": TOOL}
    facts = static(tmp_path, tar_of(files), **environment)
    assert (facts.python, facts.python_path, facts.off_path) == ("", None, False)
    assert (facts.conda_prefix, facts.glibc) == (f"/{home}", "2.36")
    assert [(p.name, p.channel) for p in facts.conda] == [("samtools", "bioconda")]


def test_an_image_may_hold_neither_python_nor_conda(tmp_path: Path) -> None:
    facts = static(tmp_path, tar_of(LIBC))
    assert (facts.python, facts.conda_prefix, facts.dists) == ("", None, ())
    assert [p.name for p in facts.apt] == ["libc6"]


def test_an_entry_of_debian_without_a_name_is_passed_over(tmp_path: Path) -> None:
    damaged = "Status: install ok installed\nVersion: 1\n\n"
    status = {"var/lib/dpkg/status": f"{damaged}{LIBC['var/lib/dpkg/status']!s}"}
    assert [p.name for p in static(tmp_path, tar_of({**LIBC, **status})).apt] == ["libc6"]


def test_condas_python_is_found_where_no_path_names_it(tmp_path: Path) -> None:
    python = a_python(12, at="opt/conda")
    python["opt/conda/bin/python"] = Link("python3.12")
    site = "/opt/conda/lib/python3.12/site-packages"
    files = {**LIBC, **python, "opt/conda/conda-meta/history": "", **dist(site, "six", "1.16.0")}
    facts = static(tmp_path, tar_of(files))
    assert (facts.python, facts.python_path) == ("3.12.9", "/opt/conda/bin/python")
    assert (facts.off_path, facts.conda_prefix, facts.site) == (True, "/opt/conda", (site,))
    assert [d.name for d in facts.dists] == ["six"]
    # a Python that is on PATH comes first, and is no conda
    facts = static(tmp_path, tar_of({**files, **a_python(11)}))
    assert (facts.python, facts.off_path, facts.conda_prefix) == ("3.11.9", False, None)


def test_an_older_layers_package_can_be_removed(tmp_path: Path) -> None:
    site = "usr/lib/python3.11/site-packages"
    lower = tar_of({**a_python(), **dist(site, "six", "1.15.0"), **dist(site, "idna", "3.0")})
    facts = static(
        tmp_path, lower, tar_of({f"{site}/.wh.six": "", f"{site}/.wh.six-1.15.0.dist-info": ""})
    )
    assert [d.name for d in facts.dists] == ["idna"]


def test_a_conda_environment_is_told_by_its_records(tmp_path: Path) -> None:
    meta = "opt/conda/conda-meta"
    whole = {
        "name": "pytorch",
        "version": "2.4.0",
        "build": "py3.12_cuda12.1_0",
        "build_number": 0,
        "channel": "https://mirror.invalid/t/tk-secret/pytorch/linux-64",
        "subdir": "linux-64",
        "depends": ["python 3.12.*", 7],
        "files": ["lib/libtorch.so"],
    }
    vendor = {"name": "tk", "version": "8.6", "build": "h1_0", "channel": "pkgs/main"}
    records: Files = {
        f"{meta}/history": "",
        f"{meta}/pytorch-2.4.0-py3.12_cuda12.1_0.json": json.dumps(whole),
        f"{meta}/tk-8.6-h1_0.json": json.dumps(vendor),
        f"{meta}/cuda-version-12.1-h1_3.json": "{ cut off",
        f"{meta}/libcublas-12.1.0-h1_0.json": "[]",
        f"{meta}/state.json": "{}",
    }
    python = parameters()[5].values[0]
    assert isinstance(python, Path)
    tar = python_tar(python.resolve(), "/opt/real", whole=False)
    linked = tar_of(
        {
            **LIBC,
            **{path.replace("opt/conda", "opt/real"): text for path, text in records.items()},
            "opt/conda": Link("real"),
        }
    )
    facts = static(tmp_path, tar, linked, PATH="/opt/conda/bin")
    # new packages are laid by path: not through the link
    assert facts.conda_prefix == "/opt/real"
    assert [package.key for package in facts.conda] == [
        ("cuda-version", "12.1", "h1_3"),
        ("libcublas", "12.1.0", "h1_0"),
        ("pytorch", "2.4.0", "py3.12_cuda12.1_0"),
        ("tk", "8.6", "h1_0"),
    ]
    assert [package.channel for package in facts.conda] == ["", "", "pytorch", "pkgs/main"]
    assert facts.conda[2].depends == ("python 3.12.*",)
    assert facts.cuda == "12.1"
    plain = static(tmp_path, tar, tar_of({**LIBC}), PATH="/opt/real/bin")
    assert (plain.conda_prefix, plain.conda) == (None, ())
