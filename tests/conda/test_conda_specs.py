"""Match specs of every form that people write, beside what py-rattler itself takes for them."""

from __future__ import annotations

import re

import pytest
from packaging.specifiers import SpecifierSet
from rattler import MatchSpec, PackageRecord
from rattler.package import BuildString

from envbuild.conda.solve import _with_address
from envbuild.errors import UsageError
from envbuild.project.conda.environment import conda_bounds
from envbuild.project.conda.stand_ins import without_build
from envbuild.recipe.conda import check_spec, spec_name

VERSIONS = ("1.1", "1.2", "1.2.0", "1.2.5", "1.3", "1.3.1", "2.0", "2.0.1", "2.1")
BUILDS = ("py312_cuda_0", "py312_0")
ALL, SERIES, SAME = VERSIONS, ("1.2", "1.2.0", "1.2.5"), ("1.2", "1.2.0")
TO_TWO = ("1.2", "1.2.0", "1.2.5", "1.3", "1.3.1", "2.0")
WITHOUT = tuple(version for version in VERSIONS if version != "1.3")
CUDA = BUILDS[:1]
LOOSE = "PEP 440 has no such choice"
# a match spec: the versions and builds that it takes, its bounds for Python's index where these are others
SPECS = {
    "numpy>=1.2,<=2": (TO_TWO, BUILDS),
    "numpy >=1.2, <=2": (TO_TWO, BUILDS),
    "numpy (>=1.2,<=2)": (TO_TWO, BUILDS),
    "numpy[version='>=1.2,<=2']": (TO_TWO, BUILDS),
    'numpy[build="*_cuda_*",version=">=1.2,<=2"]': (TO_TWO, CUDA),
    "numpy=1.2": (SERIES, BUILDS),
    "numpy =1.2": (SERIES, BUILDS),
    "numpy 1.2.*": (SERIES, BUILDS),
    "numpy=1.2*": (SERIES, BUILDS),
    "numpy ==1.2.*": (SERIES, BUILDS),
    "numpy=1.2.*=py*_cuda*": (SERIES, CUDA),
    "numpy 1.2.* py*_cuda*": (SERIES, CUDA),
    "numpy==1.2": (SAME, BUILDS),
    "numpy=1.2=py312_cuda_0": (SAME, CUDA),
    "numpy==1.2=py312_cuda_0": (SAME, CUDA),
    "numpy=1.2.5": (("1.2.5",), BUILDS),
    "numpy": (ALL, BUILDS),
    "numpy *": (ALL, BUILDS),
    "numpy=*": (ALL, BUILDS),
    "numpy=*=*cuda*": (ALL, CUDA),
    "numpy * *cuda*": (ALL, CUDA),
    "numpy>=1,!=1.3": (WITHOUT, BUILDS),
    "numpy!=1.3": (WITHOUT, BUILDS),
    "numpy!=1.3.*": ((*VERSIONS[:4], *VERSIONS[6:]), BUILDS),
    "numpy~=1.2": (("1.2", "1.2.0", "1.2.5", "1.3", "1.3.1"), BUILDS),
    "numpy>=1.2.*": (VERSIONS[1:], BUILDS),
    "numpy>1.2": (VERSIONS[3:], BUILDS),
    "numpy=1.2|1.3": ((*SERIES, "1.3"), BUILDS, LOOSE),
    "numpy >=1.2,<1.3|>=2.1": ((*SERIES, "2.1"), BUILDS, LOOSE),
    "forge::numpy[build=py312_cuda_0]": (ALL, CUDA),
    "forge::numpy=1.2=*cuda*": (SAME, CUDA),
    # init reads this one as people mean it: every 1.2.x
    "numpy 1.2": (SAME, BUILDS, LOOSE),
}


def taken(spec: str, *, strict: bool) -> set[tuple[str, str]]:
    """Return versions and builds that py-rattler takes for a spec without a channel."""
    parsed = MatchSpec(spec, strict=strict)
    records = {
        (version, build): PackageRecord(
            name="numpy",
            version=version,
            build=BuildString(build),
            build_number=0,
            subdir="linux-64",
        )
        for version in VERSIONS
        for build in BUILDS
    }
    return {key for key, record in records.items() if parsed.matches(record)}


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_takes_what_rattler_takes_for_it(spec: str) -> None:
    versions, builds, *loose = SPECS[spec]
    expected = {(version, build) for version in versions for build in builds}
    check_spec(spec)
    assert spec_name(spec) == "numpy"
    plain = spec.rpartition("::")[2]
    assert taken(plain, strict=False) == expected
    asked = _with_address(spec, {"forge": "file:///forge"}).rpartition("::")[2]
    assert taken(asked, strict=True) == expected
    # a build that says GPU stays
    left = taken(without_build(plain), strict=False)
    assert left >= expected
    assert {build for _, build in left} == {*builds}
    bounds = conda_bounds(re.sub(r"^numpy\s*", "", plain))
    inside = {version for version in VERSIONS if SpecifierSet(bounds).contains(version)}
    assert inside == {*versions} or (loose and inside > {*versions})


@pytest.mark.parametrize(
    "spec", ["numpy=>1.2", "numpy===1.2", "numpy>=1.2,", "numpy[version=>", ">=1.2"]
)
def test_what_rattler_cannot_read_is_refused_with_the_line(spec: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(spec))):
        check_spec(spec)
