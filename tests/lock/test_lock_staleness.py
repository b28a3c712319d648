"""What differs between two locks, and what must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec import structs

from envbuild.errors import IntegrityError
from envbuild.lock.changes import lock_changes
from envbuild.lock.model import Lock
from envbuild.lock.staleness import refuse_changed_files
from tests.lock.strategies import locks


@given(locks())
def test_equal_locks_have_no_changes_and_no_changed_files(lock: Lock) -> None:
    assert lock_changes(lock, lock) == ()
    refuse_changed_files(lock, lock)
    refuse_changed_files(None, lock)


@given(locks())
def test_another_hash_under_a_known_file_name_is_refused(lock: Lock) -> None:
    if not lock.python:
        return
    first, *rest = lock.python
    other = structs.replace(first, sha256="0" * 64 if first.sha256 != "0" * 64 else "1" * 64)
    with pytest.raises(IntegrityError) as caught:
        refuse_changed_files(lock, structs.replace(lock, python=(other, *rest)))
    assert str(caught.value) == (
        f"{first.file}: the index now offers another file of that name: sha256 {other.sha256}, locked was {first.sha256}"
    )


@given(locks())
def test_another_file_of_the_same_version_is_a_change_that_names_both(lock: Lock) -> None:
    installed = lock.installed
    if not installed:
        return
    before = installed[-1]
    digit = "0" if before.sha256 == "f" * 64 else "f"
    after = structs.replace(before, file=f"other-{before.file}", sha256=digit * 64)
    others = tuple(package for package in lock.python if package.name != before.name)
    found = lock_changes(
        structs.replace(lock, python=(*others, before)),
        structs.replace(lock, python=(*others, after)),
    )
    assert [str(change) for change in found] == [f"~ {before.name} {before.file} -> {after.file}"]
