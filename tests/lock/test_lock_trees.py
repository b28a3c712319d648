"""Source trees in a lock: a folder of the project, a commit of a git server; and everything that may go wrong."""

from __future__ import annotations

import contextlib
import functools
import shutil
import zipfile
from collections.abc import Callable, Iterator
from datetime import date
from http.server import SimpleHTTPRequestHandler
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.base.model import BaseFacts
from envbuild.errors import NetworkError, StaleLockError, UsageError
from envbuild.lock.decide.decide import decide_lock
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.decide.source_trees import require_trees
from envbuild.lock.model import Lock, PythonPackage
from envbuild.lock.read import parse_lock
from envbuild.lock.write import write_lock
from envbuild.recipe.model import Source
from envbuild.recipe.read import read_recipe
from envbuild.recipe.trees import read_tree_line, submodule_address
from envbuild.resolve.sources.source_trees import SANDBOX_NOTE
from envbuild.run import Command, LocalRunner
from envbuild.settings import load_settings
from tests.resolve.conftest import SyntheticIndex
from tests.support import http_server, needs, quiet_context

PROJECT = '[project]\nname = "Our.Lab"\nversion = "1.2"\ndependencies = ["rich>=13"]\n'
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("line", "folder", "extras"),
    [(".", ".", ()), ("-e .", ".", ()), ("./", ".", ()), ("-e ./sub[b, a]", "./sub", ("a", "b")), ("--editable=./a b", "./a b", ())],
)  # fmt: skip
def test_a_folder(line: str, folder: str, extras: tuple[str, ...]) -> None:
    found = read_tree_line(line)
    assert found is not None
    assert (found.folder, found.extras, found.source("")) == (folder, extras, folder)


@pytest.mark.parametrize(
    ("line", "url", "revision", "subfolder"),
    [
        (
            f"x @ git+https://lab.invalid/g/x.git@{COMMIT}",
            "https://lab.invalid/g/x.git",
            COMMIT,
            "",
        ),
        ("x[cuda]@git+https://lab.invalid/x", "https://lab.invalid/x", "", ""),
        (
            "x @ git+https://lab.invalid/x@v1.0#subdirectory=python/x",
            "https://lab.invalid/x",
            "v1.0",
            "python/x",
        ),
        ("x @ git+ssh://git@lab.invalid/x@feature/y", "ssh://git@lab.invalid/x", "feature/y", ""),
        ("x @ git+http://127.0.0.1:8000/x", "http://127.0.0.1:8000/x", "", ""),
        ("x @ git+https://lab.invalid/x@main#egg=x", "https://lab.invalid/x", "main", ""),
    ],
)
def test_a_repository(line: str, url: str, revision: str, subfolder: str) -> None:
    found = read_tree_line(line)
    assert found is not None
    assert (found.name, found.url, found.revision, found.subfolder) == (
        "x",
        url,
        revision,
        subfolder,
    )
    back = read_tree_line(f"x @ {found.source(COMMIT)}")
    assert back is not None
    assert (back.url, back.revision, back.subfolder) == (url, COMMIT, subfolder)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("-e ./../other", "leaves the project's folder"),
        ("git+https://lab.invalid/x", "names no package or no repository"),
        (
            "x @ git+https://user:secret@lab.invalid/x",
            "a recipe must not contain a user or a password",
        ),
        ("x @ git+https://token@lab.invalid/x", "a recipe must not contain a user or a password"),
        ("x @ git+http://lab.invalid/x", "git+http is not taken"),
        ("x @ git+file:///srv/x", "git+file is not taken"),
        ("x @ git+ext::sh -c id", "names no package or no repository"),
        ("x @ git+https://-oProxyCommand=id/x", "is not the address of a repository"),
        ("x @ git+https://lab.invalid/x@--upload-pack=id", "is not a commit, tag or branch"),
        ("x @ git+https://lab.invalid/x@a..b", "is not a commit, tag or branch"),
        ("x @ git+https://lab.invalid/x#subdirectory=../y", "is not understood"),
        ("x @ git+https://lab.invalid/x?token=1", "is not the address of a repository"),
        ("x @ git+https://[::1", "is no address"),
    ],
)
def test_what_is_refused(line: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_tree_line(line)
    assert what in caught.value.what
    assert "secret" not in str(caught.value)
    assert "token@" not in str(caught.value)


@given(st.text(alphabet="-e .x/[]@git+htps:#=\n", max_size=40))
def test_any_text_is_a_tree_or_none_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        found = read_tree_line(text)
        if found is not None:
            assert bool(found.folder is not None) != bool(found.url)


def test_a_recipe_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        '[recipe]\nname = "x"\n[base]\nimage = "a.sif"\n[python]\ndependencies = [\n"rich",\n"-e ./../y",\n]\n'
    )
    with pytest.raises(UsageError) as caught:
        read_recipe(path)
    assert caught.value.where == f"{path}, line 8"


