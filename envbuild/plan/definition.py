"""Decide what a definition says.

Pure, from recipe and lock alone, so that it stands alone without envbuild.
"""

from __future__ import annotations

from envbuild.base.reference import parse_reference
from envbuild.formats.image_name import parse_image_name
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock, LockedBase
from envbuild.names import Numbers, Pairs, Texts
from envbuild.plan import root, shell
from envbuild.plan.conda import install_conda, list_conda, refuse_python
from envbuild.plan.model import Definition
from envbuild.plan.quoting import post_line, quote_word, quote_words
from envbuild.recipe.model import Recipe
from envbuild.records import replace

ROOT_TAR = "root.tar"
CUDA_KEY = "2022-04-28"
"""The day from which NVIDIA's package lists are signed by another key (NVIDIA/nvidia-docker#1631).
"""
QUIET = ("set -eu", "{ set +x; } 2>/dev/null", "umask 022")


def plan_definition(recipe: Recipe, lock: Lock) -> Definition:
    """Return the definition of a recipe's lock.

    Raises UsageError for a value of the recipe that no definition can carry.
    """
    bootstrapped = lock.is_bootstrap
    has_own_bin = lock.conda or lock.base.off_path
    if bootstrapped:
        header: Pairs = (("Bootstrap", "scratch"),)
        base, others = lock.base_packages, lock.system_packages
        setup = root.bootstrap_root(base, others, lock.base.epoch, conda=bool(lock.conda))
    else:
        # the header that starts from the locked image, wherever it is built
        reference = parse_reference(lock.base.reference)
        kind, source = reference.kind, reference.name
        if kind.in_registry:
            source = parse_image_name(source).at(lock.base.digest)
        header = (("Bootstrap", kind.agent), ("From", source))
        setup = shell.pass_network(debian=bool(lock.debian), conda=bool(lock.conda))
    return Definition(
        comment=_comment_lines(recipe, lock),
        header=header,
        setup=setup,
        post=_post_lines(recipe, lock, bootstrapped=bootstrapped),
        environment=_environment_of(recipe, lock),
        path=(f"{lock.conda_prefix}/bin",) if has_own_bin else (),
        labels=_label_pairs(recipe, lock),
        test=_test_lines(recipe, lock),
        runscript=_runscript_lines(recipe),
        help=_help_lines(recipe, lock),
    )


def plan_dockerfile(recipe: Recipe, lock: Lock) -> Definition:
    """Return the definition for a Dockerfile, which builds without envbuild."""
    bootstrapped = lock.is_bootstrap
    definition = plan_definition(recipe, lock)
    about = (
        *_comment_lines(recipe, lock)[:2],
        "It stands alone: with BuildKit (docker 23 or newer), buildah or podman,",
        f"    docker build --tag {recipe.name.lower()} --file Dockerfile .",
        "installs the same packages, each verified by its sha256.",
        "Where the network needs more than that:",
        "    --secret id=network,src=FILE       with lines as PIP_INDEX_URL=..., DEBIAN_MIRROR=...",
        "    --secret id=certificates,src=FILE  a bundle of certificates",
    )
    setup: Texts = ()
    if bootstrapped:
        about = (*about, "    --build-arg BUILDER=IMAGE          a Debian to make the root on")
        setup = root.root_stage(lock.base_packages, lock.system_packages, lock.base.epoch)
    post = (*root.take_secrets(staged=bootstrapped), *definition.post)
    return replace(definition, comment=about, setup=setup, post=post)


def is_before_cuda_key(base: LockedBase) -> bool:
    """Tell whether a base has a CUDA older than NVIDIA's new key for package lists."""
    return (
        not parse_reference(base.reference).kind.is_bootstrap
        and base.cuda is not None
        and base.created < CUDA_KEY
    )


def _comment_lines(recipe: Recipe, lock: Lock) -> Texts:
    tools = "apptainer, mmdebstrap and apt" if recipe.base.bootstrap else "apptainer"
    return (
        f"{recipe.name}: {recipe.recipe.summary}".rstrip(": "),
        f"Written by envbuild from lock {lock_digest(lock)}.",
        f"It stands alone: with {tools} on a machine that reaches its package index,",
        f"    apptainer build --fakeroot {recipe.name}.sif {recipe.name}.def",
        "installs the same packages, each verified by its sha256.",
    )


