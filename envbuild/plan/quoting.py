"""The one place where values become text of a definition, a shell script or a modulefile.

The grammar is Apptainer's own (pkg/build/types/parser/deffile.go, internal/pkg/build/args): a line
whose first word starts with ``%`` begins a section anywhere, even inside a heredoc; ``bootstrap:``
at the start of a line begins a stage; ``{{ name }}`` is a template in every line that is not a
comment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from envbuild.errors import UsageError

INDENT = "    "
STAGE = re.compile(r"bootstrap\s*:", re.IGNORECASE)


def quote_word(value: str) -> str:
    """Quote one shell word so that any shell reads back exactly the value.

    Raises UsageError for a value with a line break or NUL, which no definition can carry unharmed.
    """
    if any(char in value for char in "\n\r\0"):
        raise UsageError(f"{value!r} has a line break, which a definition cannot carry in a value")
    quoted = shlex.quote(value)
    # inside single quotes, close and open them again between two braces: the shell joins the
    # parts, the template engine of the definition finds no braces
    if quoted.startswith("'"):
        return re.sub(r"\{(?=\{)", "{''", quoted)
    return quoted


def quote_literal(value: str) -> str:
    """Quote one word for a script that stands in a file of its own: line breaks may be in it."""
    return shlex.quote(value)


def quote_words(values: Iterable[str]) -> str:
    """Quote several words and join them with blanks."""
    return " ".join(quote_word(value) for value in values)


def quote_lua(value: str) -> str:
    """Quote a string for Lua (5.1 Reference Manual, 2.1); other signs become \\ddd."""
    escaped = re.sub(r"[^ !#-\[\]-~]", _lua_escape, value)
    return f'"{escaped}"'


def _lua_escape(found: re.Match[str]) -> str:
    return "".join(f"\\{byte:03d}" for byte in found[0].encode())


def quote_tcl(value: str) -> str:
    """Quote one word for Tcl (Tcl(n), rules 4 to 9); raises UsageError for a control character."""
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise UsageError(f"{value!r} has a control character, which no modulefile carries")
    return '"' + re.sub(r'(["\\$\[\]{}])', r"\\\1", value) + '"'


def quote_erb(text: str) -> str:
    """Keep text from being code of an eRuby template: ``<%%`` is written out as ``<%``."""
    return text.replace("<%", "<%%")


def post_line(line: str) -> str:
    """Check a line of shell that a person wrote in a recipe, and return it as it is.

    Raises UsageError where the definition's grammar would read the line as something
    else.
    """
    key = "[system] post"
    first = line.split(maxsplit=1)[0] if line.strip() else ""
    if "\n" in line or "\r" in line or "\0" in line:
        raise UsageError(f"{key}: {line!r} has a line break", hint="write one string a line")
    if first.startswith("%"):
        raise UsageError(
            f"{key}: {line!r} starts with %, which begins a section in a definition",
            hint="start the line with another word, for instance: printf '%s\\n' …",
        )
    if STAGE.match(line):
        raise UsageError(
            f'{key}: {line!r} starts with "bootstrap:", which begins a stage in a definition'
        )
    if "{{" in line:
        raise UsageError(
            f"{key}: {line!r} has {{{{, which is a template in a definition",
            hint="write { { or build the text with printf",
        )
    return line


def label_line(key: str, value: str) -> str:
    """Return one line of %labels.  Raises UsageError for what the section cannot carry."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", key):
        raise UsageError(f"label {key!r}: a name has letters, digits, dot, underscore and hyphen")
    if any(char in value for char in "\n\r\0"):
        raise UsageError(f"label {key}: {value!r} has a line break")
    if "{{" in value:
        raise UsageError(f"label {key}: {value!r} has {{{{, which is a template in a definition")
    return f"{key} {value.strip()}"


def text_line(line: str) -> str:
    """Return a line of a comment or of help text, made harmless.

    It can neither begin a section nor a template.
    """
    flat = re.sub(r"[\x00-\x08\x0a-\x1f\x7f]", " ", line).rstrip()
    flat = re.sub(r"\{(?=\{)", "{ ", flat)
    return re.sub(r"^(\s*)%", r"\1·%", flat)
