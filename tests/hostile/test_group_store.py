"""Two real users start at once in a group store that has nothing yet: all of them get what they came for."""

from __future__ import annotations

import time
from pathlib import Path

from tests.store.test_store_shared import LAB, USERS, as_user, lab

__all__ = ["lab"]
EACH, KEYS = 3, 30
WORK = f"""
import ctypes, filelock
# what let this user read the checkout would let him read others' locks, too
ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
begin = float(sys.argv[2])
os.umask(0o022 if os.getpid() % 2 else 0o077)
for key in range({KEYS}):
    while time.time() < begin + key * 0.05:
        pass
    with store.lock(f'key-{{key}}', Silent()):
        write_bytes(store.own(store.record(f'sha256:{{key}}')), b'made', mode=0o444)
        keep(b'artifact %d' % key)
"""


def test_at_once_from_the_first_file_on(lab: Path) -> None:
    begin = repr(time.time() + 4)
    children = [as_user(user, WORK, lab, begin) for user in USERS for _ in range(EACH)]
    assert [(child.communicate(timeout=300)[0], child.returncode) for child in children] == [
        ("", 0)
    ] * 2 * EACH
    locks = list((lab / "v1/locks").glob("*.lock"))
    assert len(locks) == KEYS
    assert {(path.stat().st_gid, oct(path.stat().st_mode & 0o7777)) for path in locks} == {
        (LAB, "0o664")
    }
    folders = [path for path in (lab / "v1").rglob("*") if path.is_dir()]
    assert {oct(path.stat().st_mode & 0o7777) for path in folders} == {"0o2775"}
    assert not [path for path in (lab / "v1").rglob(".*") if not path.name.endswith(".lock")]
