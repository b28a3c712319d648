"""A recipe with conda packages goes to others: in a bundle where no channel answers, and over a shelf."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from envbuild.app.bundle import bundle_recipe, make_from_bundle
from envbuild.app.make import MakeRequest, make
from envbuild.app.shelf.publish import gather_publication, publish
from envbuild.build.modes import select
from envbuild.cli import run_cli
from envbuild.lock.digest import recipe_digest
from envbuild.lock.write import write_lock
from envbuild.recipe.find import find_recipe
from envbuild.shelf.config import ShelfConfig, add_shelf, backend_of, normal_url
from tests.build.test_build_conda import python_of
from tests.build.test_build_conda_link import MODULE, TOOL
from tests.conda.channels import serve
from tests.support import context_for
from tests.tiny_build import TinyProject

DEAD = "http://127.0.0.1:9"
NEEDS = '[conda]\nchannels = ["lab"]\ndependencies = ["python", "module", "tool"]\n'
UNCHECKED = MakeRequest(mode="flat", check=False)


def project(folder: Path, url: str) -> TinyProject:
    """A project whose store has the base and the wheels, and no conda package."""
    config = folder / ".config/envbuild/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[channels]\nlab = "{url}/lab"\n')
    return TinyProject(folder, "image")


def lock_conda(tiny: TinyProject, channel: Path) -> None:
    """Write a recipe that needs conda packages, its lock, and the channel that has them."""
    path = tiny.folder / "recipes/tiny.toml"
    path.write_text(path.read_text() + NEEDS)
    tiny.source = find_recipe("tiny", tiny.context.settings)
    archives = (python_of(tiny), MODULE, TOOL)
    packages = tuple(archive.write(channel / archive.subdir) for archive in archives)
    conda = tiny.source.recipe.conda
    tiny.lock = msgspec.structs.replace(
        tiny.lock,
        recipe_digest=recipe_digest(tiny.source.recipe),
        channels=conda.channels,
        conda_direct=conda.dependencies,
        conda=packages,
    )
    tiny.source.lock.write_text(write_lock(tiny.lock))


def share_shelf(tiny: TinyProject, place: Path) -> None:
    """Add the shelf ``lab``; whoever comes first makes it."""
    settings = tiny.context.settings
    url = normal_url(str(place), settings)
    backend_of(url, context_for(settings, tiny.context.runner)).create()
    add_shelf("lab", ShelfConfig(url=url), None, settings)


@pytest.fixture(autouse=True)
def played_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the played runtime count as one that starts containers."""
    able = select.HostCapabilities(missing={})
    monkeypatch.setattr(select, "read_capabilities", lambda *_, **__: able)


@pytest.fixture
def made(tmp_path: Path) -> tuple[TinyProject, bytes]:
    """A project and its image, made from a channel that has been away since."""
    with serve(tmp_path) as channel:
        tiny = project(tmp_path / "ann", channel.url)
        lock_conda(tiny, tmp_path / "lab")
        make("tiny", UNCHECKED, tiny.context)
        assert sum(path.startswith("/lab/") for path in channel.asked) == 3
    shutil.rmtree(tmp_path / "lab")
    return tiny, (tiny.folder / "tiny.sif").read_bytes()


def test_a_bundle_needs_no_channel(made: tuple[TinyProject, bytes], tmp_path: Path) -> None:
    ann, image = made
    _, bundle, _ = bundle_recipe("tiny", None, ann.context, with_tool=False)
    bob = project(tmp_path / "bob", DEAD)
    shutil.rmtree(bob.context.settings.store)
    make_from_bundle(bundle, UNCHECKED, bob.context)
    assert (bob.folder / "tiny.sif").read_bytes() == image


@pytest.mark.parametrize("with_image", [True, False])
def test_a_shelf_gives_the_same_image(
    with_image: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Taken as it was published without the channel, or made again from the channel's files."""
    with serve(tmp_path) as channel:
        ann, bob = project(tmp_path / "ann", channel.url), project(tmp_path / "bob", channel.url)
        for tiny in (ann, bob):
            share_shelf(tiny, tmp_path / "shelf")
        lock_conda(ann, tmp_path / "lab")
        make("tiny", UNCHECKED, ann.context)
        draft = gather_publication(
            "tiny", ann.context, shelf="lab", with_image=with_image, key=None
        )
        publish(draft, ann.context)
        monkeypatch.setenv("HOME", str(bob.folder))
        monkeypatch.chdir(bob.folder)
        # a direct requirement of [conda] is found as one of [python] is
        assert run_cli(["-q", "shelf", "search", "tool"]) == 0
        assert "tiny" in capsys.readouterr().out
        assert run_cli(["-q", "shelf", "show", "lab/tiny"]) == 0
        assert "module" in capsys.readouterr().out
        channel.asked.clear()
        make("lab/tiny", MakeRequest(check=False), bob.context)
        assert bool(channel.asked) is not with_image
    images = [(tiny.folder / "tiny.sif").read_bytes() for tiny in (ann, bob)]
    assert images[0] == images[1]
