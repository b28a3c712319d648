"""The wrapper: one bash file that runs a command in an image, on any node, without envbuild."""

from __future__ import annotations

from pathlib import Path

from envbuild import __version__
from envbuild.caches import COMPILED, DOWNLOADS
from envbuild.data.tables import load_caches
from envbuild.job.render.container import MPI, PASSED, RANKS
from envbuild.job.schedulers import SCHEDULERS
from envbuild.job.schedulers.protocol import script_text
from envbuild.job.sites.site import Site
from envbuild.names import Pairs, Texts
from envbuild.plan.quoting import quote_literal, text_line
from envbuild.records import frozen_record
from envbuild.runtime import HOME, IMAGE_FOLDERS, Bind, bind_flags, overlay_flags
from envbuild.script_files import read_script

DIRECT = "in-image"
"""The name under which a wrapper runs the command that its arguments name."""
PIPS = ("pip", "pip3")
CHANGING = ("install", "uninstall")
"""What pip is asked to do that a read-only image cannot keep."""


@frozen_record
class Wrapper:
    """What a wrapper is made from.

    ``verb`` is envbuild's that writes it anew; ``image`` an absolute path, ``stamp`` its size and
    time of change, ``mark`` what names its folder of compiled code; ``command`` is the recipe's own
    (empty: it has none), run under the recipe's ``name``; ``variables`` are set inside,
    ``passed`` are patterns of the caller's variables that are handed in beside those of ranks and
    GPUs; ``kept`` are folders of HOME that outlive a call (None: nothing does);
    ``layer`` is a squashfs that is laid over the image.
    """

    name: str
    verb: str
    image: str
    stamp: str
    mark: str
    command: Texts = ()
    site: Site | None = None
    binds: tuple[Bind, ...] = ()
    variables: Pairs = ()
    passed: Texts = ()
    kept: Texts | None = ()
    layer: str | None = None


def stamp_of(image: Path) -> str:
    """Return an image's size and time of change, which a wrapper compares before it starts."""
    state = image.stat()
    return f"{state.st_size} {int(state.st_mtime)}"


def render_wrapper(wrapper: Wrapper) -> str:
    """Return the whole script."""
    parts = [
        _head(wrapper),
        script_text("container.sh"),
        own_text("wrapper.sh"),
        _choose_command(wrapper),
        _prepare(wrapper),
        _variables(wrapper),
        _binds(wrapper),
        _caches(wrapper),
        _exec_line(wrapper),
    ]
    return "\n".join(part for part in parts if part)


def own_text(name: str) -> str:
    """Return a file of wrap/scripts without its first comment, which speaks to shellcheck."""
    return read_script("envbuild.wrap", f"scripts/{name}")


def _head(wrapper: Wrapper) -> str:
    title = text_line(f"{wrapper.name}: runs a command in its image, written by envbuild")
    return (
        "#!/bin/bash\n"
        f"# {title} {__version__} (docs/howto-notebooks.md)\n"
        "# shellcheck disable=SC2034,SC2317\n"
        "set -u\n"
        f"name={quote_literal(wrapper.name)} verb={quote_literal(wrapper.verb)}\n"
        f"image={quote_literal(wrapper.image)}\n"
        f"stamp={quote_literal(wrapper.stamp)}\n"
        "flags=()\n\n"
        "fail() {\n  printf 'envbuild: error: %s\\n' \"$*\" >&2\n  exit 125\n}\n"
    )


def _choose_command(wrapper: Wrapper) -> str:
    """Return the lines that turn the name of the call into the words to run inside."""
    lines = [
        "called=${0##*/}",
        'case "$called" in',
        f"{DIRECT})",
        '  while [ "${1:-}" = --bind ] && [ $# -ge 2 ]; do',
        '    bind_path "$2"',
        "    shift 2",
        "  done",
        f'  [ $# -gt 0 ] || fail "usage: {DIRECT} [--bind PATH]... COMMAND..."',
        "  ;;",
        f"{' | '.join(PIPS)})",
        f'  case "${{1:-}}" in {" | ".join(CHANGING)}) explain_pip ;; esac',
        '  set -- "$called" "$@"',
        "  ;;",
    ]
    if wrapper.command:
        words = " ".join(map(quote_literal, wrapper.command))
        lines += [f"{quote_literal(wrapper.name)})", f'  set -- {words} "$@"', "  ;;"]
    return "\n".join((*lines, '*) set -- "$called" "$@" ;;', "esac", ""))


