# shellcheck shell=sh disable=SC2086,SC2154
# conda packages
@programs@
(cd "$files/python" && \
    sed -n 's/^@linker@==.*sha256:\([0-9a-f]*\)  # /\1  /p' @build@/build.txt |
    sha256sum --check --quiet)
@python@ -m zipfile -e "$files/python/@wheel@" @build@/linker
PYTHONPATH=@build@/linker $offline @python@ -s -B @build@/install.py \
    "$files/conda" @build@/conda.txt @prefix@ @build@/history
$offline @python@ -s -B @build@/activate.py @prefix@ @activation@ \
    @variables@
