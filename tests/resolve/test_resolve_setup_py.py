"""What a setup.py hands to setup(), read from its text; the texts are shaped after those of published packages."""

from __future__ import annotations

import ast
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker

from envbuild.resolve.setup_py.conditions import condition_of
from envbuild.resolve.setup_py.read import read_setup

SETUP = (
    "from setuptools import setup\nimport os, sys, platform\n{before}\nsetup(name='a', {handed})\n"
)
FILES = {
    "requirements.txt": "# needed\nnumpy>=1.2  # since 2020\n-r more.txt\n\nsix\n",
    "README.md": "read me",
}


def lines(before: str, handed: str = "install_requires=needs") -> tuple[str, ...] | None:
    handed_over = read_setup(SETUP.format(before=before, handed=handed), FILES)
    assert handed_over is not None
    return handed_over.lines("install_requires")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("needs = ['numpy', 'six'] + ['click']", ("numpy", "six", "click")),
        (
            "needs = ['numpy']\nneeds += ['six']\nneeds.append('click')\nneeds.extend(['a', 'b'])",
            ("numpy", "six", "click", "a", "b"),
        ),
        ("MORE = {'x': ['six']}\nneeds = ['numpy', *MORE['x']]", ("numpy", "six")),
        # a build in an image has none of the variables that a setup.py asks for
        ("needs = ['numpy']\nif os.environ.get('WITH_GPU'):\n    needs.append('cupy')", ("numpy",)),
        ("needs = []\nif not os.getenv('CI'):\n    needs = ['six']", ("six",)),
        ("needs = ['six']\nif 'CI' in os.environ:\n    needs = []", ("six",)),
        ("needs = []\nif 'CI' not in os.environ:\n    needs = ['six']", ("six",)),
        ("needs = []\nif os.getenv('GPU', '1') == '1':\n    needs += ['six']", ("six",)),
        ("needs = ['six']\nif os.getenv('GPU', '0') != '0':\n    needs += ['cupy']", ("six",)),
        ("FAST = os.getenv('F', 'no') in ('1', 'yes')\nneeds = [] if FAST else ['six']", ("six",)),
        (
            "v = '1.2'\nneeds = ['numpy>=' + v, f'six=={v}', 'click>=%s' % v]",
            ("numpy>=1.2", "six==1.2", "click>=1.2"),
        ),
        (
            (
                "all = ['numpy>=1.2', 'six', 'ruff']\n"
                "deps = {b: a for a, b in (re.findall(r'^(([^!=<>~ ]+)(?:[!=<>~ ].*)?$)', x)[0] for x in all)}\n"
                "def some(*names):\n    return [deps[name] for name in names]\n"
                "needs = [deps['six']] + some('numpy')"
            ),
            ("six", "numpy>=1.2"),
        ),
        ("needs = '''\nnumpy\nsix\n'''", ("numpy", "six")),
        ("needs = open('requirements.txt').read().splitlines()", ("numpy>=1.2", "six")),
        ("with open('requirements.txt') as f:\n    needs = f.readlines()", ("numpy>=1.2", "six")),
        (
            (
                "here = os.path.abspath(os.path.dirname(__file__))\n"
                "def read(*parts):\n    with open(os.path.join(here, *parts)) as f:\n        return f.read()\n"
                "needs = [x.strip() for x in read('requirements.txt').split('\\n') if x]"
            ),
            ("numpy>=1.2", "six"),
        ),
        (
            (
                "def load(name='requirements.txt'):\n    with open(name) as f:\n"
                "        return list(map(lambda x: x.strip(), f.readlines()))\nneeds = load()"
            ),
            ("numpy>=1.2", "six"),
        ),
        (
            "from pathlib import Path\nneeds = (Path(__file__).parent / 'requirements.txt').read_text().splitlines()",
            ("numpy>=1.2", "six"),
        ),
        (
            "needs = ['numpy']\nif sys.version_info < (3, 4):\n    needs.append('enum34')\n",
            ("numpy", 'enum34 ; python_version < "3.4"'),
        ),
        (
            "PY2 = sys.version_info[0] == 2\nneeds = ['a'] if PY2 else ['b']",
            (
                'a ; (python_version >= "2" and python_version < "3")',
                'b ; (python_version < "2" or python_version >= "3")',
            ),
        ),
        (
            "needs = []\nif sys.platform.startswith('linux') and platform.machine() == 'x86_64':\n    needs.append('triton')",
            ('triton ; (sys_platform == "linux" and platform_machine == "x86_64")',),
        ),
        (
            "needs = ['numpy<2 ; os_name == \"nt\"']\nif not sys.platform == 'win32':\n    needs += ['pty; extra_x == 1']\n",
            ('numpy<2 ; os_name == "nt"', 'pty ; (extra_x == 1) and sys_platform != "win32"'),
        ),
    ],
)
def test_lists_are_read(before: str, expected: tuple[str, ...]) -> None:
    assert lines(before) == expected


