from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.plan.quoting import label_line, post_line, quote_word, quote_words, text_line

LINE_BREAKS = "\n\r\0"
any_line = st.text(st.characters(codec="utf-8", exclude_characters=LINE_BREAKS), max_size=40)
one_line = st.one_of(any_line, st.text("{}%'\"\\ a", max_size=12))


@given(one_line)
@example("{{{")
def test_a_word_never_holds_a_template(value: str) -> None:
    assert "{{" not in quote_word(value)


@given(st.lists(one_line, min_size=1, max_size=8))
def test_the_shell_reads_back_exactly_what_was_quoted(values: list[str]) -> None:
    script = f"printf '%s\\0' {quote_words(values)}"
    out = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True).stdout
    assert out.decode("utf-8", "surrogateescape").split("\0")[:-1] == values


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b"])
def test_a_line_break_in_a_value_is_refused(value: str) -> None:
    with pytest.raises(
        UsageError, match="has a line break, which a definition cannot carry in a value"
    ):
        quote_word(value)


@given(one_line)
@example("{{{")
def test_text_begins_no_section_and_no_template(line: str) -> None:
    harmless = text_line(line)
    assert not harmless.lstrip().startswith("%")
    assert "{{" not in harmless
    assert "\n" not in harmless


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%matplotlib inline", "starts with %, which begins a section"),
        ("   %post", "starts with %, which begins a section"),
        ("\t%post", "starts with %, which begins a section"),
        ("bootstrap: docker", 'starts with "bootstrap:", which begins a stage'),
        ("BootStrap : x", 'starts with "bootstrap:", which begins a stage'),
        ("echo {{ name }}", "which is a template in a definition"),
        ("echo a\necho b", "has a line break"),
    ],
)
def test_lines_that_the_grammar_reads_otherwise_are_refused(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        post_line(line)
    assert message in str(caught.value)
    assert str(caught.value).startswith("[system] post: ")


@pytest.mark.parametrize(
    "line", ["echo 100%", "echo \"a 'b' $HOME\"", "printf '%s\\n' x", "echo bootstrap: x", ""]
)
def test_ordinary_lines_pass_unchanged(line: str) -> None:
    assert post_line(line) == line


def test_labels() -> None:
    assert label_line("envbuild.recipe", "日本語 ラベル") == "envbuild.recipe 日本語 ラベル"
    for key in ("a b", "", "%post"):
        with pytest.raises(UsageError, match="a name has letters, digits, dot"):
            label_line(key, "x")
    for value in ("x\ny", "{{ x }}"):
        with pytest.raises(UsageError, match=r"has a line break|which is a template"):
            label_line("a", value)
