"""What goes wrong on shared file systems and servers: nothing is lost, nothing wrong is accepted (docs/shelf.md)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.errors import HostError, NetworkError, UsageError
from envbuild.shelf.backend import slot_path
from tests.shelf.people import bare, member
from tests.shelf.publisher import Forked
from tests.support import needs

ROOT = Path(__file__).parents[2]


def visible(shelf: Path) -> list[str]:
    names = shelf / "names"
    return sorted(path.name for path in names.iterdir()) if names.exists() else []


class TestTwoPublishers:
    """At the same moment, from processes of their own; for git each has a mirror of his own."""

    def test_of_one_name_both_are_kept_in_some_order(self, place: str, tmp_path: Path) -> None:
        reader = member(tmp_path / "reader", place)
        people = [
            Forked(tmp_path / f"p{number}", place, "small", f"of p{number}") for number in range(4)
        ]
        assert [one.ended() for one in people] == [(0, "")] * 4
        history = reader.library.history("small")
        assert [stored.entry.number for stored in history] == [1, 2, 3, 4]
        assert {stored.entry.about.summary for stored in history} == {
            f"of p{number}" for number in range(4)
        }
        assert reader.take().recipe.recipe.summary == history[-1].entry.about.summary

    def test_of_several_names_all_are_there(self, place: str, tmp_path: Path) -> None:
        reader = member(tmp_path / "reader", place)
        people = [
            Forked(tmp_path / f"p{number}", place, f"small{number}", "one of many")
            for number in range(3)
        ]
        assert [one.ended() for one in people] == [(0, "")] * 3
        assert sorted(reader.library.numbers) == ["small0", "small1", "small2"]

    def test_of_the_same_thing_one_entry_comes_out(self, tmp_path: Path) -> None:
        place = str(tmp_path / "shelf")
        reader = member(tmp_path / "reader", place)
        people = [
            Forked(tmp_path / f"p{number}", place, "small", "the same") for number in range(3)
        ]
        assert [one.ended()[0] for one in people] == [0, 0, 0]
        assert [stored.entry.number for stored in reader.library.history("small")] == [1]


class TestKilled:
    def test_at_every_step_nothing_is_visible_or_all_is(self, tmp_path: Path) -> None:
        """kill -9 before each change of the shelf's files: what is seen proves true, and publishing again works."""
        killed = 0
        for number in range(1, 200):
            shelf = tmp_path / f"at{number}" / "shelf"
            reader = member(tmp_path / f"at{number}" / "reader", str(shelf))
            code, said = Forked(
                tmp_path / f"at{number}" / "ann", str(shelf), "small", "x", f"kill-at={number}"
            ).ended()
            if code == 0:
                break
            assert code == -signal.SIGKILL, said
            killed += 1
            if visible(shelf):
                assert reader.take().recipe.name == "small"
            else:
                with pytest.raises(UsageError, match="there is no"):
                    reader.take()
            again = member(tmp_path / f"at{number}" / "bob", str(shelf))
            again.recipe()
            again.publish()
            assert reader.take().recipe.name == "small"
            shutil.rmtree(tmp_path / f"at{number}")
        assert killed > 20, "it was killed at many places"

    def test_what_it_left_is_swept_when_it_is_old(self, tmp_path: Path) -> None:
        ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
        ann.recipe()
        ann.publish()
        left, young = tmp_path / "shelf/tmp/somewhere-1-abc", tmp_path / "shelf/tmp/elsewhere-2-def"
        left.write_bytes(b"half")
        young.write_bytes(b"half")
        os.utime(left, (1, 1))
        ann.recipe(summary="again")
        ann.publish()
        assert [path.name for path in (tmp_path / "shelf/tmp").iterdir()] == [young.name]

    @needs("git")
    @pytest.mark.usefixtures("ssh_to_here")
    def test_a_push_that_was_killed_leaves_the_repository_as_it_was(self, tmp_path: Path) -> None:
        place = bare(tmp_path / "shelf.git")
        ann = member(tmp_path / "ann", f"ssh://lab.invalid{place}")
        hook = tmp_path / "shelf.git/hooks/pre-receive"
        hook.write_text("#!/bin/sh\nkill -9 $PPID\n")
        hook.chmod(0o755)
        ann.recipe()
        with pytest.raises(NetworkError, match="the shelf's repository cannot be reached"):
            ann.publish()
        hook.unlink()
        assert not ann.library.numbers
        ann.publish()
        assert ann.take().recipe.name == "small"


