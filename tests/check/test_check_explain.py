"""Logs are explained: every known message by its own rule, causes before consequences, and nothing else is accused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.check.explain import BLOCK, Explanation, explain_log, load_rules
from envbuild.cli.explain import command
from envbuild.data.tables import LogRule
from envbuild.toml import read_toml
from tests.support import Golden

MESSAGES = read_toml(Path(__file__).with_name("messages.toml"))[0]["message"]
LOGS = [
    log
    for file in ("sight.toml", "round.toml", "blind.toml", "wide.toml", "first.toml", "thread.toml")
    for log in read_toml(Path(__file__).with_name(file))[0]["log"]
]
OURS = tuple(rule for rule in load_rules() if rule.example)

SILENT_FALLBACK = """\
2021-03-05 22:15:49.238500: I tensorflow/stream_executor/cuda/cudart_stub.cc:29] Ignore above cudart dlerror
<function is_gpu_available at 0x7f251db3cd08>
2021-03-05 22:16:15.046174: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1720] Found device 0 with properties:
W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load dynamic library 'libcublas.so.11'; dlerror
W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load dynamic library 'libcudnn.so.8'; dlerror
W tensorflow/core/common_runtime/gpu/gpu_device.cc:1757] Cannot dlopen some GPU libraries.
Skipping registering GPU devices...
Epoch 1/3
"""
HEALTHY = """\
2021-03-05 21:56:01.1: I tensorflow/stream_executor/platform/default/dso_loader.cc:44] Successfully opened dynamic library libcudnn.so.7
I tensorflow/core/common_runtime/gpu/gpu_device.cc:1241] Created TensorFlow device (/device:GPU:0 with 30132 MB memory)
CUDA_VISIBLE_DEVICES=0
NCCL INFO Bootstrap : Using ib0:10.0.0.1<0>
NCCL INFO Call to connect returned Connection refused, retrying
step 340, loss 0.34, error rate 0.28, 803 examples, 34 GPUs
validation error: 0.12, no errors
slurmstepd: info: done
"""


def names(found: Explanation) -> list[str]:
    return [known.name for known in found.known]


@pytest.mark.parametrize("rule", OURS, ids=lambda rule: rule.name)
def test_each_rule_explains_its_own_example_first(rule: LogRule) -> None:
    example = rule.example.strip("\n")
    found = explain_log([f"before\n{example}\nafter\n"])
    assert names(found)[0] == rule.name
    known = found.known[0]
    first_line = example.splitlines()[0].strip()
    assert (known.line, known.count, known.text) == (2, 1, first_line)
    assert known.do
    assert not re.search(r"[{}]", known.cause + "".join(known.do))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: one["source"])
def test_a_message_of_a_public_thread_is_told(message: dict[str, str]) -> None:
    found = explain_log([f"before\n{message['line']}\nafter\n"])
    assert message["rule"] in names(found)[:1], names(found)


@pytest.mark.parametrize("log", LOGS, ids=lambda one: one["source"])
def test_a_log_of_a_public_thread_is_told_in_the_words_it_needs(log: dict[str, str]) -> None:
    first = explain_log([log["text"]]).known[0]
    assert re.search(log["says"], " ".join((first.cause, *first.do)))


def test_rules_are_well_made() -> None:
    every = [rule.name for rule in load_rules()]
    assert len(every) == len(set(every))
    assert len(OURS) >= 35
    for rule in OURS:
        assert set(rule.follows) <= set(every), rule.name
        assert rule.source, rule.name
        assert not rule.cause.endswith("."), rule.name
        assert [
            line
            for line in rule.do
            if "envbuild" in line or "#" in line or '"' in line or " " in line
        ], rule.name


def test_the_silent_fallback_is_told_by_its_cause_and_not_by_its_consequences() -> None:
    found = explain_log([SILENT_FALLBACK])
    assert names(found) == ["missing-cuda-library", "printed-function"]
    first = found.known[0]
    assert (first.line, first.count) == (4, 2)
    assert first.do[0] == 'libcublas.so.11: add "nvidia-cublas-cu11" to [python] dependencies'


def test_a_consequence_alone_is_told() -> None:
    assert names(explain_log(["Skipping registering GPU devices...\n"])) == ["skipping-gpu"]


def test_a_healthy_log_is_not_accused() -> None:
    found = explain_log([HEALTHY])
    assert names(found) == []
    assert found.lines == 8


def test_an_unknown_log_shows_its_last_lines_that_look_like_errors() -> None:
    lines = [f"ValueError: number {number}\n" for number in range(9)]
    assert explain_log(["fine\n", *lines]).trouble == tuple(line.strip() for line in lines[-5:])


def test_colours_progress_bars_and_windows_line_ends_are_seen_through() -> None:
    text = "\x1b[31m" + "10%\r20%\r" * 999 + "CUDA out of \x1b[1mmemory\x1b[0m\r\nnext\r\n"
    found = explain_log([text])
    assert names(found) == ["gpu-memory"]
    assert found.known[0].text == "CUDA out of memory"
    assert found.lines == 2


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(0, 30))
def test_it_does_not_matter_how_a_log_is_cut_into_pieces(size: int, padding: int) -> None:
    text = "x\n" * padding + SILENT_FALLBACK
    assert explain_log([text[at : at + size] for at in range(0, len(text), size)]) == explain_log(
        [text]
    )


def test_lines_are_counted_across_blocks_and_a_line_without_end_is_survived() -> None:
    filler = "all is well\n" * (BLOCK // 12 + 10)
    found = explain_log([filler, filler, "CUDA out of memory\n"])
    assert found.known[0].line == 2 * (BLOCK // 12 + 10) + 1
    assert 1 <= explain_log(["y" * BLOCK] * 10).lines <= 10


def test_missing_container_parts_are_explained_too() -> None:
    found = explain_log(
        [
            "FATAL:   container creation failed: image driver: fuse: failed to open /dev/fuse: denied\n"
        ]
    )
    assert found.known[0].cause == "/dev/fuse cannot be used, so the image cannot be mounted"


def run(*arguments: str, text: bytes | None = None) -> str:
    result = CliRunner().invoke(command, arguments, input=text, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_verb_tells_line_cause_command_and_source(tmp_path: Path, golden: Golden) -> None:
    log = tmp_path / "slurm-7.out"
    log.write_text(SILENT_FALLBACK)
    golden("check/explain.txt", run(str(log)))


def test_the_verb_reads_standard_input_of_any_bytes() -> None:
    assert "no known message in 2 lines" in run("-", text=b"\xff\xfe\x00nothing\nhere\n")
    data = json.loads(run("-", "--json", text=SILENT_FALLBACK.encode()))
    assert data["known"][0]["name"] == "missing-cuda-library"


def test_a_log_that_is_not_there_is_an_error_of_usage() -> None:
    result = CliRunner().invoke(command, ["/nowhere/x.log"])
    assert result.exit_code == 2
    assert "No such file or directory" in result.output