@pytest.mark.parametrize(
    "before",
    [
        "import somewhere\nneeds = somewhere.needs",
        "needs = ['numpy']\nif os.environ.get('WITH_GPU', default()):\n    needs.append('cupy')",
        "needs = ['numpy']\ntry:\n    import torch\nexcept ImportError:\n    needs.append('torch')",
        "needs = []\nfor name in os.listdir('.'):\n    needs.append(name)",
        "needs = open('absent.txt').read().splitlines()",
        "needs = open('/etc/passwd').read().splitlines()",
        "needs = open('../requirements.txt').read().splitlines()",
        "needs = [eval(x) for x in ['1']]",
        "def f():\n    return f()\nneeds = f()",
        "needs = ['x' for _ in range(10 ** 9)]",
    ],
)
def test_what_only_running_would_tell_is_not_known(before: str) -> None:
    assert lines(before) is None


def test_what_is_handed_over_beside_an_unknown_dictionary() -> None:
    """As basicsr does: what is named outright is known all the same."""
    handed = "setup_requires=['cython'], install_requires=['six'], **kwargs"
    found = read_setup(SETUP.format(before="kwargs = os.environ", handed=handed), {})
    assert found is not None
    assert (found.lines("setup_requires"), found.lines("install_requires")) == (
        ("cython",),
        ("six",),
    )
    assert found.lines("extras_require") is None


def test_extras_get_their_markers() -> None:
    before = "extras = {'gpu': ['cupy'], 'old:python_version<\"3.8\"': ['typing'], ':os_name==\"nt\"': ['pywin32']}"
    found = read_setup(SETUP.format(before=before, handed="extras_require=extras"), {})
    assert found is not None
    assert found.extras() == (
        'cupy ; extra == "gpu"',
        'typing ; (python_version<"3.8") and extra == "old"',
        'pywin32 ; (os_name=="nt")',
    )


@pytest.mark.parametrize("text", ["", "print 'Python 2'", "x = 1", "(" * 5000, "\0", "setup = 1"])
def test_files_that_call_no_setup(text: str) -> None:
    assert read_setup(text, {}) is None


VERSIONS = st.tuples(st.integers(2, 3), st.integers(0, 15))
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


@given(VERSIONS, SIGNS, VERSIONS, st.booleans())
def test_a_marker_holds_where_the_condition_does(
    bound: tuple[int, int], sign: str, python: tuple[int, int], turned: bool
) -> None:
    """``sys.version_info[:2]`` against a tuple, from either side, and its opposite."""
    opposite = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
    text = (
        f"{bound} {opposite} sys.version_info[:2]"
        if turned
        else f"sys.version_info[:2] {sign} {bound}"
    )
    condition = condition_of(ast.parse(text, mode="eval").body, lambda _: None)
    assert condition is not None
    environment = {
        "python_version": f"{python[0]}.{python[1]}",
        "python_full_version": f"{python[0]}.{python[1]}.0",
    }
    expected = eval(f"python {sign} bound", {"python": python, "bound": bound})  # noqa: S307  (our own text)
    assert Marker(condition.text).evaluate(environment) is expected
    assert Marker(condition.negated().text).evaluate(environment) is not expected


@given(VERSIONS, SIGNS, st.tuples(st.integers(2, 3), st.integers(0, 15), st.integers(0, 30)))
def test_a_whole_version_against_a_pair(
    bound: tuple[int, int], sign: str, python: tuple[int, int, int]
) -> None:
    """``sys.version_info`` is longer than the pair it is compared with: 3.8.0 is more than (3, 8)."""
    condition = condition_of(
        ast.parse(f"sys.version_info {sign} {bound}", mode="eval").body, lambda _: None
    )
    whole = (*python, "final", 0)
    expected = eval(f"whole {sign} bound", {"whole": whole, "bound": bound})  # noqa: S307  (our own text)
    full = ".".join(map(str, python))
    environment = {"python_version": f"{python[0]}.{python[1]}", "python_full_version": full}
    if sign in ("==", "!="):
        return  # nobody means that a version is never equal to its minor release
    assert condition is not None
    assert Marker(condition.text).evaluate(environment) is expected


def test_reading_leaves_no_trace() -> None:
    before = set(sys.modules)
    read_setup("import antigravity\nraise SystemExit\n", {})
    assert set(sys.modules) == before
