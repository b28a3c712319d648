"""Answers are kept as long as the pages that they are from, and not a moment longer."""

from __future__ import annotations

import dataclasses
import os
import stat
from pathlib import Path

import msgspec
import pytest

from envbuild.errors import NetworkError, NoSolutionError
from envbuild.resolve.answer_cache import FRESH_SECONDS, CachedAnswer, CachedResolver
from envbuild.resolve.model import Found, FoundFile, Request, Resolution
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.resolve.conftest import base
from tests.support import quiet_context

RICH = Resolution(
    packages=(
        Found(
            name="rich",
            version="13.0",
            file=FoundFile(
                file="rich-13.0-py3-none-any.whl",
                sha256="0" * 64,
                size=9,
                url="https://mirror.invalid/r",
            ),
            via=("(direct)",),
        ),
    ),
    notes=("a note",),
)
REQUEST = Request(requirements=("rich",), facts=base("torch==2.4.0"))


class Backend:
    """A resolver that counts how often it is asked, and answers or raises ``says``."""

    def __init__(self, says: Resolution | Exception = RICH) -> None:
        self.says = says
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Resolution:
        self.asked.append(request)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def remote(settings: Settings) -> Settings:
    """Settings with an index on the network, of which pages are kept."""
    return dataclasses.replace(
        settings, indexes={"default": "https://user:secret@mirror.invalid/simple"}
    )


def answers(settings: Settings) -> list[Path]:
    return sorted(Store(settings.store).folder("answers").glob("*.json"))


def ask(settings: Settings, backend: Backend, request: Request = REQUEST) -> Resolution:
    return CachedResolver(quiet_context(settings), lambda: backend)(request)


def test_same_question_is_put_once(remote: Settings) -> None:
    backend = Backend()
    assert [ask(remote, backend), ask(remote, backend)] == [RICH, RICH]
    assert backend.asked == [REQUEST]
    (path,) = answers(remote)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_answer_that_a_lock_was_made_of_is_the_answer_to_keep_to_it(remote: Settings) -> None:
    """The first lock has no versions to keep, the second has those of the first."""
    backend = Backend()
    assert ask(remote, backend) == RICH
    again = dataclasses.replace(REQUEST, keep=(("rich", "13.0"), ("gone", "1.0")))
    assert ask(remote, backend, again) == RICH
    assert backend.asked == [REQUEST]
    # the last version of a name counts, as for a resolution
    other = dataclasses.replace(REQUEST, keep=(("rich", "13.0"), ("rich", "12.0")))
    assert ask(remote, backend, other) == RICH
    assert backend.asked == [REQUEST, other]


def test_a_refusal_is_asked_again_where_other_versions_are_to_be_kept(remote: Settings) -> None:
    backend = Backend(NoSolutionError("no"))
    kept = dataclasses.replace(REQUEST, keep=(("rich", "13.0"),))
    for request in (REQUEST, REQUEST, kept):
        with pytest.raises(NoSolutionError):
            ask(remote, backend, request)
    assert backend.asked == [REQUEST, kept]


@pytest.mark.parametrize(
    "other",
    [
        {"requirements": ("rich", "six")},
        {"facts": base("torch==2.4.1")},
        {"as_of": "2024-06-14"},
        {"keep": (("rich", "12.0"),)},
        {"protect": ("torch",)},
        {"bounds": ("rich<13",)},
        {"from_source": ("rich",)},
    ],
    ids=lambda value: next(iter(value)),
)
def test_every_part_of_a_question_counts(other: dict[str, object], remote: Settings) -> None:
    backend = Backend()
    ask(remote, backend)
    ask(remote, backend, dataclasses.replace(REQUEST, **other))  # type: ignore[arg-type]
    assert len(backend.asked) == 2


def test_other_index_is_asked_itself(remote: Settings) -> None:
    backend = Backend()
    ask(remote, backend)
    ask(dataclasses.replace(remote, indexes={"default": "https://other.invalid/simple"}), backend)
    assert len(backend.asked) == 2


def test_answer_of_yesterday_or_tomorrow_is_not_used_and_removed(remote: Settings) -> None:
    backend = Backend()
    ask(remote, backend)
    (path,) = answers(remote)
    kept = msgspec.json.decode(path.read_bytes(), type=CachedAnswer)
    for at in (kept.at - FRESH_SECONDS - 1, kept.at + 3600):
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, at=at)))
        ask(remote, backend)
    assert len(backend.asked) == 3
    old = path.with_name("old.json")
    old.write_text("{}")
    os.utime(old, (0, 0))
    ask(remote, backend, dataclasses.replace(REQUEST, requirements=("six",)))
    assert not old.exists()


def test_upgrade_asks_anew_and_keeps_that_answer(remote: Settings) -> None:
    backend = Backend()
    ask(remote, backend)
    backend.says = dataclasses.replace(RICH, notes=())
    assert ask(remote, backend, dataclasses.replace(REQUEST, refresh=True)).notes == ()
    assert ask(remote, backend).notes == ()
    assert len(backend.asked) == 2


def test_refusal_is_kept_and_a_failure_is_not(remote: Settings) -> None:
    backend = Backend(NoSolutionError("no solution", hint="loosen it"))
    for _ in range(2):
        with pytest.raises(NoSolutionError) as caught:
            ask(remote, backend)
        assert (caught.value.what, caught.value.hint) == ("no solution", "loosen it")
    assert len(backend.asked) == 1
    failing = Backend(NetworkError("the index did not answer"))
    for _ in range(2):
        with pytest.raises(NetworkError):
            ask(remote, failing, dataclasses.replace(REQUEST, requirements=("six",)))
    assert len(failing.asked) == 2


def test_damaged_file_is_asked_again(remote: Settings) -> None:
    backend = Backend()
    ask(remote, backend)
    answers(remote)[0].write_text('{"at": 17')
    assert ask(remote, backend) == RICH
    assert len(backend.asked) == 2


def test_index_in_a_folder_is_always_read(settings: Settings) -> None:
    backend = Backend()
    ask(settings, backend)
    ask(settings, backend)
    assert len(backend.asked) == 2
    assert answers(settings) == []
