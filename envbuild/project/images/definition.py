"""Take an Apptainer definition apart: its header, and its sections line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SECTION = re.compile(r"%([a-z]\w*)\b(.*)$")
HEADER = re.compile(r"\s*([A-Za-z]\w*)\s*:\s*(.*?)\s*$")


@dataclass(slots=True)
class DefinitionStage:
    """One stage: ``header`` with keys in lower case, ``sections`` with their lines."""

    header: dict[str, str] = field(default_factory=dict)
    sections: dict[str, list[str]] = field(default_factory=dict)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a section, none where it is missing."""
        return self.sections.get(name, [])


def read_stages(text: str) -> list[DefinitionStage]:
    """Return the stages of a definition; text that is none gives one without header.

    A line that begins with ``%`` inside a here-document is the document's.
    """
    stages = [DefinitionStage()]
    here: list[str] | None = None
    until = ""
    for line in text.splitlines():
        if until:
            if here is not None:
                here.append(line)
            until = "" if line.strip() == until else until
            continue
        section = SECTION.match(line)
        header = HEADER.match(line)
        if header and header[1].lower() == "bootstrap":
            stages += [DefinitionStage()] if stages[-1].header else []
            here = None
        if section:
            here = stages[-1].sections.setdefault(section[1], [])
        elif here is not None:
            here.append(line)
            document = re.search(r"<<-?\s*['\"]?(\w+)", line)
            until = document[1] if document and not line.lstrip().startswith("#") else ""
        elif header and not line.lstrip().startswith("#"):
            stages[-1].header[header[1].lower()] = header[2]
    return stages