class TestPermissions:
    def test_the_group_may_use_what_was_published_with_umask_077(self, tmp_path: Path) -> None:
        shelf = tmp_path / "shelf"
        reader = member(tmp_path / "reader", str(shelf))
        assert stat.S_IMODE(shelf.stat().st_mode) == 0o2775
        assert Forked(tmp_path / "ann", str(shelf), "small", "x", "umask=077").ended() == (0, "")
        reader.take()
        for path in shelf.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o2775 if path.is_dir() else 0o664), path

    def test_a_closed_shelf_stays_closed(self, tmp_path: Path) -> None:
        """The mode of the top folder is the lab's choice: others get nothing that it does not give."""
        shelf = tmp_path / "shelf"
        shelf.mkdir()
        shelf.chmod(0o2770)
        assert Forked(tmp_path / "ann", str(shelf), "small", "x", "umask=000").ended() == (0, "")
        for path in shelf.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o2770 if path.is_dir() else 0o660), path

    def test_what_somebody_spoilt_is_repaired_by_publishing(self, tmp_path: Path) -> None:
        shelf = tmp_path / "shelf"
        ann = member(tmp_path / "ann", str(shelf))
        ann.recipe()
        ann.publish()
        (shelf / "names").chmod(0o700)
        ann.recipe(summary="again")
        ann.publish()
        assert stat.S_IMODE((shelf / "names").stat().st_mode) == 0o2775

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two users")
    def test_two_users_of_a_group_publish_after_one_another(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        from tests.tiny_image import open_folder

        # whoever is forked reads no source tree: what is imported late is imported now
        assert Forked.__doc__
        warm = member(
            tmp_path_factory.mktemp("warm"), str(tmp_path_factory.mktemp("place") / "shelf")
        )
        warm.recipe()
        warm.publish()
        top = open_folder() / "users"
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir()
        shelf = top / "shelf"
        shelf.mkdir()
        os.chown(shelf, 0, 64001)
        shelf.chmod(0o2770)
        for number, who in enumerate((64011, 64012, 64013), 1):
            home = top / f"u{who}"
            home.mkdir()
            os.chown(home, who, 64001)
            publisher = Forked(
                home, str(shelf), "small", f"of {who}", "umask=077", user=who, group=64001
            )
            assert publisher.ended() == (0, "")
            assert visible(shelf)[-1] == f"small.{number:06d}"
        groups = {path.stat().st_gid for path in shelf.rglob("*")}
        assert groups == {64001}
        stranger = top / "stranger"
        stranger.mkdir()
        os.chown(stranger, 64020, 64002)
        code, said = Forked(stranger, str(shelf), "small", "mine", user=64020, group=64002).ended()
        assert code == HostError.code
        assert "Permission denied" in said

    @needs("unshare", "mount")
    def test_a_read_only_shelf_is_read_and_not_written(self, tmp_path: Path) -> None:
        shelf = tmp_path / "shelf"
        ann = member(tmp_path / "ann", str(shelf))
        ann.recipe()
        ann.publish()
        script = (
            f"mount --bind {shelf} {shelf} && mount -o remount,ro,bind {shelf} && exec "
            + _publisher(tmp_path / "bob", shelf, "small", "other")
        )
        code, said = _in_namespace(script)
        assert code == 7
        assert "the shelf cannot be used: Read-only file system" in said
        assert visible(shelf) == ["small.000001"]


def _publisher(folder: Path, shelf: Path, name: str, summary: str) -> str:
    return f"{sys.executable} -m tests.shelf.publisher {folder} {shelf} {name} {summary}"


def _in_namespace(script: str) -> tuple[int, str]:
    """Run a shell script where it may mount; skip where this machine does not let us."""
    flags = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    tried = subprocess.run(
        ["unshare", *flags, "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        check=False,
    )
    if tried.returncode != 0:
        pytest.skip("this machine gives no namespace to mount in")
    done = subprocess.run(
        ["unshare", *flags, "sh", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


class TestFull:
    @needs("unshare", "mount")
    def test_a_full_disk_loses_nothing_and_shows_nothing(self, tmp_path: Path) -> None:
        """256 KiB are filled to the last block, so that publishing stops somewhere; with more room it goes on."""
        shelf = tmp_path / "mounted"
        shelf.mkdir()
        publish = _publisher(tmp_path / "ann", shelf / "s", "small", "x")
        more = _publisher(tmp_path / "ann", shelf / "s", "other", "y")
        script = f"""
            mount -t tmpfs -o size=256k,nr_inodes=200 none {shelf}
            {publish}; echo first=$?
            head -c 300000 /dev/zero > {shelf}/filler 2>/dev/null
            {more}; echo full=$?
            ls {shelf}/s/names {shelf}/s/tmp
            rm {shelf}/filler
            {more}; echo again=$?
            ls {shelf}/s/names {shelf}/s/tmp
        """
        code, said = _in_namespace(script)
        assert code == 0, said
        assert re.findall(r"(?:first|full|again)=\d+", said) == ["first=0", "full=8", "again=0"], (
            said
        )
        assert "the shelf's file system is full" in said
        before, after = said.split("full=8")[1].split("again=0")
        assert "small.000001" in before
        assert "other.000001" not in before
        assert "other.000001" in after


class TestGone:
    def test_a_folder_that_vanished_is_no_empty_shelf(self, tmp_path: Path) -> None:
        shelf = tmp_path / "shelf"
        ann = member(tmp_path / "ann", str(shelf))
        ann.recipe()
        ann.publish()
        shelf.rename(tmp_path / "away")
        for action in (ann.take, ann.publish, ann.library.newest_entries):
            with pytest.raises(HostError, match="the shelf's folder is not there"):
                action()
        assert not shelf.exists(), "nothing makes it anew"
        shelf.mkdir()  # the mount point without its file system
        for action in (ann.take, ann.publish):
            with pytest.raises(HostError, match="but it holds no shelf"):
                action()
        assert not any(shelf.iterdir())
        shelf.rmdir()
        (tmp_path / "away").rename(shelf)
        assert ann.take().recipe.name == "small"

    @needs("git")
    def test_a_repository_that_cannot_be_reached(self, tmp_path: Path) -> None:
        place = bare(tmp_path / "shelf.git")
        ann = member(tmp_path / "ann", place)
        ann.recipe()
        ann.publish()
        (tmp_path / "shelf.git").rename(tmp_path / "away.git")
        with pytest.raises(HostError, match="the shelf's folder is not there"):
            ann.take()
        with pytest.raises(HostError, match="the shelf's folder is not there"):
            ann.publish()
        (tmp_path / "away.git").rename(tmp_path / "shelf.git")
        assert ann.take().recipe.name == "small"

    def test_ssh_to_nowhere_says_what_ssh_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("envbuild.net.web.FIRST_PAUSE", 0.005)
        with pytest.raises(NetworkError, match="cannot be reached"):
            member(tmp_path / "ann", "git+ssh://nobody@127.0.0.1:1/srv/shelf.git")


@needs("git")
class TestRefusedPush:
    @pytest.mark.usefixtures("ssh_to_here")
    def test_by_a_hook_is_told_with_its_words(self, tmp_path: Path) -> None:
        place = bare(tmp_path / "shelf.git")
        ann = member(tmp_path / "ann", f"ssh://lab.invalid{place}")
        hook = tmp_path / "shelf.git/hooks/pre-receive"
        hook.write_text("#!/bin/sh\necho 'closed on Sundays' >&2\nexit 1\n")
        hook.chmod(0o755)
        ann.recipe()
        with pytest.raises(HostError, match=r"(?s)refused the push.*closed on Sundays"):
            ann.publish()
        assert not ann.library.numbers
        hook.unlink()
        ann.publish()
        assert ann.take().recipe.name == "small"

    def test_by_somebody_who_was_quicker_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between our fetch and our push another member publishes: ours follows his."""
        from envbuild.shelf.git import GitBackend

        place = bare(tmp_path / "shelf.git")
        ann, bob = (member(tmp_path / name, place) for name in ("ann", "bob"))
        ann.recipe(summary="ann's")
        bob.recipe(summary="bob's")
        push = GitBackend._push
        pushed: list[str] = []

        def late(self: GitBackend, name: str) -> None:
            if not pushed:
                pushed.append(name)
                bob.publish()
            push(self, name)

        monkeypatch.setattr(GitBackend, "_push", late)
        ann.publish()
        assert [stored.entry.who for stored in ann.library.history("small")] == ["bob", "ann"]

    def test_a_repository_of_something_else_is_left_alone(self, tmp_path: Path) -> None:
        work = tmp_path / "work"
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(work)], check=True)
        (work / "README").write_text("somebody's project\n")
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", "-C", str(work), "add", "README"], check=True)
        subprocess.run(["git", "-C", str(work), *who, "commit", "-qm", "x"], check=True)
        with pytest.raises(UsageError, match="but no shelf"):
            member(tmp_path / "ann", str(work / ".git"))


class TestClocks:
    def test_order_is_that_of_publishing_whatever_the_clocks_say(
        self, place: str, tmp_path: Path
    ) -> None:
        reader = member(tmp_path / "reader", place)
        for number, seconds in enumerate((0, 10 * 365 * 86400, -20 * 365 * 86400)):
            code, said = Forked(
                tmp_path / f"p{number}", place, "small", f"the {number}", f"clock={seconds}"
            ).ended()
            assert code == 0, said
        history = reader.library.history("small")
        assert [stored.entry.about.summary for stored in history] == ["the 0", "the 1", "the 2"]
        assert history[1].entry.when > history[0].entry.when > history[2].entry.when
        assert reader.take().recipe.recipe.summary == "the 2"


class TestAdd:
    def test_a_folder_of_something_else_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "home").mkdir()
        (tmp_path / "home/thesis.tex").write_text("x")
        with pytest.raises(UsageError, match="is no shelf, and not empty"):
            member(tmp_path / "ann", str(tmp_path / "home"))
        assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.tex"]

    def test_a_parent_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="there is no such folder"):
            member(tmp_path / "ann", str(tmp_path / "no/such/shelf"))

    def test_a_mistyped_folder_beside_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)  # as root may all
        with pytest.raises(UsageError, match="there is no such folder, and you may not make it"):
            member(tmp_path / "ann", str(tmp_path / "shlef"))

    @pytest.mark.parametrize(
        "url", ["http://example.invalid/x", "ext::sh -c touch x", "s3://bucket/x", "git+ftp://a/b"]
    )
    def test_a_place_of_no_known_kind(self, url: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is not a place for a shelf"):
            member(tmp_path / "ann", url)

    def test_an_entry_that_is_there_is_never_written_again(self, tmp_path: Path) -> None:
        ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
        ann.recipe()
        ann.publish()
        before = (tmp_path / "shelf" / slot_path("small.000001")).read_bytes()
        ann.recipe(summary="later")
        ann.publish()
        assert (tmp_path / "shelf" / slot_path("small.000001")).read_bytes() == before
