"""R code beside Python code: what it loads is named, as Debian and conda call it."""

from __future__ import annotations

from pathlib import Path

from tests.init.projects import comments, write

MODEL = """\
# library(notthis)
library(lme4)
suppressPackageStartupMessages(require("ggplot2"))
stats::setNames(1, "a"); dplyr::filter(x); url <- "http://x"
library(parallel)
"""


def test_packages_of_r_are_named_as_debian_and_conda_call_them(tmp_path: Path) -> None:
    write(tmp_path, {"model.R": MODEL, "clean.py": "import pandas\n"})
    told = comments(tmp_path)
    assert "R code (model.R) loads dplyr, ggplot2, lme4: Python's index has no R;" in told
    assert "in [system] packages: r-base-core r-cran-dplyr r-cran-ggplot2 r-cran-lme4;" in told
    assert "in [conda] dependencies: r-base r-dplyr r-ggplot2 r-lme4 " in told


def test_a_script_that_loads_nothing_needs_r_itself(tmp_path: Path) -> None:
    write(tmp_path, {"a.Rmd": "x <- c(1, 2)\n", "clean.py": "import pandas\n"})
    assert "R code (a.Rmd): Python's index has no R; from Debian" in comments(tmp_path)


def test_without_r_nothing_is_told(tmp_path: Path) -> None:
    assert "R code" not in comments(write(tmp_path, {"clean.py": "import pandas\n"}))
