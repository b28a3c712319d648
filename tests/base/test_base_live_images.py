"""From images of a real registry and a real engine to checked images: conda's layout, PEP 668, an old Python."""

from __future__ import annotations

import functools
import json
import os
import platform
import ssl
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.base.reference import parse_reference
from envbuild.base.sources import describe_base
from envbuild.context import Context
from envbuild.errors import NetworkError
from envbuild.progress import Silent
from envbuild.recipe.read import read_recipe
from envbuild.run import Command, LocalRunner, Result
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.base.interpreters import interpreter
from tests.base.ociimages import Image, dist, image_of, programs, push, python_tar, tar_of
from tests.support import needs

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.live,
    needs("apptainer", "docker-registry"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the images are made of this machine's programs, for amd64"),
]  # fmt: skip


@functools.cache
def base(
    version: str,
    prefix: str,
    *,
    managed: bool = False,
    framework: tuple[str, str] = ("flax", "0.8.0"),
    zstd: bool = False,
) -> Image:
    """An image with a Python of this machine and a small distribution that stands for what a base holds."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    site = f"{prefix}/lib/python{version}/site-packages"
    return image_of(
        programs(),
        python_tar(python.resolve(), prefix, managed=managed),
        tar_of(dist(site, *framework)),
        env=(f"PATH={prefix}/bin:/usr/bin:/bin", "GREETING=it's a test"),
        entrypoint=("/usr/bin/env", "FROM_ENTRYPOINT=yes"),
        cmd=("env",),
        zstd=zstd,
    )


def envbuild(folder: Path, store: Path, *arguments: str, **environment: str) -> Result:
    env = {
        **os.environ,
        "ENVBUILD_STORE": str(store),
        "HOME": str(folder),
        "COLUMNS": "120",
        **environment,
    }
    command = Command(
        argv=(sys.executable, "-m", "envbuild", *arguments), cwd=folder, env=env, timeout=300
    )
    return LocalRunner()(command, check=False)


def recipe(folder: Path, name: str, image: str, more: str = "") -> None:
    (folder / "recipes").mkdir(exist_ok=True)
    (folder / "recipes" / f"{name}.toml").write_text(
        f'[recipe]\nname = "{name}"\n[base]\nimage = "{image}"\n[python]\ndependencies = ["six", "iniconfig<2"]\n'
        f'[check]\nimports = ["six", "iniconfig"]\n{more}'
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def made(folder: Path, store: Path, name: str, **environment: str) -> Path:
    for verb in (("lock",), ("make", "-v")):
        result = envbuild(folder, store, *verb, name, **environment)
        assert result.code == 0, result.stderr
    return folder / f"{name}.sif"


def inside(image: Path, *argv: str, verb: str = "exec") -> str:
    command = Command(
        argv=("apptainer", "--quiet", verb, "--userns", "--cleanenv", str(image), *argv), timeout=60
    )
    return LocalRunner()(command).stdout


def test_condas_layout_and_the_images_own_entry_point(
    registry: str, tmp_path: Path, store: Path
) -> None:
    host = registry.removeprefix("http://")
    digest = push(base("3.11", "/opt/conda"), registry, "lab/conda", "1.0")
    recipe(tmp_path, "conda", f"docker://{host}/lab/conda:1.0")
    image = made(tmp_path, store, "conda")
    lock = (tmp_path / "lockfiles/conda.lock").read_text()
    assert f'digest = "{digest}"' in lock
    assert 'python-path = "/opt/conda/bin/python3"' in lock
    where = inside(
        image, "python3", "-c", "import six, flax; print(six.__file__, flax.__version__)"
    )
    assert where.split() == ["/opt/conda/lib/python3.11/site-packages/six.py", "0.8.0"]
    told = inside(image, verb="run").splitlines()
    assert "FROM_ENTRYPOINT=yes" in told
    assert "GREETING=it's a test" in told
    definition = envbuild(tmp_path, store, "def", "conda").stdout
    assert f"Bootstrap: docker\nFrom: {host}/lab/conda@{digest}\n" in definition


def test_a_tag_that_moves_changes_nothing_until_it_is_locked_again(
    registry: str, tmp_path: Path, store: Path
) -> None:
    host = registry.removeprefix("http://")
    first = push(base("3.11", "/opt/conda"), registry, "lab/moving", "latest")
    recipe(tmp_path, "moving", f"docker://{host}/lab/moving:latest")
    assert envbuild(tmp_path, store, "lock", "moving").code == 0
    second = push(
        base("3.11", "/opt/conda", framework=("flax", "0.8.1")), registry, "lab/moving", "latest"
    )
    assert first != second
    assert envbuild(tmp_path, store, "lock", "--check", "moving").code == 0
    told = envbuild(tmp_path, store, "lock", "moving").stderr
    assert f"~ base docker://{host}/lab/moving:latest {first[7:19]} -> {second[7:19]}" in told


def test_a_mirror_serves_docker_hub_and_the_build_has_no_network(
    registry: str, tmp_path: Path, store: Path
) -> None:
    """PEP 668: the base's Python tells installers to keep out, and the build tells it to let this one in."""
    push(base("3.12", "/usr", managed=True), registry, "mirror/tensorflow/tensorflow", "2.15.0-gpu")
    (tmp_path / "config.toml").write_text(
        f'[registries."docker.io"]\nmirrors = ["{registry}/mirror"]\n'
    )
    shipped = read_recipe(ROOT / "recipes/keras-bert-hub.toml")[0].base.image
    assert shipped == "docker://tensorflow/tensorflow:2.15.0-gpu"
    recipe(tmp_path, "managed", shipped)
    environment = {"ENVBUILD_CONFIG": str(tmp_path / "config.toml")}
    image = made(tmp_path, store, "managed", **environment)
    assert "externally-managed = true" in (tmp_path / "lockfiles/managed.lock").read_text()
    assert inside(image, "python3", "-c", "import iniconfig; print(iniconfig.__file__)").startswith(
        "/usr/lib/python3.12"
    )
    image.unlink()
    for kept in (store / "v1/images").iterdir():
        kept.unlink()
    (tmp_path / "config.toml").write_text(
        '[registries."docker.io"]\nmirrors = ["http://127.0.0.1:1"]\n'
    )
    again = envbuild(tmp_path, store, "make", "managed", **environment)
    assert again.code == 0, again.stderr


