from __future__ import annotations

import pytest

from envbuild.errors import ToolFailedError
from envbuild.resolve.pylock import Candidate, Chosen, read_pylock, write_seed
from envbuild.toml import parse_toml

ANSWER = """
lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "torch"
version = "2.4.0+nv24.6.base"
wheels = [{ path = "/tmp/hard/torch-2.4.0+nv24.6.base-py3-none-any.whl", hashes = { sha256 = "00" } }]
[[packages]]
name = "rich"
version = "14.0.0"
sdist = { url = "https://mirror.invalid/a/rich-14.0.0.tar.gz", upload-time = 2025-03-30T14:15:14Z, size = 224078, hashes = { sha256 = "82f1" } }
wheels = [{ url = "https://mirror.invalid/b/rich-14.0.0%2Blocal-py3-none-any.whl", hashes = { sha256 = "1c94" } }]
"""


def test_stubs_and_files_are_told_apart() -> None:
    found = read_pylock(ANSWER)
    assert found["torch"] == Chosen(name="torch", version="2.4.0+nv24.6.base")
    assert found["torch"].from_base
    assert found["rich"].sdist == Candidate(
        file="rich-14.0.0.tar.gz",
        url="https://mirror.invalid/a/rich-14.0.0.tar.gz",
        sha256="82f1",
        size=224078,
        uploaded="2025-03-30",
    )
    assert found["rich"].wheels[0].file == "rich-14.0.0+local-py3-none-any.whl"
    assert not found["rich"].from_base


@pytest.mark.parametrize(
    "broken",
    [
        '[[packages]]\nname = "a"\n',
        'packages = ["a"]',
        '[[packages]]\nname="a"\nversion="1"\nsdist={}',
    ],
)
def test_answer_of_an_unknown_form(broken: str) -> None:
    with pytest.raises(ToolFailedError, match="uv's answer is not a lock as PEP 751 has it"):
        read_pylock(broken)


def test_seed_is_sorted_and_minimal() -> None:
    assert write_seed([("b", "2"), ("a", "1")]) == (
        'lock-version = "1.0"\ncreated-by = "envbuild"\n'
        '\n[[packages]]\nname = "a"\nversion = "1"\n\n[[packages]]\nname = "b"\nversion = "2"\n'
    )
    assert parse_toml(write_seed([]), "seed")["packages"] == []
