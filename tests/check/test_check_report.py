"""Reports read well, validate against their schema, and are kept by image digest."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import msgspec
import pytest
from msgspec import structs

from envbuild.check.expected import CheckBasis
from envbuild.check.model import Finding, Outcome, Report
from envbuild.check.perform import CheckHost, ImageFile, check_image, verdict_of
from envbuild.check.reports.html_report import format_page
from envbuild.check.reports.report import (
    find_last_report,
    format_report,
    kept_reports,
    require_verdict,
    save_report,
    to_json,
)
from envbuild.errors import CheckFailedError, UsageError
from envbuild.progress import SilentStage
from envbuild.store.layout import Store
from envbuild.toml import json_schema
from tests.check.tree import DIGEST, Tree, silent_context
from tests.support import Golden

REPORT = Report(
    image="keras-bert.sif",
    digest=DIGEST,
    verdict="failed",
    findings=(
        Finding(
            check="start",
            title="the image starts",
            outcome="passed",
            reason="Python 3.11.2",
            seconds=0.5,
        ),
        Finding(
            check="cuda-match",
            title="CUDA it was built for",
            outcome="failed",
            reason="tensorflow 2.15.1 was built for CUDA 12.2 and cuDNN 8.9, and opens libcudnn.so.8, which is not in "
            "the image; it would go on without the GPU",
            hint='libcudnn.so.8: add "nvidia-cudnn-cu12==8.9.*" to [python] dependencies\nthen lock and build again',
            evidence={"missing": ["libcudnn.so.8"]},
        ),
        Finding(
            check="driver",
            title="GPU driver",
            outcome="skipped",
            reason="this machine has no NVIDIA driver",
            hint="check on a node with a GPU",
        ),
    ),
    when="2024-05-06T07:08:09+00:00",
)


def test_the_table_is_aligned_and_reads_without_colour(golden: Golden) -> None:
    golden("check/report.txt", format_report(REPORT) + "\n")


def test_a_narrow_terminal_gets_whole_lines(golden: Golden) -> None:
    golden("check/report-60.txt", format_report(REPORT, columns=60) + "\n")


def test_colour_changes_no_column() -> None:
    marked = format_report(REPORT, style=lambda text, _: f"<{text}>")
    assert marked.replace("<", "").replace(">", "") == format_report(REPORT).replace(">", "")


def test_json_satisfies_the_schema_and_comes_back_the_same() -> None:
    data = json.loads(to_json(REPORT))
    jsonschema.Draft202012Validator(json_schema(Report, "envbuild check report")).validate(data)
    assert data["findings"][1]["evidence"] == {"missing": ["libcudnn.so.8"]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {**data, "verdict": "perhaps"}, json_schema(Report, "envbuild check report")
        )


def test_the_last_verdict_is_kept_by_image_digest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert find_last_report(DIGEST, store) is None
    save_report(REPORT, store)
    assert find_last_report(DIGEST, store) == REPORT
    [path] = store.verdicts(DIGEST).iterdir()
    path.write_text("{half")
    assert find_last_report(DIGEST, store) is None


def test_verdicts_are_kept_per_level_node_and_gpu(tmp_path: Path) -> None:
    store = Store(tmp_path)
    older = structs.replace(REPORT, when="2026-01-01T00:00:00+00:00", target=None)
    others = (
        structs.replace(older, level="full", when="2026-01-02T00:00:00+00:00", verdict="passed"),
        structs.replace(
            older, target="driver 450", when="2026-01-03T00:00:00+00:00", verdict="failed"
        ),
        structs.replace(older, gpu=("A100",), driver="550.54", when="2026-01-04T00:00:00+00:00"),
    )
    for report in (older, *others):
        save_report(report, store)
    assert kept_reports(DIGEST, store) == (older, *others)
    save_report(structs.replace(older, when="2026-01-05T00:00:00+00:00"), store)
    assert [report.when[:10] for report in kept_reports(DIGEST, store)] == [
        "2026-01-02",
        "2026-01-03",
        "2026-01-04",
        "2026-01-05",
    ]


def test_a_verdict_for_a_kind_of_node_is_not_that_of_the_image(tmp_path: Path) -> None:
    store = Store(tmp_path)
    own = structs.replace(REPORT, when="2026-01-01T00:00:00+00:00", target=None, verdict="passed")
    elsewhere = structs.replace(
        own, when="2026-01-02T00:00:00+00:00", target="driver 450", verdict="failed"
    )
    save_report(elsewhere, store)
    assert find_last_report(DIGEST, store) == elsewhere
    save_report(own, store)
    assert find_last_report(DIGEST, store) == own


def test_what_saw_no_gpu_is_no_verdict(tmp_path: Path) -> None:
    store = Store(tmp_path)
    save_report(REPORT, store)
    unseen = structs.replace(REPORT, verdict="skipped")
    save_report(unseen, store)
    assert kept_reports(DIGEST, store) == (REPORT,)
    with pytest.raises(
        CheckFailedError, match="no GPU was checked: this machine has no NVIDIA driver"
    ):
        require_verdict(unseen)
    require_verdict(REPORT)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["passed", "skipped"], "passed"),
        (["passed", "failed", "skipped"], "failed"),
        ([], "passed"),
    ],
)
def test_one_failure_makes_the_verdict(outcomes: list[Outcome], verdict: str) -> None:
    findings = tuple(
        Finding(check="x", title="x", outcome=outcome, reason="") for outcome in outcomes
    )
    assert verdict_of(findings) == verdict
    assert verdict_of(findings, unseen=True) == ("failed" if verdict == "failed" else "skipped")


def test_findings_come_in_the_order_of_the_table(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image").install("tqdm", "4", {"tqdm.py": ""})
    names = [finding.check for finding in tree.check().findings]
    assert names == [
        "start",
        "framework-version",
        "one-framework",
        "exclusive",
        "base-files",
        "companions",
        "direct-imports",
        "entry-points",
        "shared-libraries",
        "cuda-match",
        "compiler-tools",
        "user-site-off",
        "plain-exec",
        "leaks",
        "gpus-left",
        "readable",
        "driver",
        "devices",
        "architecture",
        "compute",
    ]


def test_what_is_no_image_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "x.sif"
    file.write_text("#!/bin/sh\n")
    with pytest.raises(UsageError) as told:
        check_image(
            ImageFile(path=file),
            CheckBasis(),
            CheckHost(runtime=Tree(tmp_path / "image")),
            silent_context(tmp_path),
            SilentStage(),
        )
    assert told.value.where == str(file)


# -- the page


def test_the_page_is_whole_and_needs_nothing_else(golden: Golden) -> None:
    text = format_page(REPORT)
    golden("check/report.html", text)
    assert "http://" not in text
    assert "https://" not in text
    assert "<script" not in text
    assert "<link" not in text
    assert (
        text.index("keras-bert.sif: <span")
        < text.index("opens libcudnn.so.8")
        < text.index("Python 3.11.2")
    )


def test_what_an_image_answers_is_never_markup() -> None:
    evil = "<script>alert(1)</script>\"'&"
    finding = Finding(
        check=evil, title=evil, outcome="failed", reason=evil, hint=evil, evidence={evil: evil}
    )
    text = format_page(
        msgspec.structs.replace(
            REPORT, image=evil, findings=(finding,), gpu=(evil,), target=evil, lock=evil
        )
    )
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 9
    parser = Balance()
    parser.feed(text)
    assert parser.open == []


class Balance(HTMLParser):
    """Notes elements that were opened and not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
