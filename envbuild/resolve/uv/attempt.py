"""One way to put a request to uv: at which date, and with which names free of it."""

from __future__ import annotations

from envbuild.names import Pairs, Texts
from envbuild.records import frozen_record, replace
from envbuild.resolve.model import Request
from envbuild.resolve.uv.later_cutoff import LaterDate, YoungerPartners


@frozen_record
class RequestAttempt:
    """A request as it is put, and how that differs from what was ``asked``.

    ``later`` is the date that was moved to, None at the request's own; ``partners`` are the names
    that were freed from the date last.
    """

    asked: Request
    later: LaterDate | None = None
    partners: YoungerPartners | None = None
    younger: Pairs = ()

    @property
    def request(self) -> Request:
        """What is put."""
        as_of = self.asked.as_of if self.later is None else self.later.date
        return replace(self.asked, as_of=as_of, younger=(*self.asked.younger, *self.younger))

    @property
    def notes(self) -> Texts:
        """What the user has to know of the differences."""
        found: list[str] = []
        if self.later is not None:
            moved = f"resolved as of {self.later.date}, not {self.asked.as_of}"
            found.append(f"{moved}: {self.later.reason}")
        if self.partners is not None:
            found.append(self.partners.reason)
        return tuple(found)

    def changed(self, found: LaterDate | YoungerPartners) -> RequestAttempt:
        """Return the next attempt: at another date, or at the same one with names free of it."""
        if isinstance(found, LaterDate):
            return RequestAttempt(asked=self.asked, later=found)
        return replace(self, partners=found, younger=(*self.younger, *found.releases))

    def at_patient_date(self) -> RequestAttempt | None:
        """Return the attempt that gives other packages more time to follow; None after it."""
        if self.later is None or self.later.date == self.later.patient:
            return None
        return RequestAttempt(asked=self.asked, later=replace(self.later, date=self.later.patient))
