"""What several threads decode at once is made ready when its module is imported."""

from __future__ import annotations

import sys

import pytest

from envbuild.run import Command, LocalRunner

READ_IN_THREADS = {
    "envbuild.parts.cache": "envbuild.formats.file_tree.Part",
    "envbuild.conda.metadata": "envbuild.conda.metadata.CondaPath",
    "envbuild.net.simple": "envbuild.net.simple._Page",
}
ASK = """\
import gc, importlib, sys
importlib.import_module(sys.argv[1])
module, _, name = sys.argv[2].rpartition(".")
found = gc.get_referents(getattr(sys.modules[module], name))
sys.exit("StructInfo" not in [type(one).__name__ for one in found])
"""


@pytest.mark.parametrize("module", READ_IN_THREADS)
def test_no_thread_is_the_first_to_decode_a_type(module: str) -> None:
    """msgspec shows a second thread a type that the first has half built, and crashes (seen in make)."""
    argv = (sys.executable, "-c", ASK, module, READ_IN_THREADS[module])
    assert LocalRunner()(Command(argv=argv), check=False).code == 0
