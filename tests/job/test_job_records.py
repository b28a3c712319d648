"""Records of submissions: found by id, told apart by site, never mixed with what is no record."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from envbuild.errors import UsageError
from envbuild.job.model import Record
from envbuild.job.track.records import (
    FOLDER,
    find_job,
    find_record,
    load_records,
    log_files,
    read_receipts,
    save_record,
)


def record(job: str, site: str = "a", tasks: tuple[int, ...] = ()) -> Record:
    task = "-{task}" if tasks else ""
    return Record(
        id=job,
        site=site,
        name="x",
        script="s",
        log=f"logs/x-{{id}}{task}.log",
        receipt=f"{FOLDER}/k{task}.json",
        submitted=f"2026-01-01T00:00:{len(job):02d}Z",
        tasks=tasks,
    )


def test_ids_with_and_without_a_server(tmp_path: Path) -> None:
    kept = record("12[].server.site", tasks=(1, 2))
    save_record(kept, tmp_path)
    for text in ("12", "12[].server.site", "12[]", "a:12"):
        assert find_record(text, tmp_path) == kept
    assert [str(path.relative_to(tmp_path)) for path in log_files(kept, tmp_path)] == [
        "logs/x-12-1.log",
        "logs/x-12-2.log",
    ]


def test_two_sites_gave_the_same_id(tmp_path: Path) -> None:
    save_record(record("6", "a"), tmp_path)
    save_record(record("6", "b"), tmp_path)
    with pytest.raises(UsageError) as told:
        find_record("6", tmp_path)
    assert (told.value.what, told.value.hint) == ("several sites have a job 6", "a:6 or b:6")
    assert find_record("b:6", tmp_path).site == "b"
    assert find_record("6", tmp_path, site="a").site == "a"


def test_an_unknown_id(tmp_path: Path) -> None:
    save_record(record("6"), tmp_path)
    with pytest.raises(UsageError) as told:
        find_record("7", tmp_path)
    assert told.value.hint == "known here: 6 (x); go to the folder it came from"


def test_by_id_by_name_or_the_last_one(tmp_path: Path) -> None:
    for number, name in (("6", "first"), ("77", "second"), ("888", "first")):
        save_record(structs.replace(record(number), name=name), tmp_path)
    found = {text: find_job(text, tmp_path).id for text in (None, "first", "second", "6")}
    assert found == {None: "888", "first": "888", "second": "77", "6": "6"}
    with pytest.raises(UsageError, match="job third was not submitted from this folder"):
        find_job("third", tmp_path)
    with pytest.raises(UsageError, match=r"which job of first\?"):
        find_record("first", tmp_path)


def test_what_is_no_record_is_left_out(tmp_path: Path) -> None:
    save_record(record("6"), tmp_path)
    folder = tmp_path / FOLDER
    (folder / "k.json").write_text(
        '{"job": "6", "name": "x", "code": 0, "node": "n", "started": "", "ended": ""}'
    )
    (folder / "broken.json").write_text("{")
    (folder / "newer.json").write_text('{"schema": 99}')
    assert [found.id for found in load_records(tmp_path)] == ["6"]
    assert [receipt.code for receipt in read_receipts(record("6"), tmp_path)] == [0]
