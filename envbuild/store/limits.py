"""How large and how slow an index may be: every limit on what comes from one, in one place, with its reason."""

from __future__ import annotations

BIGGEST_PAGE = 64 * 1024 * 1024
"""Bytes of a project's page after decompression; the largest ones have a few million."""
PAGE_SECONDS = 180.0
"""One page, headers to end: 5 MB at 30 kB/s."""
QUESTION_SECONDS = 300.0
"""One call of uv, which fetches some hundred pages and metadata files at once; a cold one took 34 s."""
RESOLUTION_SECONDS = 900.0
"""All calls for one resolution; a cold one with twenty calls took 60 s."""
PROBE_SECONDS = 5.0
"""How long an address gets to answer whole when the slow one is looked for, after a limit was reached."""
SLOWEST_FILE = 8 * 1024
"""Bytes a second over a whole file: a stalling connection is opened again, a dripping one is not waited for."""
FILE_SECONDS = 600.0
"""What any file gets, however small; a larger one gets its size at SLOWEST_FILE on top."""
BUILD_SECONDS = 120.0
"""One question to a build backend (PEP 517), where the user lets it run; setuptools answers in a second."""