# ---- locks


@pytest.fixture
def index(tmp_path: Path) -> SyntheticIndex:
    made = SyntheticIndex(tmp_path / "index")
    made.wheel("uv", version("uv"))
    made.wheel("rich", "12.0", "13.0")
    made.wheel("setuptools", "70.0")
    made.wheel("wheel", "0.43")
    return made


class Desk:
    """A project folder with a recipe, and the means to lock it."""

    def __init__(self, folder: Path, index: SyntheticIndex) -> None:
        self.project = folder / "project"
        (self.project / "recipes").mkdir(parents=True)
        environment = {
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin",
            "ENVBUILD_INDEX": index.url,
            "TMPDIR": str(folder),
        }
        environment |= {"ENVBUILD_STORE": str(folder / "store"), "UV_CACHE_DIR": str(folder / "uv")}
        settings = load_settings(environment, self.project)
        self.context = quiet_context(settings)

    def write(self, name: str, text: str) -> None:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def source(self, *dependencies: str) -> Source:
        path = self.project / "recipes/x.toml"
        listed = ", ".join(f'"{line}"' for line in dependencies)
        path.write_text(
            f'[recipe]\nname = "x"\n[base]\nimage = "example/x:1"\n[python]\ndependencies = [{listed}]\n'
        )
        recipe, text = read_recipe(path)
        return Source(recipe=recipe, path=path, text=text, lock=self.project / "lockfiles/x.lock")

    def lock(self, *dependencies: str, wish: LockOptions | None = None) -> Lock:
        facts = BaseFacts(
            image="example/x:1",
            python="3.11.2",
            machine="x86_64",
            glibc="2.36",
            created="2024-06-01",
        )
        return decide_lock(
            self.source(*dependencies),
            wish or LockOptions(),
            self.context,
            date(2026, 11, 21),
            facts=facts,
        )

    def again(self, lock: Lock, *dependencies: str) -> None:
        require_trees(self.source(*dependencies), lock, self.context)

    def members(self, package: PythonPackage) -> list[str]:
        with zipfile.ZipFile(self.context.store.artifact(package.sha256)) as archive:
            return archive.namelist()


@pytest.fixture
def desk(tmp_path: Path, index: SyntheticIndex) -> Desk:
    made = Desk(tmp_path / "desk", index)
    made.write("pyproject.toml", PROJECT)
    made.write("our/lab.py", "x = 1\n")
    return made


def named(lock: Lock, name: str) -> PythonPackage:
    return next(package for package in lock.python if package.name == name)


def test_the_project_itself_is_locked_with_what_it_requires(desk: Desk) -> None:
    lock = desk.lock("-e .")
    own = named(lock, "our-lab")
    assert (own.version, own.group, own.source, own.file) == (
        "1.2",
        "project",
        ".",
        "our_lab-1.2.zip",
    )
    assert own.via == ("(direct)",)
    assert named(lock, "rich").version == "13.0"
    assert {p.name for p in lock.build_only} == {"setuptools", "uv", "wheel"}
    assert lock.direct == ("-e .",)
    assert parse_lock(write_lock(lock), "x.lock") == lock
    assert desk.members(own) == ["our_lab-1.2/our/lab.py", "our_lab-1.2/pyproject.toml"]


def test_what_nobody_wrote_is_left_out_and_the_same_files_give_the_same_bytes(
    desk: Desk, tmp_path: Path
) -> None:
    first = named(desk.lock("."), "our-lab")
    for name in (
        "recipes/y.toml",
        "lockfiles/x.lock",
        "our/__pycache__/lab.pyc",
        "x.sif",
        "venv/bin/python",
        "build/lib/x.py",
    ):
        desk.write(name, "different")
    _sandbox(desk, "tries")
    (desk.project / "our/lab.py").touch()
    assert named(desk.lock("."), "our-lab") == first
    desk.write("our/new.py", "")
    assert named(desk.lock("."), "our-lab").sha256 != first.sha256