@pytest.mark.parametrize("mode", ["flat", "fakeroot"])
def test_layers_packed_with_zstd(mode: str, registry: str, tmp_path: Path, store: Path) -> None:
    push(base("3.11", "/opt/conda", zstd=True), registry, "lab/zstd", "1.0")
    recipe(tmp_path, "zstd", f"docker://{registry.removeprefix('http://')}/lab/zstd:1.0")
    assert envbuild(tmp_path, store, "lock", "zstd").code == 0
    made = envbuild(tmp_path, store, "make", "zstd", "--mode", mode)
    assert made.code == 0, made.stderr
    told = inside(
        tmp_path / "zstd.sif", "python3", "-c", "import six, flax; print(flax.__version__)"
    )
    assert told == "0.8.0\n"


def test_an_old_python_gets_its_packages_too(registry: str, tmp_path: Path, store: Path) -> None:
    host = registry.removeprefix("http://")
    push(base("3.6", "/usr/local"), registry, "lab/old", "1.0")
    recipe(tmp_path, "old", f"docker://{host}/lab/old:1.0")
    image = made(tmp_path, store, "old")
    assert (
        inside(image, "python3", "-c", "import iniconfig, sys; print(sys.version_info[:2])").strip()
        == "(3, 6)"
    )


def test_credentials_from_dockers_file_open_a_private_registry(
    private_registry: tuple[str, Path], tmp_path: Path, user_settings: Settings
) -> None:
    url, certificate = private_registry
    host = url.removeprefix("https://")
    digest = push(
        base("3.11", "/opt/conda"),
        url,
        "lab/secret",
        "1.0",
        auth=("ci", "ci-secret"),
        verify=ssl.create_default_context(cafile=certificate),
    )
    settings = replace(user_settings, certificates=certificate)
    reference = parse_reference(f"docker://{host}/lab/secret:1.0")
    store = Store(settings.store)
    with pytest.raises(NetworkError, match=r"the registry refuses access \(HTTP 401\)"):
        describe_base(
            reference,
            Context(settings=settings, runner=LocalRunner(), store=store, report=Silent()),
        )
    command = Command(
        argv=(
            "apptainer",
            "registry",
            "login",
            "--username",
            "ci",
            "--password-stdin",
            f"docker://{host}",
        ),
        stdin="ci-secret",
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(settings.home),
            "SSL_CERT_FILE": str(certificate),
        },
        timeout=60,
    )
    LocalRunner()(command)
    assert (
        describe_base(
            reference,
            Context(settings=settings, runner=LocalRunner(), store=store, report=Silent()),
        ).digest
        == digest
    )


