"""Random locks for the laws that every lock obeys."""

from __future__ import annotations

from string import ascii_lowercase, digits
from typing import Literal

from hypothesis import strategies as st

from envbuild.base.model import DebianPackage
from envbuild.lock.model import (
    PACKED_BY,
    Lock,
    LockedBase,
    Packer,
    PackerFile,
    PythonPackage,
)
from envbuild.resolve.outcome import HeldBack, Moved, Provided

# numbers and short texts: drawing 64 characters, or from a pattern, took a minute of every run
sha256 = st.integers(0, 2**256 - 1).map("{:064x}".format)
digest = sha256.map("sha256:{}".format)
word = st.text(ascii_lowercase + digits, min_size=1, max_size=4)
name = st.builds(
    "{}{}{}".format,
    st.sampled_from(ascii_lowercase),
    st.text(ascii_lowercase + digits, max_size=8),
    st.just("") | word.map("-{}".format),
)
version = st.builds(
    "{}{}".format,
    st.lists(st.text(digits, min_size=1, max_size=3), min_size=1, max_size=4).map(".".join),
    st.just("") | word.map("+{}".format),
)
size = st.integers(0, 2**40 - 1)
text = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf")), max_size=30)
group: st.SearchStrategy[Literal["framework", "project", "build"]] = st.sampled_from(
    ["framework", "project", "build"]
)


@st.composite
def python_package(draw: st.DrawFn) -> PythonPackage:
    own, number = draw(name), draw(version)
    ending = draw(st.sampled_from(["-py3-none-any.whl", ".tar.gz"]))
    return PythonPackage(
        name=own,
        version=number,
        group=draw(group),
        file=f"{own.replace('-', '_')}-{number}{ending}",
        size=draw(size),
        sha256=draw(sha256),
        index=draw(st.none() | name),
        via=tuple(draw(st.lists(name, max_size=2))),
    )


@st.composite
def debian_package(draw: st.DrawFn) -> DebianPackage:
    own, number = "a" + draw(name), draw(version)
    return DebianPackage(
        name=own,
        version=number,
        architecture=draw(st.sampled_from(["amd64", "all"])),
        group=draw(st.sampled_from(["base", "system", "build"])),
        path=f"pool/main/{own[0]}/{own}/{own}_{number}_amd64.deb",
        size=draw(size),
        sha256=draw(sha256),
    )


base = st.builds(
    LockedBase,
    reference=text,
    digest=digest,
    facts=digest,
    python=version,
    machine=st.sampled_from(["x86_64", "aarch64"]),
    glibc=version,
    created=st.dates().map(str),
    epoch=st.integers(0, 2**33 - 1),
    distro=text,
    framework=st.none() | text,
    cuda=st.none() | version,
)
library = version.filter(lambda text: "+" not in text)


def packers(compressor: str) -> st.SearchStrategy[Packer]:
    return st.builds(
        Packer,
        name=name,
        version=text,
        compressor=st.just(compressor),
        level=st.integers(1, 22),
        library=st.none() | library.map(f"{PACKED_BY[compressor]} {{}}".format),
    )


packer = st.sampled_from(sorted(PACKED_BY)).flatmap(packers)
packer_file = st.builds(
    PackerFile,
    name=name,
    version=version,
    file=name.map("{}-1-py3-none-any.whl".format),
    size=st.integers(0, 9),
    sha256=sha256,
)


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    return Lock(
        schema=1,
        name=draw(name),
        platform=draw(st.sampled_from(["linux/amd64", "linux/arm64"])),
        recipe_digest=draw(digest),
        proof=draw(st.sampled_from(["imported", "not run"])),
        direct=tuple(draw(st.lists(text, max_size=3))),
        base=draw(base),
        packer=draw(packer),
        packers=tuple(draw(st.lists(packer_file, max_size=2, unique_by=lambda p: p.file))),
        system=tuple(draw(st.lists(name, max_size=2))),
        as_of=draw(st.none() | st.dates().map(str)),
        tools=draw(st.dictionaries(name, version, max_size=2)),
        notes=tuple(draw(st.lists(text, max_size=2))),
        debian=tuple(draw(st.lists(debian_package(), max_size=4, unique_by=lambda p: p.name))),
        python=tuple(draw(st.lists(python_package(), max_size=5, unique_by=lambda p: p.name))),
        provided=tuple(
            draw(
                st.lists(
                    st.builds(Provided, name=name, version=version, alias_of=st.none() | name),
                    max_size=2,
                )
            )
        ),
        moved=tuple(
            draw(
                st.lists(
                    st.builds(Moved, name=name, before=version, after=version, reason=text),
                    max_size=2,
                )
            )
        ),
        held_back=tuple(
            draw(
                st.lists(
                    st.builds(HeldBack, name=name, version=version, newest=version, reason=text),
                    max_size=2,
                )
            )
        ),
    )
