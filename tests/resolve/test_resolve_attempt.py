"""How a request is put again: at a later date, or with names that no date hides."""

from __future__ import annotations

from dataclasses import replace

from envbuild.base.model import BaseFacts
from envbuild.resolve.model import Request
from envbuild.resolve.uv.attempt import RequestAttempt
from envbuild.resolve.uv.later_cutoff import LaterDate, YoungerPartners

FACTS = BaseFacts(image="x", python="3.11.2", machine="x86_64", glibc="2.36")
REQUEST = Request(requirements=("numpy==1.22.0", "numba"), facts=FACTS, as_of="2022-01-01")
LATER = LaterDate(date="2022-02-02", reason="numba has no release before", patient="2022-05-01")
NUMBA = YoungerPartners(releases=(("numba", "0.55.2"),), reason="numba 0.55.2: the first")


def test_the_first_attempt_is_the_request_itself() -> None:
    attempt = RequestAttempt(asked=REQUEST)
    assert (attempt.request, attempt.notes, attempt.at_patient_date()) == (REQUEST, (), None)


def test_a_later_date_is_told_and_the_patient_one_is_tried_once() -> None:
    first = RequestAttempt(asked=REQUEST).changed(LATER)
    assert first.request == replace(REQUEST, as_of="2022-02-02")
    assert first.notes == (
        "resolved as of 2022-02-02, not 2022-01-01: numba has no release before",
    )
    patient = first.at_patient_date()
    assert patient is not None
    assert patient.request == replace(REQUEST, as_of="2022-05-01")
    assert patient.notes == (
        "resolved as of 2022-05-01, not 2022-01-01: numba has no release before",
    )
    assert patient.at_patient_date() is None


def test_partners_add_up_at_one_date_and_end_with_another() -> None:
    llvmlite = YoungerPartners(releases=(("llvmlite", "0.38.1"),), reason="llvmlite 0.38.1")
    both = RequestAttempt(asked=REQUEST).changed(NUMBA).changed(llvmlite)
    assert both.request.younger == (("numba", "0.55.2"), ("llvmlite", "0.38.1"))
    assert (both.request.as_of, both.notes) == ("2022-01-01", ("llvmlite 0.38.1",))
    moved = both.changed(LATER)
    assert (moved.request.younger, len(moved.notes)) == ((), 1)


def test_no_note_speaks_of_partners_that_the_patient_date_has_dropped() -> None:
    freed = RequestAttempt(asked=REQUEST).changed(LATER).changed(NUMBA)
    assert (freed.request.as_of, len(freed.notes)) == ("2022-02-02", 2)
    patient = freed.at_patient_date()
    assert patient is not None
    assert (patient.request.younger, len(patient.notes)) == ((), 1)
