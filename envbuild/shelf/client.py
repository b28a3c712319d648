"""A shelf as users see it: names with histories, of which only verified ones are given."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from functools import cached_property

from msgspec import structs

from envbuild.errors import HostError, IntegrityError, UsageError
from envbuild.records import frozen_record
from envbuild.shelf.backend import Backend, SlotTakenError, object_path, signature_path, slot_path
from envbuild.shelf.last_verified import LastVerified, VerifiedHead
from envbuild.shelf.model import SLOT, Entry, read_entry, slot_name, write_entry
from envbuild.shelf.signatures import SignatureVerifier, Signer
from envbuild.store.hashing import digest_of
from envbuild.toml import closest

TRIES = 40
"""How often a publisher whose place was taken looks again, before giving up."""
SHORTEST = 6
"""Digits of a digest that name an entry."""


@frozen_record
class StoredEntry:
    """An entry as it lies on the shelf, with the digest of its bytes."""

    entry: Entry
    digest: str
    data: bytes


class ShelfClient:
    """An open shelf."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        signatures: SignatureVerifier,
        last_verified: LastVerified,
        *,
        require_signed: bool,
    ) -> None:
        self.name = name
        self.backend = backend
        self.signatures = signatures
        self.last_verified = last_verified
        self.require_signed = require_signed

    @cached_property
    def numbers(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of every name's entries, ascending."""
        self.backend.refresh()
        found: dict[str, list[int]] = {}
        for slot in self.backend.slots():
            name, _, number = slot.rpartition(".")
            found.setdefault(name, []).append(int(number))
        return {name: tuple(sorted(numbers)) for name, numbers in sorted(found.items())}

    def refresh(self) -> None:
        """Forget what the shelf looked like."""
        self.__dict__.pop("numbers", None)

    def newest_entries(self) -> dict[str, StoredEntry | IntegrityError]:
        """Return the newest entry of every name, checked for its form only, or the error."""
        slots = {name: slot_name(name, numbers[-1]) for name, numbers in self.numbers.items()}
        paths = [slot_path(slot) for slot in slots.values()]
        try:
            data = self.backend.read(paths)
        except IntegrityError:  # one bad file takes its own entry from the shelf, not all
            return {name: self._read_or_error(slot) for name, slot in slots.items()}
        return {name: self._read_or_error(slot, data) for name, slot in slots.items()}

    def history(self, name: str) -> tuple[StoredEntry, ...]:
        """Return all entries of a name, oldest first.

        Raises UsageError for a name that is not there, IntegrityError where an entry is missing or
        changed, or where the shelf no longer holds what was verified here before.
        """
        numbers = self.numbers.get(name, ())
        known = self.last_verified.read_heads().get(name)
        if not numbers and known is None:
            raise UsageError(
                f'there is no "{name}" on the shelf {self.name}{closest(name, self.numbers)}',
                hint="envbuild shelf search lists what there is",
            )
        top = max((*numbers, known.number if known else 0))
        if numbers != tuple(range(1, top + 1)):
            missing = next(number for number in range(1, top + 1) if number not in numbers)
            raise self._rolled_back(name, f"its entry {missing} is gone, which was there before")
        slots = [slot_name(name, number) for number in numbers]
        data = self.backend.read([slot_path(slot) for slot in slots])
        entries: list[StoredEntry] = []
        before = None
        for number, slot in zip(numbers, slots, strict=True):
            stored = self._stored(slot, data.get(slot_path(slot)))
            if stored.entry.previous != before:
                why = f"entry {number} does not continue entry {number - 1}"
                raise self._rolled_back(name, why)
            entries.append(stored)
            before = stored.digest
        if known is not None and entries[known.number - 1].digest != known.digest:
            why = f"entry {known.number} is another one than was verified here before"
            raise self._rolled_back(name, why)
        return tuple(entries)

    def find_entry(self, name: str, digest: str | None = None) -> StoredEntry:
        """Return a name's newest entry, or the one of a digest; its history is verified."""
        entries = self.history(name)
        if digest is None:
            return entries[-1]
        wanted = digest.removeprefix("sha256:")
        if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST},64}}", wanted):
            raise UsageError(
                "names no entry",
                where=f"@{digest}",
                hint=f"give {SHORTEST} to 64 digits of its digest",
            )
        found = [stored for stored in entries if stored.digest[7:].startswith(wanted)]
        if len(found) != 1:
            what = f"{name} has {len(found) or 'no'} entries whose digest begins with {wanted}"
            raise UsageError(what, hint=f"envbuild shelf show {self.name}/{name} lists them")
        return found[0]

    def signer(self, stored: StoredEntry) -> Signer | None:
        """Return who signed an entry, None where nobody did.

        Raises IntegrityError for a signature that is not good, and for none where the shelf
        requires one.
        """
        where = f"{self.name}/{stored.entry.name}"
        path = signature_path(stored.digest)
        signature = self.backend.read([path]).get(path)
        if signature is not None:
            return self.signatures.verify(stored.data, signature, where=where)
        if self.require_signed:
            what = f"entry {stored.entry.number} is not signed, and only signed ones are taken from this shelf"
            raise IntegrityError(
                what, where=where, hint=f"ask {stored.entry.who} to publish it again with --sign"
            )
        return None

    def read_object(self, digest: str, what: str) -> bytes:
        """Return the bytes of a digest; ``what`` names them.  Raises IntegrityError."""
        path = object_path(digest)
        data = self.backend.read([path]).get(path)
        if data is None:
            raise IntegrityError(f"its {what} is missing from the shelf {self.name}", where=path)
        found = digest_of(data)
        if found != digest:
            hint = "do not use it; tell the owner of the shelf"
            raise IntegrityError(
                f"its {what} was changed on the shelf: sha256 is {found[7:]}", where=path, hint=hint
            )
        return data

    def missing_bytes(self, objects: Mapping[str, bytes]) -> int:
        """Return how many bytes of objects (by digest) are not there yet."""
        there = self.backend.read([object_path(digest) for digest in objects])
        return sum(
            len(data) for digest, data in objects.items() if object_path(digest) not in there
        )

    def remember_entry(self, stored: StoredEntry) -> None:
        """Note an entry as verified: from now on the shelf must continue it."""
        self.last_verified.note_head(
            stored.entry.name, VerifiedHead(stored.entry.number, stored.digest)
        )

    def append_entry(
        self, draft: Entry, objects: Mapping[str, bytes], sign: Callable[[bytes], str] | None
    ) -> tuple[StoredEntry, bool]:
        """Publish a draft behind the newest entry; return it, and whether it was added.

        Number, previous entry and signature are made anew each time that somebody else was quicker.
        A draft that says what the newest entry says adds nothing.  ``objects`` are by digest.
        """
        files = {object_path(digest): data for digest, data in objects.items()}
        for attempt in range(TRIES):
            self.refresh()
            head = self._head(draft.name)
            if head is not None and _same_content(head.entry, draft) and self._stands(head, sign):
                return head, False
            number = head.entry.number + 1 if head else 1
            entry = structs.replace(draft, number=number, previous=head.digest if head else None)
            data = write_entry(entry)
            stored = StoredEntry(entry=entry, digest=digest_of(data), data=data)
            extra = {signature_path(stored.digest): self._signed(stored, sign)} if sign else {}
            try:
                self.backend.append(entry.slot, data, {**files, **extra})
            except SlotTakenError:
                time.sleep(random.uniform(0, min(0.05 * (attempt + 1), 1.0)))  # noqa: S311  (no secret)
                continue
            self.remember_entry(stored)
            return stored, True
        what = f"somebody else was quicker {TRIES} times"
        raise HostError(
            what,
            where=f"{self.name}/{draft.name}",
            hint="nothing was published: try again in a minute",
        )

    def _signed(self, stored: StoredEntry, sign: Callable[[bytes], str]) -> bytes:
        """Sign an entry, and refuse to publish what others would refuse to take."""
        signature = sign(stored.data).encode()
        self.signatures.verify(stored.data, signature, where=f"{self.name}/{stored.entry.name}")
        return signature

    def _head(self, name: str) -> StoredEntry | None:
        if name not in self.numbers and name not in self.last_verified.read_heads():
            return None
        return self.history(name)[-1]

    def _stands(self, head: StoredEntry, sign: object) -> bool:
        """Tell whether an equal entry need not be added: it is signed well, or need not be."""
        try:
            return sign is None or self.signer(head) is not None
        except IntegrityError:
            return False

    def _stored(self, slot: str, data: bytes | None) -> StoredEntry:
        where = f"{self.name}: {slot_path(slot)}"
        if data is None:
            raise IntegrityError("is gone", where=where)
        entry = read_entry(data, where)
        if entry.slot != slot or not SLOT.fullmatch(slot):
            raise IntegrityError(f"is the entry {entry.slot}, put under another name", where=where)
        return StoredEntry(entry=entry, digest=digest_of(data), data=data)

    def _read_or_error(
        self, slot: str, data: Mapping[str, bytes] | None = None
    ) -> StoredEntry | IntegrityError:
        """Return an entry of files that were read, or read now, or the error."""
        path = slot_path(slot)
        try:
            files = self.backend.read([path]) if data is None else data
            return self._stored(slot, files.get(path))
        except IntegrityError as error:
            return error

    def _rolled_back(self, name: str, why: str) -> IntegrityError:
        hint = (
            "a shelf is only ever added to: ask whoever keeps it\n"
            f"if it was started anew on purpose: envbuild shelf remove {self.name} --forget, then add it again"
        )
        return IntegrityError(
            f"its history was changed: {why}", where=f"{self.name}/{name}", hint=hint
        )


def _same_content(one: Entry, other: Entry) -> bool:
    """Tell whether two entries publish the same thing."""

    def content(entry: Entry) -> Entry:
        return structs.replace(entry, number=1, previous=None, who="", when="2000-01-01T00:00:00Z")

    return content(one) == content(other)