@needs("dockerd")
@pytest.mark.skipif(os.getuid() != 0, reason="only root starts a Docker engine")
def test_an_engines_image_is_a_base(
    engine: str, tmp_path: Path, store: Path, user_settings: Settings
) -> None:
    import docker

    client = docker.DockerClient(base_url=engine)
    root = tmp_path / "root.tar"
    root.write_bytes(tar_of({**dist("/opt/conda/lib/python3.11/site-packages", "flax", "0.8.0")}))
    python = interpreter("3.11")
    if python is None:
        pytest.skip("no Python 3.11 on this machine")
    for number, tar in enumerate(
        (programs(), python_tar(python.resolve(), "/opt/conda"), root.read_bytes())
    ):
        (tmp_path / f"{number}.tar").write_bytes(tar)
    (tmp_path / "Dockerfile").write_text(
        'FROM scratch\nADD 0.tar /\nADD 1.tar /\nADD 2.tar /\nENV PATH=/opt/conda/bin:/usr/bin:/bin\nCMD ["env"]\n'
    )
    try:
        client.images.build(path=str(tmp_path), tag="lab/engine:1.0")
    finally:
        client.close()
    recipe(tmp_path, "engine", "docker-daemon:lab/engine:1.0")
    image = made(tmp_path, store, "engine", DOCKER_HOST=engine)
    assert inside(image, "python3", "-c", "import six; print(six.__file__)").startswith(
        "/opt/conda/"
    )
    unknown = envbuild(
        tmp_path, store, "base", "inspect", "docker-daemon:lab/engin:1.0", DOCKER_HOST=engine
    )
    assert unknown.code == 2
    assert "docker-daemon:lab/engin:1.0: the Docker engine holds no such image" in unknown.stderr
    assert "lab/engine:1.0" in unknown.stderr


@needs("dockerd")
@pytest.mark.skipif(os.getuid() != 0, reason="only root starts a Docker engine")
def test_an_engine_builds_the_dockerfile(
    engine: str, registry: str, tmp_path: Path, store: Path
) -> None:
    """The same packages by an engine, packed as a .sif; and without one it says what to do."""
    push(base("3.11", "/opt/conda"), registry, "lab/conda", "1.0")
    recipe(tmp_path, "image", f"docker://{registry.removeprefix('http://')}/lab/conda:1.0")
    assert envbuild(tmp_path, store, "lock", "image").code == 0
    path = f"/usr/bin:{os.environ['PATH']}"  # Debian's own docker builds without plugins
    built = envbuild(
        tmp_path, store, "make", "image", "--mode", "docker", DOCKER_HOST=engine, PATH=path
    )
    assert built.code == 0, built.stderr
    image = tmp_path / "image.sif"
    assert inside(image, "python3", "-c", "import six; print(six.__file__)").startswith(
        "/opt/conda/"
    )
    assert "FROM_ENTRYPOINT=yes" in inside(image, verb="run").splitlines()
    for kept in (store / "v1/images").iterdir():
        kept.unlink()
    image.unlink()
    absent = envbuild(
        tmp_path,
        store,
        "make",
        "image",
        "--mode",
        "docker",
        DOCKER_HOST="unix:///absent.sock",
        PATH=path,
    )
    assert absent.code == 7
    assert "no Docker engine answers" in absent.stderr


def test_an_image_of_before_nvidias_new_key_can_update_its_lists(
    registry: str, tmp_path: Path, store: Path
) -> None:
    old = base("3.11", "/opt/conda")
    list_file = "etc/apt/sources.list.d/cuda.list"
    extra = {
        list_file: "deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1804/x86_64 /\n",
        "etc/apt/sources.list.d/own.list": "deb https://mirror.invalid/own /\n",
        "usr/local/cuda/version.txt": "CUDA Version 10.1.243\n",
    }
    python = interpreter("3.11")
    assert python is not None
    tars = (programs(), python_tar(python.resolve(), "/opt/conda"), tar_of(extra))
    old = image_of(*tars, env=tuple(old.config["config"]["Env"]), created="2022-01-10T00:00:00Z")
    push(old, registry, "lab/old-cuda", "10.1")
    post = (
        f"[system]\npost = ['test ! -e /{list_file}', 'test -e /etc/apt/sources.list.d/own.list']\n"
    )
    recipe(tmp_path, "cuda", f"docker://{registry.removeprefix('http://')}/lab/old-cuda:10.1", post)
    assert envbuild(tmp_path, store, "lock", "cuda").code == 0
    built = envbuild(tmp_path, store, "make", "cuda", "--no-check")
    assert built.code == 0, built.stderr
    said = "the base is of 2022-01-10, before NVIDIA's new key: its CUDA package source is switched off"
    assert said in built.stderr
    assert f"{list_file}.off" in inside(
        tmp_path / "cuda.sif", "sh", "-c", "ls -d /etc/apt/sources.list.d/*"
    )


