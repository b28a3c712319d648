"""Channels: where they are, which may be used, and what hostile or broken ones do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.conda.gpu import gpu_toolkit
from envbuild.conda.limited import choose_limited
from envbuild.conda.model import CondaRequest
from envbuild.conda.solve import open_solver
from envbuild.context import open_context
from envbuild.errors import IntegrityError, NetworkError, NoSolutionError, UsageError
from envbuild.lock.decide.conda import locked_packages
from envbuild.net.channels import channel_headers, channel_urls
from envbuild.net.fetch import Artifact, fetch_artifacts
from envbuild.progress import Silent
from envbuild.recipe.conda import check_conda
from envbuild.recipe.model import CondaSection
from envbuild.run import Command, LocalRunner, Result
from tests.conda.asking import builds, choose, context_of, user_of
from tests.conda.channels import Package, Record, Served, make_channel, serve

RECORDED = Path(__file__).parents[1] / "recorded/conda"


def test_a_name_becomes_an_address_by_the_settings(tmp_path: Path) -> None:
    settings = user_of(tmp_path, forge="http://mirror.invalid/forge/")
    assert channel_urls(settings, "forge")[0] == "http://mirror.invalid/forge"
    (settings.home / ".condarc").write_text(
        "channel_alias: https://alias.invalid/\ncustom_channels: {lab: https://lab.invalid}\n"
    )
    assert channel_urls(settings, "other")[0] == "https://alias.invalid/other"
    assert channel_urls(settings, "lab")[0] == "https://lab.invalid/lab"


VENDOR = ("defaults", "anaconda", "main", "r", "pkgs/main")


@pytest.mark.parametrize("name", VENDOR)
def test_the_vendor_s_channels_are_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one of Anaconda Inc"):
        channel_urls(user_of(tmp_path), name)
    allowed = user_of(tmp_path, "[conda]\nvendor = true\n")
    assert channel_urls(allowed, name)[0].endswith(name)


@pytest.mark.parametrize(
    "url", ["https://repo.anaconda" + ".com/pkgs/main", "https://lab.invalid/pkgs/main"]
)
def test_the_vendor_s_channels_are_refused_by_host_and_path(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leads to one of Anaconda Inc"):
        channel_urls(user_of(tmp_path, mine=url), "mine")


def test_a_record_that_another_host_delivers_is_refused(tmp_path: Path) -> None:
    def elsewhere(_subdir: str, data: Record) -> None:
        data["info"]["base_url"] = "https://repo.anaconda" + ".com/pkgs/main/linux-64/"

    channel = make_channel(tmp_path / "ch", [Package(name="a")], change=elsewhere)
    context = context_of(user_of(tmp_path, ch=channel.as_uri()))
    with pytest.raises(UsageError, match="a channel of Anaconda Inc"):
        choose(context, "a", channels=("ch",))


def test_only_allowed_channels_are_asked(tmp_path: Path) -> None:
    settings = user_of(tmp_path, '[conda]\nallow = ["forge"]\n', forge="http://x.invalid/forge")
    assert channel_urls(settings, "forge")
    with pytest.raises(UsageError, match="the channel forgee is not allowed here; did you mean"):
        channel_urls(settings, "forgee")


def test_a_password_goes_to_its_own_host_alone(tmp_path: Path) -> None:
    settings = user_of(
        tmp_path, lab="https://ada:geheim@lab.invalid/lab", plain="http://u:p@plain.invalid/x"
    )
    headers = channel_headers(settings, ("lab", "plain"))
    assert headers("lab.invalid", "/lab") == {"Authorization": "Basic YWRhOmdlaGVpbQ=="}
    assert headers("other.invalid", "/lab") is None
    # nobody on the way may read it
    assert headers("plain.invalid", "/x") is None


def test_a_channel_behind_a_password(tmp_path: Path) -> None:
    make_channel(tmp_path / "served/lab", [Package(name="a")])
    with serve(tmp_path / "served", token="YWRhOmdlaGVpbQ==", scheme="Basic") as served:
        address = served.url.replace("//", "//ada:geheim@")
        context = context_of(user_of(tmp_path, lab=f"{address}/lab"))
        solution = choose(context, "a", channels=("lab",))
        assert "geheim" not in repr(solution)
        bare = context_of(user_of(tmp_path, lab=f"{served.url}/lab"))
        (tmp_path / "store").rename(tmp_path / "first-store")
        with pytest.raises(NetworkError, match="a channel cannot be read"):
            choose(bare, "a", channels=("lab",))


def test_a_bearer_token_opens_a_channel_and_is_told_nowhere(tmp_path: Path) -> None:
    make_channel(tmp_path / "served/lab", [Package(name="a")])
    commands: list[Command] = []

    class Spy(LocalRunner):
        def __call__(self, command: Command, **options: Any) -> Result:
            commands.append(command)
            return super().__call__(command, **options)

    with serve(tmp_path / "served", token="tk-geheim") as served:
        settings = user_of(tmp_path, lab=f"{served.url}/lab")
        saved = settings.home / ".rattler/credentials.json"
        saved.parent.mkdir()
        saved.write_text('{"127.0.0.1": {"BearerToken": "tk-geheim"}}')
        context = open_context(settings, Spy(), Silent())
        request = CondaRequest(specs=("a",), channels=("lab",), machine="x86_64", glibc="2.36")
        solution = choose_limited(request, context)
        [row] = locked_packages(solution, ("a",))
        item = Artifact(
            kind="conda",
            project="a",
            file=row.file,
            size=row.size,
            sha256=row.sha256,
            path=f"{row.subdir}/{row.file}",
            index="lab",
        )
        fetch_artifacts([item], context)
        assert context.store.artifact(row.sha256).is_file()
        assert commands
        told = repr(solution) + repr([(command.argv, command.stdin) for command in commands])
        assert "geheim" not in told
        saved.unlink()
        context.store.artifact(row.sha256).unlink()
        with pytest.raises(NetworkError) as refused:
            fetch_artifacts([item], context_of(settings))
        assert "geheim" not in str(refused.value)


def test_a_second_address_is_asked_where_the_first_is_gone(tmp_path: Path) -> None:
    make_channel(tmp_path / "served/forge", [Package(name="a")])
    with serve(tmp_path / "served") as served:
        context = context_of(user_of(tmp_path, forge="x"))
        config = tmp_path / "config.toml"
        gone = f"{served.url}/gone"
        config.write_text(f'[channels]\nforge = ["{gone}", "{served.url}/forge"]\n')
        from envbuild.settings import load_settings

        context = context_of(load_settings(context.settings.environment, tmp_path))
        assert builds(choose(context, "a")) == {"a": "0"}


def test_the_first_channel_that_has_a_name_owns_it(tmp_path: Path) -> None:
    first = make_channel(tmp_path / "first", [Package(name="a", version="1.0")])
    second = make_channel(tmp_path / "second", [Package(name="a", version="2.0")])
    context = context_of(user_of(tmp_path, one=first.as_uri(), two=second.as_uri()))
    [found] = choose(context, "a", channels=("one", "two")).packages
    assert (found.version, found.channel) == ("1.0", "one")
    [found] = choose(context, "two::a", channels=("one", "two")).packages
    assert (found.version, found.channel) == ("2.0", "two")
    with pytest.raises(UsageError, match="names the channel three"):
        choose(context, "three::a", channels=("one", "two"))


def test_channel_relations_are_not_followed(tmp_path: Path) -> None:
    make_channel(tmp_path / "served/evil", [Package(name="a", version="9.0")])

    def relate(_subdir: str, data: Record) -> None:
        data["info"]["channel_relations"] = {"overrides": "../evil"}

    make_channel(tmp_path / "served/lab", [Package(name="b")], change=relate)
    with serve(tmp_path / "served") as served:
        context = context_of(user_of(tmp_path, lab=f"{served.url}/lab"))
        with pytest.raises(NoSolutionError, match="No candidates were found for a"):
            choose(context, "a", channels=("lab",))
        assert not [path for path in served.asked if "evil" in path]


def test_plain_and_sharded_and_packed_lists_say_the_same(tmp_path: Path) -> None:
    packages = [Package(name="a", depends=("b",)), Package(name="b", old_format=True)]
    kinds: dict[str, dict[str, Any]] = {
        "plain": {"compressed": False},
        "packed": {},
        "shards": {"shards": True, "compressed": False},
    }
    for name, how in kinds.items():
        make_channel(tmp_path / "served" / name, packages, **how)
    with serve(tmp_path / "served") as served:
        for name in kinds:
            context = context_of(user_of(tmp_path, **{name: f"{served.url}/{name}"}))
            files = [p.file for p in choose(context, "a", channels=(name,)).packages]
            assert files == ["a-1.0-0.conda", "b-1.0-0.tar.bz2"]
        assert "/shards/linux-64/repodata_shards.msgpack.zst" in served.asked


def _traverse(_subdir: str, data: Record) -> None:
    for record in data["packages.conda"].values():
        record["build"] = "../../../../tmp/x"


def _traverse_file(_subdir: str, data: Record) -> None:
    found = data["packages.conda"]
    data["packages.conda"] = {f"../{name}": record for name, record in found.items()}


def _no_hash(_subdir: str, data: Record) -> None:
    for record in data["packages.conda"].values():
        del record["sha256"]


def _no_list(_subdir: str, data: Record) -> None:
    data["packages.conda"] = ["a"]


def _set_field(name: str, value: object) -> Callable[[str, Record], None]:
    def change(_subdir: str, data: Record) -> None:
        for record in data["packages.conda"].values():
            record[name] = value

    return change


ODD_FIELDS = {
    "size": 2**70,
    "timestamp": -(10**17),
    "build_number": 2**64,
    "depends": [""],
    "sha256": "00",
    "name": "a\x1b",
    "version": "../1",
}


@pytest.mark.parametrize(
    "change",
    [_traverse, _traverse_file, _no_hash, _no_list]
    + [_set_field(name, value) for name, value in ODD_FIELDS.items()],
)
def test_a_hostile_channel_is_refused(change: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "ch", [Package(name="a")], change=change)
    context = context_of(user_of(tmp_path, ch=channel.as_uri()))
    with pytest.raises((NetworkError, NoSolutionError, IntegrityError)) as refused:
        choose(context, "a", channels=("ch",))
    assert "Traceback" not in str(refused.value)


def test_builds_of_another_machine_are_chosen_for_it(tmp_path: Path) -> None:
    both = [Package(name="a", subdir=subdir) for subdir in ("linux-64", "linux-aarch64")]
    channel = make_channel(tmp_path / "ch", both)
    context = context_of(user_of(tmp_path, ch=channel.as_uri()))
    solution = choose(context, "a", channels=("ch",), machine="aarch64")
    assert [package.subdir for package in solution.packages] == ["linux-aarch64"]
    assert "__archspec=1=aarch64" in solution.virtual


@pytest.mark.parametrize("text", [b"", b"{", b"\x28\xb5\x2f\xfd", b"[]"])
def test_a_broken_list_is_a_network_error(text: bytes, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "ch", [Package(name="a")], compressed=False)
    (channel / "linux-64/repodata.json").write_bytes(text)
    context = context_of(user_of(tmp_path, ch=channel.as_uri()))
    with pytest.raises(NetworkError, match="a channel cannot be read"):
        choose(context, "a", channels=("ch",))


def test_a_channel_that_is_not_there(tmp_path: Path, channels: Served) -> None:
    context = context_of(user_of(tmp_path, gone="http://127.0.0.1:9/gone"))
    with pytest.raises(NetworkError, match="a channel cannot be read"):
        choose(context, "a", channels=("gone",))


def test_what_has_no_solution_is_explained(tmp_path: Path, channels: Served) -> None:
    context = context_of(user_of(tmp_path, forge=f"{channels.url}/forge"))
    with pytest.raises(NoSolutionError, match="libthing <2, for which no candidates"):
        choose(context, "wants-old")
    assert set(builds(choose(context, "left"))) == {"left", "right"}


SPECS = {
    "https://x.invalid/a-1-0.conda": "names no package",
    "./a-1-0.conda": "names no package",
    "numpy[url=https://x.invalid/a]": "names no package",
    "numpy[ url = https://x.invalid/a]": "names no package",
    "numpy >=1[build=0, channel=other]": "names no package",
    "numpy >=": "is not a match spec",
    "numpy >>1": "is not a match spec",
    "": "names no package",
}


@pytest.mark.parametrize("spec", sorted(SPECS))
def test_a_line_that_is_no_match_spec(spec: str) -> None:
    with pytest.raises(UsageError, match=SPECS[spec]):
        check_conda(CondaSection(channels=("forge",), dependencies=(spec,)))


@pytest.mark.parametrize("spec", ["libcurl=8.18.0=h4e3cde8_0", "r-curl=6.0", "channel=1.0"])
def test_a_name_that_ends_like_a_key_is_a_name(spec: str) -> None:
    check_conda(CondaSection(channels=("forge",), dependencies=(spec,)))


@pytest.mark.parametrize(
    ("spec", "build"),
    [
        ("numpy=1.26.4=py312*", "py312_0"),
        ("numpy==1.26.4=py311_0", "py311_0"),
        ("forge::numpy 1.26.*=py311*", "py311_0"),
    ],
)
def test_a_build_is_named_as_conda_s_command_line_has_it(
    spec: str, build: str, tmp_path: Path, channels: Served
) -> None:
    context = context_of(user_of(tmp_path, forge=f"{channels.url}/forge"))
    check_conda(CondaSection(channels=("forge",), dependencies=(spec,)))
    assert builds(choose(context, spec))["numpy"] == build


def test_a_build_that_nobody_could_have(tmp_path: Path, channels: Served) -> None:
    context = context_of(user_of(tmp_path, forge=f"{channels.url}/forge"))
    request = CondaRequest(
        specs=("numpy=1=*;id",), channels=("forge",), machine="x86_64", glibc="2.36"
    )
    with pytest.raises(NoSolutionError, match="No candidates were found for numpy"):
        choose_limited(request, context)


REAL = {
    "pytorch": {
        ("1.12.1", "py3.10_cpu_0"): None,
        ("1.12.1", "py3.10_cuda10.2_cudnn7.6.5_0"): "10.2",
        ("1.12.1", "py3.10_cuda11.3_cudnn8.3.2_0"): "11.3",
        ("1.12.1", "py3.10_cuda11.6_cudnn8.3.2_0"): "11.6",
        ("2.0.0", "py3.10_cpu_0"): None,
        ("2.0.0", "py3.10_cuda11.7_cudnn8.5.0_0"): "11.7",
        ("2.0.0", "py3.10_cuda11.8_cudnn8.7.0_0"): "11.8",
    },
    "torchvision": {
        ("0.13.1", "py310_cpu"): None,
        ("0.13.1", "py310_cu102"): "10.2",
        ("0.13.1", "py310_cu113"): "11.3",
        ("0.13.1", "py310_cu116"): "11.6",
    },
}


def test_builds_of_a_real_channel_are_told_apart(tmp_path: Path) -> None:
    channel = tmp_path / "pytorch"
    (channel / "noarch").mkdir(parents=True)
    (channel / "noarch/repodata.json").write_text('{"packages": {}, "packages.conda": {}}')
    (channel / "linux-64").mkdir()
    shutil.copy(RECORDED / "pytorch-linux-64.json", channel / "linux-64/repodata.json")
    context = context_of(user_of(tmp_path, pytorch=channel.as_uri()))
    request = CondaRequest(specs=(), channels=("pytorch",), machine="x86_64", glibc="2.36")
    solver = open_solver(request, context)
    for name, told in REAL.items():
        records = solver.records([name])
        assert {(str(r.version), str(r.build)): gpu_toolkit(r) for r in records} == told


def test_conditional_dependencies_and_extras(tmp_path: Path) -> None:
    """CEP 43 and 44: records of the third revision of repodata."""

    def revise(subdir: str, data: Record) -> None:
        if subdir != "linux-64":
            return
        record = data["packages.conda"].pop("tool-1.0-0.conda")
        record["depends"] = ['new[when="python >=3.12"]', 'old[when="python <3.12"]']
        record["extra_depends"] = {"plot": ["plotting"]}
        data.setdefault("v3", {}).setdefault("conda", {})["tool-1.0-0"] = record

    packages = [
        *(Package(name=name) for name in ("tool", "new", "old", "plotting")),
        *(Package(name="python", version=version) for version in ("3.11.1", "3.12.1")),
    ]
    channel = make_channel(tmp_path / "ch", packages, change=revise)
    context = context_of(user_of(tmp_path, ch=channel.as_uri()))

    def names(*specs: str) -> set[str]:
        return set(builds(choose(context, *specs, channels=("ch",))))

    assert names("tool", "python 3.12.*") == {"tool", "new", "python"}
    assert names("tool", "python 3.11.*") == {"tool", "old", "python"}
    assert names("tool[extras=[plot]]", "python 3.12.*") == {"tool", "new", "plotting", "python"}


def test_what_a_package_constrains_holds_where_the_other_is_there(tmp_path: Path) -> None:
    packages = [
        *(Package(name="thing", version=version) for version in ("1.0", "2.0")),
        Package(name="needy", constrains=("thing <2",)),
    ]
    channel = make_channel(tmp_path / "ch", packages)
    context = context_of(user_of(tmp_path, ch=channel.as_uri()))

    def files(*specs: str) -> list[str]:
        return [p.file for p in choose(context, *specs, channels=("ch",)).packages]

    assert files("needy") == ["needy-1.0-0.conda"]
    assert files("needy", "thing") == ["needy-1.0-0.conda", "thing-1.0-0.conda"]
    with pytest.raises(NoSolutionError, match="thing"):
        files("needy", "thing 2.*")


def test_a_date_is_compared_with_the_upload_where_the_channel_tells_it(tmp_path: Path) -> None:
    """CEP 47: what was built early and uploaded late was not there before."""

    def upload(_subdir: str, data: Record) -> None:
        for record in data["packages.conda"].values():
            if record["version"] == "2.0":
                record["indexed_timestamp"] = 1_780_272_000_000  # 2026-06-01

    packages = [Package(name="a", version=v, uploaded="2025-01-01") for v in ("1.0", "2.0")]
    context_by_time = {}
    for name, change in (("built", None), ("told", upload)):
        channel = make_channel(tmp_path / name, packages, change=change)
        user = tmp_path / f"user-{name}"
        user.mkdir()
        context_by_time[name] = context_of(user_of(user, **{name: channel.as_uri()}))

    def version(name: str, day: str) -> str:
        found = choose(context_by_time[name], "a", channels=(name,), as_of=day)
        return found.packages[0].version

    assert version("built", "2026-03-01") == "2.0"
    assert version("told", "2026-03-01") == "1.0"
    assert version("told", "2026-06-02") == "2.0"


def test_a_license_that_the_lab_denies_is_refused(tmp_path: Path) -> None:
    packages = [
        Package(name="strict", license="AGPL-3.0-only"),
        Package(name="either", license="(AGPL-3.0-only OR MIT)"),
        Package(name="both", license="MIT AND AGPL-3.0-only"),
        Package(name="told-not", license=None),
    ]
    channel = make_channel(tmp_path / "ch", packages)
    text = '[conda]\ndeny-licenses = ["agpl-*"]\n'
    context = context_of(user_of(tmp_path, text, ch=channel.as_uri()))
    assert set(builds(choose(context, "either", "told-not", channels=("ch",)))) == {
        "either",
        "told-not",
    }
    for name in ("strict", "both"):
        with pytest.raises(
            UsageError, match=r'AGPL-3.0-only, which the settings deny \("agpl-\*"\)'
        ):
            choose(context, name, channels=("ch",))
    with pytest.raises(UsageError, match=r"conda\.deny-licenses: takes a list"):
        user_of(tmp_path, '[conda]\ndeny-licenses = "MIT"\n')
