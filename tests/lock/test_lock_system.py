"""Debian packages over an image: of which release, what is left out, what stands against; on a loopback mirror."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from envbuild.base.debian import distribution
from envbuild.base.debian.distribution import UBUNTU, release_of
from envbuild.base.model import AptPackage, BaseFacts
from envbuild.errors import NoSolutionError, UsageError
from envbuild.lock.decide.base import choose_system
from envbuild.lock.decide.options import LockOptions, LockTask
from envbuild.recipe.model import AboutSection, BaseSection, Recipe, Source, SystemSection
from envbuild.settings import Settings
from tests.base.debian_mirror import Mirror
from tests.support import needs, quiet_context


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    folder = tmp_path_factory.mktemp("ubuntu")
    made = Mirror(folder / "ubuntu", folder / "keys" / "ring.gpg")
    made.make_key()
    made.add("libc6", "2.31-0ubuntu9", "amd64")
    made.add("libssl1.1", "1.1.1f-1ubuntu2", "amd64", Multi_Arch="same")
    made.add("libssl-dev", "1.1.1f-1ubuntu2", "amd64", Depends="libssl1.1 (= 1.1.1f-1ubuntu2)")
    made.add("graphviz", "2.42-3", "amd64", component="universe", Depends="libc6 (>= 2.3), libgd")
    made.add("libgd", component="universe")
    made.add("cmake", component="main", Depends="libgd")
    made.publish("focal")
    yield made
    made.stop()


INSTALLED = (
    AptPackage(name="libc6", version="2.31-0ubuntu9.16", architecture="amd64"),
    AptPackage(name="libssl1.1", version="1.1.1f-1ubuntu2.22", architecture="amd64"),
    AptPackage(name="cuda-toolkit", version="11.8", architecture="amd64"),
)


def chosen(
    settings: Settings, system: SystemSection, distro: str = "ubuntu 20.04"
) -> list[tuple[str, str, str]]:
    facts = BaseFacts(
        image="x", python="3.8.10", machine="x86_64", glibc="2.31", distro=distro, apt=INSTALLED
    )
    recipe = Recipe(
        recipe=AboutSection(name="x"), base=BaseSection(image="docker://x"), system=system
    )
    source = Source(recipe=recipe, path=Path("x.toml"), text="", lock=Path("x.lock"))
    context = quiet_context(settings)
    found = choose_system(facts, LockTask(source, LockOptions(), context, date(2025, 1, 1)))
    return [(p.name, p.group, p.path.split("/")[1]) for p in found]


@pytest.mark.live
@needs("apt-get", "dpkg-deb", "gpg", "gpgv", "gpgconf")
def test_ubuntus_release_has_main_and_universe(
    served: Mirror, user_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = dataclasses.replace(UBUNTU, keyring=served.keyring)
    monkeypatch.setitem(distribution.DISTRIBUTIONS, "ubuntu", own)
    settings = dataclasses.replace(user_settings, ubuntu_mirror=served.url)
    asked = SystemSection(packages=("graphviz", "libc6"), build_packages=("cmake",))
    assert chosen(settings, asked) == [
        ("graphviz", "system", "universe"),
        ("libgd", "system", "universe"),
        ("cmake", "build", "main"),
    ]
    with pytest.raises(NoSolutionError, match=r"libssl-dev : Depends: libssl1\.1"):
        chosen(settings, SystemSection(packages=("libssl-dev",)))
    with pytest.raises(UsageError, match="focal has no package 'grafviz'"):
        chosen(settings, SystemSection(packages=("grafviz",)))


@pytest.mark.parametrize("distro", ["", "rocky 9", "debian 7", "ubuntu 23.10"])
def test_a_base_of_another_kind_is_refused_with_what_to_do(
    user_settings: Settings, distro: str
) -> None:
    assert chosen(user_settings, SystemSection(), distro) == []
    with pytest.raises(UsageError, match="cannot be locked") as caught:
        chosen(user_settings, SystemSection(packages=("graphviz",)), distro)
    assert "[system] post" in str(caught.value.hint)


def test_every_release_has_a_name() -> None:
    assert release_of("debian 12")[1] == "bookworm"
    assert release_of("ubuntu 22.04")[1] == "jammy"


def test_a_mirror_that_is_no_url_is_named(user_settings: Settings) -> None:
    settings = dataclasses.replace(user_settings, ubuntu_mirror="no url")
    with pytest.raises(UsageError, match="is not the URL of a Ubuntu mirror"):
        chosen(settings, SystemSection(packages=("graphviz",)))
