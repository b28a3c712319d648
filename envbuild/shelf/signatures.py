"""Signatures of entries by ssh keys (ssh-keygen -Y, PROTOCOL.sshsig)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from envbuild.errors import EnvbuildError, HostError, IntegrityError, UsageError
from envbuild.limits import TABLE, read_whole
from envbuild.names import Texts, Variables
from envbuild.records import frozen_record
from envbuild.run import Command, Result, Runner
from envbuild.tools import package_hint

NAMESPACE = "envbuild"
"""A signature that the same key made for git, mail or files does not count for a shelf."""
KEY = re.compile(r"\s((?:ssh-|ecdsa-|sk-)[\w@.-]+)\s+([A-Za-z0-9+/]{20,}=*)")
"""Kind and body of a key in an allowed signers file, behind principals and options."""
SECONDS = 120.0
"""A key on a token waits for a touch."""


@frozen_record
class Signer:
    """The signer: ``principal`` of the pinned file (None where none is pinned), and the key."""

    principal: str | None
    key: str


@frozen_record
class SignatureVerifier:
    """Signs and verifies; ``signers`` is the pinned allowed signers file (ssh-keygen(1))."""

    runner: Runner
    environment: Variables
    signers: Path | None = None

    def sign(self, data: bytes, key: Path) -> str:
        """Sign bytes with a private key, or with a public one whose private half an agent holds.

        Raises UsageError for a key that is none or cannot be used.
        """
        if not key.is_file():
            raise UsageError(
                "there is no such key", where=key, hint="ssh-keygen -t ed25519 makes one"
            )
        result = self._keygen("sign", "-n", NAMESPACE, "-f", str(key), data=data)
        if result.code != 0 or "BEGIN SSH SIGNATURE" not in result.stdout:
            hint = f"a key with a passphrase signs through the agent: ssh-add {key}, then --sign {key}.pub"
            raise UsageError(
                f"cannot be signed with: {_last_message(result)}", where=key, hint=hint
            )
        return result.stdout

    def verify(self, data: bytes, signature: bytes, *, where: str) -> Signer:
        """Return who signed these bytes.

        Raises IntegrityError: not these bytes, not for a shelf, no pinned key, or one that is not
        valid now.
        """
        with tempfile.TemporaryDirectory(prefix="envbuild-") as folder:
            path = Path(folder) / "signature"
            path.write_bytes(signature)
            key = self._key(path, data, where)
            if self.signers is None:
                return Signer(principal=None, key=key)
            for principal in self._principals(path):
                result = self._keygen(
                    "verify",
                    "-n",
                    NAMESPACE,
                    "-f",
                    str(self.signers),
                    "-I",
                    _fitting_name(principal),
                    "-s",
                    str(path),
                    data=data,
                )
                if result.code == 0:
                    return Signer(principal=principal, key=key)
            raise self._unknown(key, where)

    def _key(self, path: Path, data: bytes, where: str) -> str:
        """Return the key of a signature that is good for these bytes, whoever made it."""
        result = self._keygen("check-novalidate", "-n", NAMESPACE, "-s", str(path), data=data)
        found = re.search(r"signature with (\S+ key \S+)", result.stdout)
        if result.code == 0 and found:
            return found[1]
        message = _last_message(result)
        what = f"its signature is none of these bytes: {message}"
        if "namespace" in message:
            what = f'it was signed for another purpose than "{NAMESPACE}": {message}'
        raise IntegrityError(what, where=where, hint="do not use it; ask who published it")

    def _principals(self, path: Path) -> Texts:
        result = self._keygen("find-principals", "-f", str(self.signers), "-s", str(path))
        lines = result.stdout.splitlines() if result.code == 0 else []
        names = ",".join(lines).split(",")
        return tuple(name.strip() for name in names if name.strip() and name[0] != "!")

    def _unknown(self, key: str, where: str) -> EnvbuildError:
        """Return the error for a good signature by no key that is valid today and for this."""
        owners = [
            (name, options)
            for name, options, known in _pinned_keys(self.signers)
            if key.endswith(known)
        ]
        if owners:
            name, options = owners[0]
            what = f"it is signed by {name} with a key that is not valid today, or not for this: {options}"
            hint = f"such is the line in {self.signers}; {name} publishes it again with a key that is valid"
            return IntegrityError(what, where=where, hint=hint)
        hint = f"known are the keys in {self.signers}\nif you trust this one: add it, and envbuild shelf add again"
        return IntegrityError(f"it is signed by an unknown key: {key}", where=where, hint=hint)

    def _keygen(self, *arguments: str, data: bytes = b"") -> Result:
        # no terminal to ask on: a question would wait forever where nobody sees it
        env = {**self.environment, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
        argv = ("ssh-keygen", "-Y", *arguments)
        try:
            return self.runner(
                Command(argv=argv, env=env, stdin=data.decode(), timeout=SECONDS), check=False
            )
        except HostError as error:
            hint = package_hint("openssh-client", self.environment)
            raise HostError(f"signatures need ssh-keygen: {error.what}", hint=hint) from error


def read_signers(path: Path) -> str:
    """Return an allowed signers file.  Raises UsageError where it names no usable key."""
    try:
        text = read_whole(path, TABLE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=path) from error
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    wrong = [line for line in lines if not KEY.search(line)]
    if wrong or not lines:
        what = f"this line names no key: {wrong[0][:60]!r}" if wrong else "names no key"
        hint = 'a line is: you@example.org namespaces="envbuild" ssh-ed25519 AAAA…  (ssh-keygen(1), ALLOWED SIGNERS)'
        raise UsageError(what, where=path, hint=hint)
    return text


def _pinned_keys(signers: Path | None) -> Iterator[tuple[str, str, str]]:
    """Yield principals, options and fingerprint of every line of an allowed signers file."""
    for line in read_whole(signers, TABLE).decode().splitlines() if signers else ():
        found = KEY.search(line)
        if found is not None and not line.lstrip().startswith("#"):
            names, _, options = line[: found.start()].strip().partition(" ")
            with contextlib.suppress(ValueError):
                digest = hashlib.sha256(base64.b64decode(found[2], validate=True)).digest()
                yield (
                    names,
                    options.strip() or "no options",
                    "SHA256:" + base64.b64encode(digest).decode().rstrip("="),
                )


def _fitting_name(principal: str) -> str:
    """Return a name that a pattern of principals fits, which is what ssh-keygen asks for."""
    return principal.replace("*", "any").replace("?", "x")


def _last_message(result: Result) -> str:
    lines = [
        line
        for line in result.stderr.splitlines()
        if line.strip() and not line.startswith("Signing data on")
    ]
    return lines[-1].strip() if lines else f"ssh-keygen ended with {result.code}"