def _sandbox(desk: Desk, name: str) -> None:
    """Leave a tree of an image in the project, whose links mean something inside of it only."""
    desk.write(f"{name}/{SANDBOX_NOTE}", "{}")
    desk.write(f"{name}/usr/bin/mawk", "")
    (desk.project / name / "usr/bin/awk").symlink_to("/etc/passwd")


def test_git_says_what_belongs_to_a_project(desk: Desk) -> None:
    desk.write(".gitignore", "data/\n")
    desk.write("data/large.bin", "x")
    desk.write("build/kept.py", "tracked by name, and no leftover")
    _sandbox(desk, "tries/one")
    LocalRunner()(Command(argv=("git", "init", "-q", str(desk.project))))
    members = desk.members(named(desk.lock("."), "our-lab"))
    assert [name.partition("/")[2] for name in members] == [
        ".gitignore",
        "build/kept.py",
        "our/lab.py",
        "pyproject.toml",
    ]


def test_a_changed_project_makes_the_lock_stale_and_a_lost_archive_is_packed_again(
    desk: Desk,
) -> None:
    lock = desk.lock(".")
    own = named(lock, "our-lab")
    shutil.rmtree(desk.context.settings.store)
    desk.again(lock, ".")
    assert desk.context.store.artifact(own.sha256).stat().st_size == own.size
    desk.write("our/lab.py", "x = 2\n")
    with pytest.raises(
        StaleLockError,
        match=r"the files of \. \(our-lab 1\.2\) were changed since they were locked",
    ):
        desk.again(lock, ".")


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({}, "is not a Python project: it has no pyproject.toml and no setup.py"),
        (
            {"pyproject.toml": '[project]\nname = "x"\nversion = "one"\n'},
            "x has the version 'one', which is not a version",
        ),
        ({"pyproject.toml": "[project\n"}, "is not valid TOML"),
    ],
)
def test_a_folder_that_cannot_be_locked(
    files: dict[str, str], what: str, tmp_path: Path, index: SyntheticIndex
) -> None:
    desk = Desk(tmp_path / "desk", index)
    for name, text in files.items():
        desk.write(name, text)
    with pytest.raises(UsageError) as caught:
        desk.lock(".")
    assert what in str(caught.value)


def test_links_stay_inside(desk: Desk) -> None:
    (desk.project / "our/alias.py").symlink_to("lab.py")
    assert "our_lab-1.2/our/alias.py" in desk.members(named(desk.lock("."), "our-lab"))
    (desk.project / "our/passwd").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="is outside of the tree, or a link leads there"):
        desk.lock(".")
    (desk.project / "out").symlink_to("/etc")
    with pytest.raises(UsageError, match="is a link that leaves the project's folder"):
        desk.lock("./out")


def test_data_beside_the_code_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.resolve.sources.source_trees.LARGEST", 1000)
    desk.write("weights.bin", "x" * 2000)
    with pytest.raises(UsageError, match=r"the largest file is weights\.bin \(2\.0 kB\)"):
        desk.lock(".")


def test_a_name_asked_for_twice(desk: Desk) -> None:
    desk.write("copy/pyproject.toml", PROJECT)
    with pytest.raises(UsageError, match="our-lab is asked for twice"):
        desk.lock(".", "./copy")


# ---- a git server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The URL of a folder of repositories on 127.0.0.1 (git's plain HTTP transport)."""
    (tmp_path / "served").mkdir()
    folder = str(tmp_path / "served")
    with http_server(SimpleHTTPRequestHandler, directory=folder) as url:
        yield url


@pytest.fixture
def publish(tmp_path: Path, served: str) -> Callable[..., tuple[str, str]]:
    """Commit files to the repository "tool" with a tag; return its URL and the commit."""
    work = tmp_path / "work"
    git = functools.partial(_git, work)

    def put(files: dict[str, str], tag: str) -> tuple[str, str]:
        if not work.is_dir():
            work.mkdir()
            git("init", "-q", "-b", "main")
        for name, text in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        git("add", ".")
        git("-c", "user.name=a", "-c", "user.email=a@lab.invalid", "commit", "-q", "-m", "x")
        git("tag", tag)
        return f"{served}/tool.git", _serve(work, tmp_path / "served/tool.git")

    return put