def test_what_is_done_in_a_sandbox_comes_back_as_recipe_lines(
    registry: str, tmp_path: Path, store: Path
) -> None:
    push(base("3.11", "/opt/conda"), registry, "lab/conda", "1.0")
    recipe(tmp_path, "try", f"docker://{registry.removeprefix('http://')}/lab/conda:1.0")
    assert envbuild(tmp_path, store, "lock", "try").code == 0
    built = envbuild(tmp_path, store, "make", "try", "--mode", "sandbox")
    assert built.code == 0, built.stderr
    assert "enter    apptainer shell --fakeroot --writable --no-home try.sandbox" in built.stdout
    again = envbuild(tmp_path, store, "make", "try", "--mode", "sandbox")
    assert (again.code, "is there already" in again.stderr) == (2, True)
    site = "/opt/conda/lib/python3.11/site-packages"
    by_hand = f"mkdir {site}/colour-2.0.dist-info; printf 'Name: colour\nVersion: 2.0\n' >{site}/colour-2.0.dist-info/METADATA"
    enter = (
        "apptainer",
        "--quiet",
        "exec",
        "--fakeroot",
        "--writable",
        "--no-home",
        "--pwd",
        "/",
        "try.sandbox",
    )
    script = f"{by_hand}; echo data >/opt/data; rm -r {site}/iniconfig*"
    LocalRunner()(Command(argv=(*enter, "sh", "-euc", script), cwd=tmp_path, timeout=60))
    refused = envbuild(tmp_path, store, "make", "--from-sandbox", "try.sandbox")
    assert refused.code == 1
    assert "the sandbox was packed, but its check failed: direct-imports" in refused.stderr
    assert not (tmp_path / "try.sif").exists()
    recipe_file = tmp_path / "recipes/try.toml"
    recipe_file.write_text(
        recipe_file.read_text()
        .replace('"six", "iniconfig<2"', '"six"')
        .replace(', "iniconfig"', "")
    )
    packed = envbuild(tmp_path, store, "make", "--from-sandbox", "try.sandbox")
    assert packed.code == 0, packed.stderr
    assert "\n  proved   " in packed.stdout
    assert "direct-imports" in packed.stdout
    assert packed.stdout.startswith(
        "Python distributions:\n  + colour 2.0\n  - iniconfig 1.1.1\nfiles (1):\n  /opt/data\n\n"
        'in the recipe this would be:\n  [python]\n  dependencies = [\n    "colour==2.0",\n  ]\n'
    )
    assert inside(tmp_path / "try.sif", "cat", "/opt/data") == "data\n"
    assert "envbuild-sandbox" not in inside(
        tmp_path / "try.sif", "ls", "-A", "/", "/.singularity.d/env"
    )
    for name in (
        ".envbuild-sandbox.json",
        ".envbuild-sandbox/pip.conf",
        ".singularity.d/env/93-envbuild-sandbox.sh",
    ):
        assert (tmp_path / "try.sandbox" / name).is_file()


def test_a_sif_in_a_registry_is_a_base_and_its_facts_are_those_of_its_layers(
    registry: str, tmp_path: Path, store: Path
) -> None:
    """What the probe tells inside the running image is what was read from the layers."""
    host = registry.removeprefix("http://")
    push(base("3.11", "/opt/conda"), registry, "lab/conda", "1.0")
    pulled = tmp_path / "base.sif"
    build = (
        "apptainer",
        "--quiet",
        "build",
        "--no-https",
        str(pulled),
        f"docker://{host}/lab/conda:1.0",
    )
    LocalRunner()(Command(argv=build, timeout=600))
    LocalRunner()(
        Command(
            argv=("apptainer", "push", "--no-https", str(pulled), f"oras://{host}/lab/sif:1.0"),
            timeout=60,
        )
    )
    told = [
        json.loads(envbuild(tmp_path, store, "-q", "base", "inspect", "--json", reference).stdout)
        for reference in (
            f"docker://{host}/lab/conda:1.0",
            f"oras://{host}/lab/sif:1.0",
            "base.sif",
        )
    ]
    own = ("image", "digest", "size", "created")  # of the form, not of the content
    layers, oras, sif = (
        {key: value for key, value in facts.items() if key not in own} for facts in told
    )
    assert layers == oras == sif
    recipe(tmp_path, "sif", f"oras://{host}/lab/sif:1.0")
    image = made(tmp_path, store, "sif")
    assert "FROM_ENTRYPOINT=yes" in inside(image, verb="run").splitlines()