def _prepare(wrapper: Wrapper) -> str:
    program = wrapper.site.runtime.program if wrapper.site else "any"
    programs = "apptainer singularity" if program == "any" else program
    return (
        f"check_image\nclean_environment\nfind_runtime {programs}\n"
        "[ ! -e /dev/nvidiactl ] || flags+=(--nv)\n"
        "[ ! -e /dev/kfd ] || flags+=(--rocm)\n"
    )


def _variables(wrapper: Wrapper) -> str:
    """Return the lines that hand variables in: of ranks, GPUs, schedulers, and those asked for."""
    patterns = [*PASSED, *RANKS, *MPI]
    for scheduler in SCHEDULERS.values():
        patterns += scheduler.features.shell.passed
    patterns += wrapper.passed
    lines = [f"  {quote_literal(pattern)} \\" for pattern in dict.fromkeys(patterns)]
    lines = ["hand_in_matching \\", *lines[:-1], lines[-1].removesuffix(" \\")]
    inside = dict(wrapper.site.runtime.environment) if wrapper.site else {}
    inside.update(wrapper.variables)
    lines += [f"hand_in {key} {quote_literal(value)}" for key, value in inside.items()]
    return "\n".join((*lines, ""))


def _binds(wrapper: Wrapper) -> str:
    """Return the lines for scratch, the current folder, the site's folders, and those asked for."""
    own = " | ".join(f"{folder} | {folder}/*" for folder in IMAGE_FOLDERS)
    lines = [
        "make_scratch",
        'binds+=(--bind "$scratch:/tmp:rw" --bind "$scratch:/var/tmp:rw")',
        "folder=$PWD",
        'case "$folder" in',
        f"/ | {own}) folder={HOME} ;;",
        "*)",
        '  bind_path "$folder"',
        '  protect_records "$folder"',
        '  binds+=(${records[@]+"${records[@]}"})',
        "  ;;",
        "esac",
    ]
    for folder in _site_folders(wrapper.site):
        word = f'"${{{folder[1:]}:-}}"' if folder.startswith("$") else quote_literal(folder)
        lines.append(f"[ ! -d {word} ] || bind_path {word}")
    for bind in wrapper.binds:
        words = " ".join(map(quote_literal, bind_flags(bind)))
        lines.append(f"binds+=({words})")
    return "\n".join((*lines, ""))


def _site_folders(site: Site | None) -> list[str]:
    if site is None:
        return []
    scratch = [site.folders.scratch] if site.folders.scratch else []
    return list(dict.fromkeys((*site.runtime.binds, *scratch)))


def _caches(wrapper: Wrapper) -> str:
    """Return the lines that keep downloads and compiled code in folders of whoever calls."""
    if wrapper.kept is None:
        return ""
    kinds = {
        "downloads": ("$caches/downloads", DOWNLOADS),
        "compiled": (f"$caches/compiled/{wrapper.mark}", COMPILED),
    }
    kept = [*kinds.values(), *((f"$caches/home/{name}", name) for name in wrapper.kept)]
    lines = [
        "# what is downloaded and compiled stays in folders of the caller's (docs/howto-data.md)",
        "caches=${ENVBUILD_CACHES:-${XDG_CACHE_HOME:-${HOME:-/}/.cache}/envbuild-caches}",
        'case "$caches" in',
        "none) ;;",
        "*)",
        "  for place in \\",
        *(f'    "{source}={below}" \\' for source, below in kept[:-1]),
        f'    "{kept[-1][0]}={kept[-1][1]}"; do',
        '    keep_folder "${place%=*}" "${place##*=}"',
        "  done",
    ]
    for row in load_caches().cache:
        source, below = kinds[row.keep]
        if row.made:
            lines.append(f'  mkdir -p -- "{source}/{row.folder}"')
        lines.append(f"  keep_variable {row.variable} {Path(below) / row.folder}")
    return "\n".join((*lines, "  ;;", "esac", ""))


def _exec_line(wrapper: Wrapper) -> str:
    flags = wrapper.site.runtime.flags if wrapper.site else ()
    layer = overlay_flags(Path(wrapper.layer)) if wrapper.layer else ()
    own = "".join(f" {quote_literal(flag)}" for flag in (*flags, *layer))
    return (
        'exec "$runtime" --quiet exec ${flags[@]+"${flags[@]}"}'
        f"{own} \\\n"
        f'  --cleanenv --containall --no-home --home {HOME} --pwd "$folder" \\\n'
        '  "${binds[@]}" "$image" "$@"\n'
    )
