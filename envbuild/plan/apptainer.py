"""Render a Definition as an Apptainer (Singularity) definition file.

Knows syntax, decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.errors import UsageError
from envbuild.names import Pairs, Texts
from envbuild.plan.model import Definition
from envbuild.plan.quoting import INDENT, STAGE, label_line, quote_word, text_line


def render_definition(definition: Definition) -> str:
    """Return the definition file; the same record gives the same text."""
    comment = [f"# {text_line(line)}".rstrip() for line in definition.comment]
    sections = {
        "setup": definition.setup,
        "post": definition.post,
        "environment": export_lines(definition),
        "labels": tuple(label_line(key, value) for key, value in definition.labels),
        "test": definition.test,
        "runscript": definition.runscript,
        "help": tuple(text_line(line) for line in definition.help),
    }
    blocks = ["".join(f"{line}\n" for line in comment), _header_lines(definition.header)]
    blocks += [_render_section(name, lines) for name, lines in sections.items()]
    return "\n".join(block for block in blocks if block)


def export_lines(definition: Definition) -> Texts:
    """Return the lines of shell that set a definition's variables."""
    lines = [f"export {name}={quote_word(value)}" for name, value in definition.environment]
    if definition.path:
        lines.append(f'export PATH={quote_word(":".join(definition.path))}:"$PATH"')
    return tuple(lines)


def with_header(text: str, header: Pairs) -> str:
    """Return a rendered definition that starts from elsewhere.

    The same base, but a copy of it on this machine.
    """
    head, blank, body = text.partition("\n\n")
    _, end, rest = body.partition("\n\n")
    return "".join((head, blank, _header_lines(header), end[1:], rest))


def _header_lines(header: Pairs) -> str:
    return "".join(f"{key}: {_header_value(key, value)}\n" for key, value in header)


def _header_value(key: str, value: str) -> str:
    if any(char in value for char in "\n\r\0#\\") or "{{" in value:
        raise UsageError(
            f"{key}: {value!r} cannot be in the header of a definition",
            hint="rename the file or folder",
        )
    return value


def _render_section(section: str, lines: Sequence[str]) -> str:
    """Indent a section's lines, except heredocs.

    Their bodies and ends stand at the start of the line.
    """
    if not lines:
        return ""
    out, heredoc_end = [f"%{section}"], ""
    for line in lines:
        if line.lstrip().startswith("%") or STAGE.match(line):
            raise UsageError(
                f"%{section}: the line {line!r} would begin a section or stage of the definition"
            )
        # a here-document ends at its word alone at the start of a line: it cannot be indented
        if heredoc_end:
            out.append(line)
            if line == heredoc_end:
                heredoc_end = ""
            continue
        out.append(f"{INDENT}{line}".rstrip())
        _, is_heredoc, rest = line.partition("<<'")
        if is_heredoc:
            heredoc_end = rest.partition("'")[0]
    return "\n".join(out) + "\n"