def _post_lines(recipe: Recipe, lock: Lock, *, bootstrapped: bool) -> Texts:
    packages = lock.installed
    build = lock.build_only
    system = lock.system_packages
    if not lock.base.python:
        return (*QUIET, *refuse_python("the base has no Python to"))
    python, of_base = lock.python_path, lock.base.python_path
    fetching = shell.run_fetcher("conda", of_base, "conda", "conda.txt") if lock.conda else ()
    fetched = () if bootstrapped else system
    lines = [
        *QUIET,
        *list_conda(lock.conda),
        *shell.supply_files(packages, build, of_base, fetched, lock.files, fetching=fetching),
    ]
    lines += shell.install_debian(system, "$offline ")
    lines += install_conda(lock, tuple(name for name, _ in _environment_of(recipe, lock)))
    if packages:
        # 3.7 is the first that knows bytecode checked by hash (PEP 552)
        hashed = _minor_version(lock) >= (3, 7)
        # PEP 668: Debian's Python refuses to install into itself otherwise
        forced = bootstrapped or lock.base.externally_managed or lock.conda_python is not None
        lines += shell.install_python(python, break_system=forced, compiles=hashed)
        if not hashed:
            lines += shell.compile_by_time(python, lock.base.epoch)
    lines += shell.lay_files(lock.files)
    lines += shell.remove_debian(p for p in system if p.group == "build")
    if is_before_cuda_key(lock.base):
        lines += shell.switch_off_cuda_sources()
    own = [post_line(line) for line in recipe.system.post]
    if own:
        lines += [
            "# lines of the recipe",
            *shell.write_heredoc("$offline /bin/sh -eu", "RECIPE", own),
        ]
    return (*lines, *shell.clean_up())


def _environment_of(recipe: Recipe, lock: Lock) -> Pairs:
    base = {"PYTHONNOUSERSITE": "1"}
    if lock.base.distro.split(" ")[0] in ("", "debian", "ubuntu"):
        # without a locale Python 3.6 reads files as ASCII
        base["LC_ALL"] = "C.UTF-8"  # others have it only since glibc 2.35
    if lock.conda:
        base |= {"CONDA_PREFIX": lock.conda_prefix, "CONDA_DEFAULT_ENV": lock.conda_prefix}
    return tuple(sorted({**base, **recipe.run.environment}.items()))


def _label_pairs(recipe: Recipe, lock: Lock) -> Pairs:
    return (
        ("envbuild.base", f"{lock.base.reference} {lock.base.digest}"),
        ("envbuild.framework", lock.base.framework or "none"),
        ("envbuild.lock", lock_digest(lock)),
        ("envbuild.recipe", recipe.name),
        ("envbuild.summary", recipe.recipe.summary or recipe.name),
    )


def _test_lines(recipe: Recipe, lock: Lock) -> Texts:
    if not lock.python_version:
        return ("exit 0",)
    locked = [f"{p.name} {p.version}" for p in lock.installed]
    imports = [f"import {name}" for name in recipe.check.imports]
    of_base = lock.is_bootstrap and lock.conda_python is None
    python = "python3" if of_base else quote_word(lock.python_path)
    before, version_of = _version_function(lock)
    program = [
        *before,
        "wrong = []",
        'for line in """',
        *locked,
        '""".split("\\n")[1:-1]:',
        "    name, version = line.split()",
        f"    found = {version_of}(name)",
        "    if found != version:",
        '        wrong.append("%s is %s, the lock says %s" % (name, found, version))',
        *imports,
        'sys.exit("\\n".join(wrong) or 0)',
    ]
    return ("set -eu", *shell.write_heredoc(f"{python} -", "PYTHON", program))


def _minor_version(lock: Lock) -> Numbers:
    return tuple(map(int, lock.python_version.split(".")[:2]))


def _version_function(lock: Lock) -> tuple[Texts, str]:
    """Return lines that import, and the function that tells a distribution's version then."""
    if _minor_version(lock) >= (3, 8):
        return ("import importlib.metadata, sys",), "importlib.metadata.version"
    return (
        "import pkg_resources, sys",
        "version = lambda name: pkg_resources.get_distribution(name).version",
    ), "version"


def _runscript_lines(recipe: Recipe) -> Texts:
    if recipe.base.image is not None and not recipe.run.command:
        return ()  # the image's own entry point stays
    default = quote_words(recipe.run.command) if recipe.run.command else "python3"
    return ('if [ "$#" -gt 0 ]; then', '    exec "$@"', "fi", f"exec {default}")


def _help_lines(recipe: Recipe, lock: Lock) -> Texts:
    direct = ", ".join(lock.direct) or "none"
    framework = lock.base.framework or "no framework"
    return (
        recipe.recipe.summary or recipe.name,
        "",
        f"Base: {lock.base.reference}, {lock.python_title}, {framework}.",
        f"Direct requirements: {direct}.",
        "",
        f"    apptainer exec --nv {recipe.name}.sif python train.py",
        f"    envbuild check {recipe.name}.sif --require-gpu",
        f"    envbuild exec {recipe.name} -- python train.py",
    )