def _serve(work: Path, bare: Path) -> str:
    """Put a repository where the server shows it, and return its commit."""
    shutil.rmtree(bare, ignore_errors=True)
    _git(work, "clone", "-q", "--bare", ".", str(bare))
    _git(bare, "update-server-info")
    return _git(work, "rev-parse", "HEAD").strip()


def _commit(folder: Path, files: dict[str, str], links: dict[str, str]) -> None:
    """Commit files, and submodules: their folders and commits."""
    if not folder.is_dir():
        folder.mkdir()
        _git(folder, "init", "-q", "-b", "main")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        _git(folder, "add", name)
    for name, commit in links.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        _git(folder, "update-index", "--add", "--cacheinfo", f"160000,{commit},{name}")
    _git(
        folder,
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@lab.invalid",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
    )


def _git(folder: Path, *arguments: str) -> str:
    return LocalRunner()(Command(argv=("git", *arguments), cwd=folder, timeout=60)).stdout


TOOL = {"pyproject.toml": '[project]\nname = "tool"\nversion = "{}"\n', "tool.py": "x = 1\n"}


def tool(number: str) -> dict[str, str]:
    return {name: text.replace("{}", number) for name, text in TOOL.items()}


@needs("git")
class TestRepositories:
    def test_a_tag_becomes_a_commit_and_stays_until_it_is_upgraded(
        self, desk: Desk, publish: Callable[..., tuple[str, str]]
    ) -> None:
        url, first = publish(tool("1.0"), "v1")
        asked = f"tool @ git+{url}@main"
        lock = desk.lock(asked)
        locked = named(lock, "tool")
        assert (locked.version, locked.source) == ("1.0", f"git+{url}@{first}")
        assert desk.members(locked) == ["tool-1.0/pyproject.toml", "tool-1.0/tool.py"]
        _, second = publish(tool("2.0"), "v2")
        assert named(desk.lock(asked, wish=LockOptions(old=lock)), "tool") == locked
        upgraded = named(desk.lock(asked, wish=LockOptions(old=lock, upgrade=("tool",))), "tool")
        assert (upgraded.version, upgraded.source) == ("2.0", f"git+{url}@{second}")
        by_tag = named(desk.lock(f"tool @ git+{url}@v1"), "tool")
        by_commit = named(desk.lock(f"tool @ git+{url}@{first}"), "tool")
        assert by_tag == by_commit == locked
        shutil.rmtree(desk.context.settings.store)
        desk.again(lock, asked)
        assert desk.context.store.artifact(locked.sha256).stat().st_size == locked.size

    def test_a_package_in_a_subfolder(
        self, desk: Desk, publish: Callable[..., tuple[str, str]]
    ) -> None:
        url, commit = publish({f"python/{name}": text for name, text in tool("1.0").items()}, "v1")
        locked = named(desk.lock(f"tool @ git+{url}#subdirectory=python"), "tool")
        assert locked.source == f"git+{url}@{commit}#subdirectory=python"
        assert desk.members(locked) == ["tool-1.0/pyproject.toml", "tool-1.0/tool.py"]

    def test_what_is_not_there(
        self, desk: Desk, publish: Callable[..., tuple[str, str]], served: str
    ) -> None:
        url, _ = publish(tool("1.0"), "v1")
        for asked, kind, what in (
            (
                f"tool @ git+{url}@v9",
                NetworkError,
                "the repository has no commit, tag or branch 'v9'",
            ),
            (
                f"tool @ git+{url}@{COMMIT}",
                NetworkError,
                f"the repository has no commit, tag or branch '{COMMIT}'",
            ),
            (f"tool @ git+{served}/absent.git", NetworkError, "the repository cannot be read: "),
            (f"other @ git+{url}", UsageError, "holds the package tool, not other"),
        ):
            with pytest.raises(kind) as caught:
                desk.lock(asked)
            assert what in caught.value.what

    def test_hooks_of_a_repository_never_run(
        self, desk: Desk, publish: Callable[..., tuple[str, str]]
    ) -> None:
        url, _ = publish({**tool("1.0"), ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch gone"\n'}, "v1")  # fmt: skip
        home = desk.context.settings.home
        for name in ("post-checkout", "post-index-change", "reference-transaction"):
            hook = home / "template/hooks" / name
            hook.parent.mkdir(parents=True, exist_ok=True)
            hook.write_text(f"#!/bin/sh\ntouch {home}/ran\n")
            hook.chmod(0o755)
        # every new repository has these
        (home / ".gitconfig").write_text(f"[init]\n\ttemplateDir = {home}/template\n")
        assert named(desk.lock(f"tool @ git+{url}"), "tool").version == "1.0"
        assert not (home / "ran").exists()

    def test_a_repository_chooses_no_filter_or_line_ends_of_the_users(
        self, desk: Desk, publish: Callable[..., tuple[str, str]]
    ) -> None:
        """As git-lfs sets itself up: what it is given would come from another address of the repository."""
        files = {**tool("1.0"), ".gitattributes": "* filter=lfs text\n"}
        url, _ = publish(files, "v1")
        home = desk.context.settings.home
        plain = named(desk.lock(f"tool @ git+{url}"), "tool").sha256
        (home / ".gitconfig").write_text(
            f'[filter "lfs"]\n\tsmudge = touch {home}/ran; cat\n\tprocess = touch {home}/ran; false\n'
            f"\trequired = true\n[core]\n\teol = crlf\n\tattributesFile = {home}/mine\n"
        )
        (home / "mine").write_text("* ident text eol=crlf\n")
        assert named(desk.lock(f"tool @ git+{url}"), "tool").sha256 == plain
        assert not (home / "ran").exists()


@needs("git")
class TestSubmodules:
    @pytest.fixture
    def served_tool(self, tmp_path: Path, served: str) -> Callable[[str], str]:
        """Publish "tool" with the submodule "outer" at the address, which has "inner" beside it; return its URL."""
        served_folder = tmp_path / "served"

        def put(address: str) -> str:
            commits: dict[str, str] = {}
            for name, inner in (("inner", None), ("outer", "inner")):
                text = f'[submodule "a name"]\n\tpath = below\n\turl = ../{inner}.git\n'
                files = {f"{name}.txt": name} | ({".gitmodules": text} if inner else {})
                _commit(tmp_path / name, files, {"below": commits[inner]} if inner else {})
                commits[name] = _serve(tmp_path / name, served_folder / f"{name}.git")
            modules = f'[submodule "lib"]\n\tpath = python/lib\n\turl = "{address}"\n[submodule "data"]\n\tpath = data\n\turl = git://lab.invalid/data\n'
            files = {f"python/{name}": text for name, text in tool("1.0").items()}
            links = {"python/lib": commits["outer"]} | (
                {} if address.startswith("..") else {"data": COMMIT}
            )
            _commit(tmp_path / "tool", {**files, ".gitmodules": modules}, links)
            _serve(tmp_path / "tool", served_folder / "tool.git")
            return f"{served}/tool.git"

        return put

    def test_they_come_along_at_their_commits(
        self, desk: Desk, served_tool: Callable[[str], str]
    ) -> None:
        asked = f"tool @ git+{served_tool('../outer.git')}#subdirectory=python"
        lock = desk.lock(asked)
        locked = named(lock, "tool")
        assert desk.members(locked) == [
            "tool-1.0/lib/.gitmodules",
            "tool-1.0/lib/below/inner.txt",
            "tool-1.0/lib/outer.txt",
            "tool-1.0/pyproject.toml",
            "tool-1.0/tool.py",
        ]
        shutil.rmtree(desk.context.settings.store)
        desk.again(lock, asked)
        assert desk.context.store.artifact(locked.sha256).stat().st_size == locked.size

    def test_only_those_of_the_package_are_fetched(
        self, desk: Desk, served: str, served_tool: Callable[[str], str]
    ) -> None:
        url = served_tool(f"{served}/outer.git")
        assert named(desk.lock(f"tool @ git+{url}#subdirectory=python"), "tool").version == "1.0"
        with pytest.raises(
            UsageError,
            match=r"its submodule data has an address that is not taken: git://lab\.invalid/data",
        ):
            desk.lock(f"tool @ git+{url}")

    @pytest.mark.parametrize(
        "address",
        [
            "/srv/lib",
            "file:///srv/lib",
            "http://lab.invalid/lib",
            "ext::sh -c x",
            "--upload-pack=x",
        ],
    )
    def test_an_address_that_a_recipe_could_not_name(
        self, address: str, desk: Desk, served_tool: Callable[[str], str]
    ) -> None:
        with pytest.raises(UsageError) as caught:
            desk.lock(f"tool @ git+{served_tool(address)}#subdirectory=python")
        assert (
            caught.value.what
            == f"its submodule python/lib has an address that is not taken: {address}"
        )
        assert "vendor its files" in (caught.value.hint or "")

    def test_one_that_is_gone_or_has_no_address(
        self, desk: Desk, served: str, served_tool: Callable[[str], str]
    ) -> None:
        url = served_tool(f"{served}/absent.git")
        with pytest.raises(NetworkError) as caught:
            desk.lock(f"tool @ git+{url}#subdirectory=python")
        assert caught.value.where == f"{served}/absent.git"
        with pytest.raises(
            UsageError, match=r"its submodule python/lib has no address in \.gitmodules"
        ):
            desk.lock(f"tool @ git+{served_tool('')}#subdirectory=python")

    def test_a_folder_takes_them_as_they_lie_there(
        self, desk: Desk, served_tool: Callable[[str], str]
    ) -> None:
        url = served_tool("../outer.git")
        project = desk.project
        _git(project, "-c", "protocol.file.allow=never", "clone", "-q", url, "tool")
        with pytest.raises(UsageError) as caught:
            desk.lock("./tool/python")
        assert caught.value.what == "its submodule lib is not checked out"
        assert caught.value.hint == "run: git submodule update --init --recursive lib"
        _git(
            project / "tool",
            "submodule",
            "--quiet",
            "update",
            "--init",
            "--recursive",
            "python/lib",
        )
        (project / "tool/python/lib/below/inner.txt").write_text("changed")
        locked = named(desk.lock("./tool/python"), "tool")
        assert "tool-1.0/lib/below/inner.txt" in desk.members(locked)


@pytest.mark.parametrize(
    ("address", "full"),
    [
        ("../lib.git", "https://lab.invalid/g/lib.git"),
        ("../../other/lib", "https://lab.invalid/other/lib"),
        ("../../../../../lib", "https://lab.invalid/lib"),
        ("git@lab.invalid:g/lib.git", "ssh://git@lab.invalid/g/lib.git"),
        ("https://else.invalid/lib", "https://else.invalid/lib"),
    ],
)
def test_the_address_of_a_submodule(address: str, full: str) -> None:
    assert submodule_address("https://lab.invalid/g/tool.git", address) == full


def test_a_lock_with_another_source_is_refused(desk: Desk) -> None:
    lock = desk.lock(".")
    for source in ("/etc", "file:///etc", "-e ."):
        bad = write_lock(lock).replace('source = "."', f'source = "{source}"')
        with pytest.raises(UsageError, match=r"python\.source: takes text that matches"):
            parse_lock(bad, "x.lock")
    own = named(lock, "our-lab")
    outside = replace_source(lock, own, "./../..")
    with pytest.raises(UsageError, match="leaves the project's folder"):
        desk.again(outside, ".")


def replace_source(lock: Lock, package: PythonPackage, source: str) -> Lock:
    import msgspec

    changed = msgspec.structs.replace(package, source=source)
    return msgspec.structs.replace(
        lock, python=tuple(changed if p is package else p for p in lock.python)
    )


def test_nothing_of_uvs_own_stays_in_tmpdir(desk: Desk) -> None:
    """uv leaves a lock there for each tree that setuptools would build."""
    (desk.project / "pyproject.toml").unlink()
    desk.write("setup.py", "from setuptools import setup\nsetup(name='mine', version='1')\n")
    desk.lock(".")
    assert not list(desk.project.parent.glob("uv-*.lock"))


def test_a_version_that_only_a_build_knows_is_not_built_for_unasked(desk: Desk) -> None:
    """A setup.py of the project, or of a commit that a stranger's recipe names, does not run at lock."""
    ran = desk.project / "ran"
    (desk.project / "pyproject.toml").unlink()
    desk.write(
        "setup.py",
        f"open({str(ran)!r}, 'w')\nfrom setuptools import setup\nsetup(name='tool', version=str(1 + 1))\n",
    )
    with pytest.raises(UsageError) as caught:
        desk.lock(".")
    assert "nothing of it is run on this machine" in str(caught.value)
    assert "--allow-host-builds" in (caught.value.hint or "")
    assert not ran.exists()
