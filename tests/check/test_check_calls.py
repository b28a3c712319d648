"""Calls of the project that do not fit, and attributes that are gone, without a call; and what must not be accused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.check.tree import Tree, failures, make_recipe

PARTS = '''\
import abc, contextlib, functools, json
from typing import NoReturn, TYPE_CHECKING, overload
if TYPE_CHECKING:
    from late import Late
class Kind:
    size: int
    def __init__(self, rate, *, deep=False):
        self.rate = rate
        self._set_up()
    def _set_up(self):
        self.shown = lambda: 1
    def run(self, path, times=1):
        return self
    def gone(self):
        """Say it."""
        raise NotImplementedError("gone() was removed in release 2")
    def below(self):
        raise NotImplementedError
class Deeper(Kind):
    def below(self, more):
        return more
    def dig(self):
        return 1
class Wider(Kind):
    def __init__(self, rate, wide=1, **rest):
        super().__init__(rate, **rest)
class Widest(Wider):
    def __init__(self, *rest, **options):
        options["wide"] = 2
        super().__init__(*rest, **options)
class Lenient(Kind):
    def __init__(self, rate, **rest):
        rest = {name: one for name, one in rest.items() if name == "deep"}
        super().__init__(rate, **rest)
class Perhaps(Kind):
    def __init__(self, rate=1, **rest):
        if rate != 1:
            super().__init__(rate, **rest)
class Any:
    def __getattr__(self, name):
        return lambda *rest: name
class Store:
    own = len
    def __getattr__(self, name) -> "parts.Shelf[Kind]":
        return Shelf()
class Shelf:
    def __getattr__(self, name) -> "Shelf":
        return self
    def __call__(self, *rest) -> NoReturn:
        raise TypeError("say count_all")
    def count_all(self):
        return 1
class Named:
    def __init__(self, **options):
        self.__dict__.update(options)
class Listed(Kind):
    pass
class Set:
    def __init__(self):
        for name in ("first", "second"):
            setattr(self, name, len)
class Chosen:
    def __new__(cls, *rest):
        return Kind(1)
class Meta(type):
    def __call__(cls, *rest):
        return Kind(1)
class Made(metaclass=Meta):
    def __init__(self, one):
        pass
class Removed:
    def __init__(self, *rest, **options):
        raise ImportError("Removed has been moved to other")
def make(rate) -> Kind:
    return Deeper(rate)
def open_kind(rate) -> "Kind | Any":
    return Any()
def take_kind(rate) -> "Kind | Listed | None":
    return Kind(1)
@contextlib.contextmanager
def held() -> "Kind":
    yield Kind(1)
def keep(function):
    @functools.wraps(function)
    def inner(*rest, **options):
        print("before")
        return function(*rest, **options)
    return inner
def note(function):
    @functools.wraps(function)
    def inner(*rest, **options):
        shown = dict(options)
        shown.pop("own", None)
        return function(*rest, **options)
    return inner
def rename(function):
    @functools.wraps(function)
    def inner(*rest, **options):
        if "old" in options:
            options["new"] = options.pop("old")
        return function(*rest, **options)
    return inner
def by_name(function):
    @functools.wraps(function)
    def inner(*rest, **options):
        options.update(zip(("one", "two"), rest))
        return function(**options)
    return inner
def pick(function):
    @functools.wraps(function)
    def inner(*rest, **options):
        return function(*rest, **{key: options[key] for key in options if key == "one"})
    return inner
def retry(function):
    @functools.wraps(function)
    def inner(*rest, **options):
        try:
            return function(*rest, **options)
        except TypeError:
            return None
    return inner
def give(function):
    @functools.wraps(function)
    def inner(*rest, **options):
        return function("own", *rest, **options)
    return inner
def lie(function):
    def inner(*rest, **options):
        return len(rest)
    return functools.wraps(function)(inner)
@keep
def kept(one, *, two=2):
    return one
@note
def noted(one):
    return one
@rename
def renamed(one, new=1):
    return one
@by_name
def named(*, one, two=1):
    return one
@pick
def picked(one):
    return one
@retry
def retried(one):
    return one
@give
def given(own, one):
    return one
@lie
def lied(one):
    return one
@overload
def many(one: int) -> int: ...
@overload
def many(one: str, two: int) -> int: ...
def many(one, *rest):
    return one
def free(*rest, **options):
    return rest
def plain(one, two=2, *, three=3):
    return one
def stub(*rest):
    raise RuntimeError("stub was removed")
class Old:
    def __getattr__(self, name):
        return self
    def __call__(self, *rest, **options):
        raise RuntimeError("no longer there")
    def fit(self, one):
        return one
old = Old()
def stop(*rest):
    raise KeyboardInterrupt
def end_of_life(*rest):
    raise DeprecationWarning(rest)
def told():
    """Say it."""
    end_of_life("told")
    return 1
def say_gone(name, deep=False):
    lines = [name]
    if deep:
        raise AttributeError("\\n".join(lines))
    else:
        raise AttributeError(name)
def gone_load(text):
    say_gone("gone_load")
def say_maybe(name):
    if name == "b":
        return
    raise AttributeError(name)
def maybe_load(text):
    say_maybe("b")
def rate(one, way="a", *, other=None):
    one = str(one)
    if way not in ("a", "b"):
        raise ValueError("way %s is unknown" % way)
    if one == "late":
        raise ValueError("never told")
    kept = one
    if kept == "late":
        raise ValueError("never told")
    if other is not None:
        return 1
    if way == "b":
        raise ValueError("too late")
class Trainer:
    def __init__(self, one, way="a"):
        self.one = str(one)
        self.way = way
        if self.one == "late":
            raise ValueError("never told")
        if self.way != "a":
            raise ValueError("not by way " + self.way)
    def fit(self, path):
        return self._fit(path)
    def _fit(self, path):
        if path:
            self.path = path
        return functools.lost(path)
    def try_fit(self, path):
        try:
            return functools.lost(path)
        except AttributeError:
            return None
    def fit_maybe(self, path):
        if path:
            return 1
        return functools.lost(path)
class Parts:
    def __getitem__(self, number):
        return number
class Opened:
    def __enter__(self):
        return self
    def __exit__(self, *rest):
        return None
    def count(self, most=None):
        if most:
            raise DeprecationWarning("most has been deprecated")
        return 1
class Lent:
    def __enter__(self):
        return Kind(1)
    def __exit__(self, *rest):
        return None
class Outside(Kind):
    def __init__(self, rate):
        super().__init__(rate, app=rate)
class Beyond(Kind):
    def __init__(self, rate):
        super(Kind, self).__init__()
class OldWay(Kind):
    def __init__(self, rate):
        super(OldWay, self).__init__(rate, app=rate)
class Careful(Kind):
    def __init__(self, rate):
        try:
            super().__init__(rate, app=rate)
        except TypeError:
            super().__init__(rate)
        if rate > 9:
            super().__init__(rate, app=rate)
def pass_on(one):
    return plain(one, four=4)
def pass_on_own(one, plain):
    return plain(one, four=4)
def read_list(path, deep=False):
    with open(path) as file:
        return sort_list(file, deep)
def sort_list(lines, deep):
    found = json.JSONDecoder(object_hook=len)
    found.old_decode(lines)
def load_part(one):
    return bring_part()
def bring_part():
    from inspect import getargs_gone
gone = None
here = 1
def draw_page(one):
    assert gone is not None, "gone must be installed to draw"
def draw_other(one, gone):
    assert gone is not None and here is not None
    assert here is not None
def load_maybe(one):
    try:
        return bring_part()
    except Exception:
        return None
def load_by_release(one):
    if one:
        return bring_part()
    return [bring_part() for _ in one] and (one or bring_part())
def load_late():
    yield bring_part()
class Decoder(json.JSONDecoder):
    def decode(self, text):
        return super().old_decode(text)
    def open(self, text):
        return self.old_open(text)
    def close(self):
        return self.closed()
class Closed(Decoder):
    closed = len
class JSONDecoder:
    pass
def take_decoder(one) -> "json.JSONDecoder":
    return json.JSONDecoder()
def get_path(name):
    said = f"the maps were removed: {name if name else 'all'}"
    if name in ("land", "sea"):
        raise AttributeError(said)
    return name
class Sort(abc.ABC):
    pass
def choose(one, deep=False):
    if deep:
        import gone_part
    return one
'''
SICK = {
    "a keyword that is gone": (
        "parts.plain(1, four=4)",
        r"plain\(\) got an unexpected keyword argument 'four'",
    ),
    "by position what became keyword only": (
        "parts.plain(1, 2, 3)",
        r"plain\(\) too many positional",
    ),
    "an argument that is new": ("parts.plain()", r"plain\(\) missing a required argument: 'one'"),
    "a keyword of a constructor": (
        "parts.Kind(1, wide=True)",
        r"Kind\(\) got an unexpected keyword argument 'wide'",
    ),
    "a keyword that a class above lacks": (
        "parts.Widest(1, wide=True, old=1)",
        r"Widest\(\) got an unexpected keyword argument 'old'",
    ),
    "through a decorator that changes nothing": (
        "parts.kept(1, three=3)",
        r"kept\(\) got an unexpected keyword argument 'three'",
    ),
    "through a decorator that takes names out of a copy": (
        "parts.noted(1, own=3)",
        "argument 'own'",
    ),
    "a name through a decorator that only adds": ("parts.named(1, three=3)", r"argument 'three'"),
    "a method that is gone": (
        "kind = parts.Kind(1)\nkind.old()",
        "'Kind' object has no attribute 'old'",
    ),
    "a method that is gone, in a function": (
        "def main():\n    kind = parts.Kind(1)\n    kind.old()\n\nif __name__ == '__main__':\n    main()",
        "'Kind' object has no attribute 'old'",
    ),
    "an attribute that is gone": (
        "kind = parts.Kind(1)\nprint(kind.old)",
        "has no attribute 'old'",
    ),
    "an argument of a method": (
        "kind = parts.Kind(1)\nkind.run('a', 1, 2)",
        r"run\(\) too many positional",
    ),
    "what an object answers, and takes no call": (
        "store = parts.Store()\nbooks = store.books\nprint(books.count())",
        "'Shelf' object is not callable: it has no method 'count'",
    ),
    "what no class below has": (
        "kind = parts.make(1)\nkind.old()",
        "'Kind' object has no attribute 'old'",
    ),
    "what none of two classes has": (
        "kind = parts.take_kind(1)\nkind.old()",
        "'Kind' object has no attribute 'old'",
    ),
    "a method that only raises": (
        "kind = parts.Kind(1)\nkind.gone()",
        "nothing but raise NotImplementedError",
    ),
    "a constructor that only raises": (
        "parts.Removed(1, two=2)",
        "nothing but raise ImportError: Removed has been moved to other",
    ),
    "what a function says of a value that it refuses": (
        "parts.get_path('land')",
        r"get_path\(\) refuses its arguments: the maps were removed: land",
    ),
    "a function that only raises": ("parts.stub()", "nothing but raise RuntimeError"),
    "an object that only raises": (
        "parts.old.name.create(1, two=2)",
        "nothing but raise RuntimeError",
    ),
    "a method of an object": ("parts.old.fit(1, 2)", r"fit\(\) too many positional"),
    "what a chosen argument needs": ("parts.choose(1, deep=True)", "No module named 'gone_part'"),
    "what begins with a function that only raises": (
        "parts.told()",
        "nothing but raise DeprecationWarning",
    ),
    "what begins with a function that ends by raising": (
        "parts.gone_load('a')",
        "nothing but raise AttributeError",
    ),
    "in a class that nothing names": (
        "class Page:\n    one = parts.plain(1, four=4)",
        "argument 'four'",
    ),
    "a value that a function refuses": (
        "parts.rate(1, way='c')",
        r"rate\(\) refuses its arguments: way c is unknown",
    ),
    "a value by position that a function refuses": ("parts.rate(1, 'c')", "way c is unknown"),
    "a value that an object keeps and refuses": ("parts.Trainer('late', way='c')", "not by way c"),
    "what a method of the object reads, and is gone": (
        "trainer = parts.Trainer(1)\ntrainer.fit('a')",
        r"Trainer._fit\(\) of parts ends: module 'functools' has no attribute 'lost'",
    ),
    "an object that is no list": (
        "kind = parts.Kind(1)\nfor one in kind:\n    print(one)",
        "'Kind' object is not iterable",
    ),
    "an object in a comprehension": (
        "kind = parts.Kind(1)\nprint([one for one in kind])",
        "is not iterable",
    ),
    "a part of an object": ("kind = parts.Kind(1)\nprint(kind[0])", "is not subscriptable"),
    "the length of an object": ("kind = parts.Kind(1)\nprint(len(kind))", r"has no len\(\)"),
    "below with": ("with open('a') as file:\n    parts.plain(1, four=4)", "argument 'four'"),
    "below an error that is another one": (
        "try:\n    parts.plain(1, four=4)\nexcept FileNotFoundError:\n    pass",
        "argument 'four'",
    ),
    "in a condition": ("if parts.plain(1, four=4):\n    pass", "argument 'four'"),
    "what a class gives the one above, which takes it no more": (
        "parts.Outside(1)",
        r"Outside.__init__\(\) of parts calls Kind.__init__\(\) got an unexpected keyword argument 'app'",
    ),
    "what a class gives the one above, which takes it no more in the old way": (
        "parts.OldWay(1)",
        r"OldWay.__init__\(\) of parts calls Kind.__init__\(\) got an unexpected keyword argument 'app'",
    ),
    "what a function gives another one, which takes it no more": (
        "parts.pass_on(1)",
        r"pass_on\(\) of parts calls plain\(\) got an unexpected keyword argument 'four'",
    ),
    "a method that an object of another package lacks, two functions below": (
        "parts.read_list('a')",
        r"sort_list\(\) of parts ends: 'JSONDecoder' object has no attribute 'old_decode'",
    ),
    "a method that the class above gives no more": (
        "parts.Decoder().decode('a')",
        r"decode\(\) of parts ends: 'Decoder' object has no attribute 'old_decode'",
    ),
    "a method of its own that came from the class above": (
        "parts.Decoder().open('a')",
        "'Decoder' object has no attribute 'old_open'",
    ),
    "an import that stands in a function below": (
        "parts.load_part(1)",
        r"bring_part\(\) of parts imports: module 'inspect' has no attribute 'getargs_gone'",
    ),
    "what a package lacks and asserts": (
        "parts.draw_page(1)",
        r"draw_page\(\) of parts asserts: gone must be installed to draw",
    ),
    "what a with statement opens": (
        "with parts.Opened() as one:\n    one.old()",
        "'Opened' object has no attribute 'old'",
    ),
    "a number that a method refuses": (
        "with parts.Opened() as one:\n    pass\none.count(most=511)",
        r"count\(\) refuses its arguments: most has been deprecated",
    ),
    "a constant that a function refuses": (
        "WAY = 'c'\ndef main():\n    parts.rate(1, way=WAY)\nmain()",
        "way c is unknown",
    ),
    "an argument that no class below takes": (
        "kind = parts.make(1)\nkind.run('a', late=True)",
        r"run\(\) got an unexpected keyword argument 'late'",
    ),
    "what each call gives a function of the project": (
        "def write(kind, path):\n    kind.run(path, late=True)\n\nkept = parts.Kind(1)\nwrite(kept, 'a')\nwrite(path='b', kind=kept)",
        r"run\(\) got an unexpected keyword argument 'late'",
    ),
}
HEALTHY = {
    "arguments that fit": "parts.plain(1, 2, three=3)",
    "arguments that only a run shows": "parts.plain(*[1], **{'four': 4})",
    "any arguments": "parts.free(1, 2, four=4)",
    "an object that answers to any name": "parts.old.name\nparts.old.fit(1)",
    "an attribute that a class may get late": "print(parts.Kind.old)",
    "overloads": "parts.many('a', 1)",
    "a decorator that renames": "parts.renamed(1, old=2)",
    "a decorator that takes by position": "parts.named(1, 2)",
    "a decorator that picks": "parts.picked(1, four=4)",
    "a decorator that catches": "parts.retried(1, 2)",
    "a decorator that gives an argument": "parts.given(1)",
    "a decorator that is another function": "parts.lied(1, 2, 3)",
    "what an object sets itself": "kind = parts.Kind(1)\nkind.shown()\nprint(kind.rate, kind.size)",
    "a class that answers to any name": "kind = parts.Any()\nkind.old(1)",
    "what an object answers": "books = parts.Store().books\nprint(books.count_all(), books.count)",
    "what an object has itself": "store = parts.Store()\nprint(store.own('a'))",
    "keywords of two classes": "parts.Wider(1, wide=True, deep=True)",
    "a class that leaves keywords out": "parts.Lenient(1, old=1)",
    "a class that may ask no other": "parts.Perhaps(old=1)",
    "a class that takes names": "kind = parts.Named(old=len)\nkind.old('a')",
    "a class that sets names of a list": "kind = parts.Set()\nkind.first('a')",
    "a class that makes another": "kind = parts.Chosen(1, 2)\nkind.run('a')",
    "a class whose class makes another": "kind = parts.Made(1, 2)\nkind.run('a')",
    "a method of a class below": "kind = parts.make(1)\nkind.dig()\nkind.below(1)",
    "one of two classes": "kind = parts.open_kind(1)\nkind.old()",
    "what begins with a function that may return": "parts.maybe_load('a')",
    "in a method of a class that nothing names": "class Page:\n    def run(self):\n        parts.plain(1, four=4)",
    "what is held": "kind = parts.held()\nkind.old()",
    "a name bound twice": "kind = parts.Kind(1)\nkind = parts.Any()\nkind.old()",
    "a name of another scope": "kind = parts.Kind(1)\ndef show(kind):\n    kind.old()\nshow(parts.Any())",
    "a method that the project adds": "parts.Kind.old = print\nkind = parts.Kind(1)\nkind.old()",
    "a method that the project asks for": "kind = parts.Kind(1)\nif hasattr(kind, 'old'):\n    kind.old()",
    "a function that stops": "parts.stop()",
    "a method that a class below adds": "parts.Closed().close()",
    "what a function below catches": "parts.load_maybe(1)",
    "what a function below may not run": "parts.load_by_release(1)",
    "what runs when it is asked for": "parts.load_late()",
    "by release": (
        "def run():\n    if parts.__version__ < '2':\n        return parts.plain(1, four=4)\n"
        "    return parts.plain(1, five=5)\nrun()"
    ),
    "tried first": "try:\n    parts.plain(1, four=4)\nexcept TypeError:\n    parts.plain(1)",
    "suppressed": "import contextlib\nwith contextlib.suppress(TypeError):\n    parts.plain(1, four=4)",
    "a value that a function takes": "parts.rate(1, way='b', other=2)\nparts.rate('late')\nparts.Trainer('late')",
    "a value that only a run shows": "parts.rate(1, way=str(2))",
    "what a function tries to read": "trainer = parts.Trainer(1)\ntrainer.try_fit('a')\ntrainer.fit_maybe('a')",
    "an object of numbered parts": "found = parts.Parts()\nfor one in found:\n    print(one, found[0])",
    "what is not chosen": "parts.choose(1, deep=False)",
    "what a class tries to give the one above": "parts.Careful(1)",
    "what a class gives the one above its parent": "parts.Beyond(1)",
    "what a function of the same name is given": "parts.pass_on_own(1, len)",
    "a class of another package": "found = parts.take_decoder(1)\nfound.decode('a')",
    "a method of a class's class": "parts.Sort.register(list)",
    "what a with statement lends": "with parts.Lent() as one:\n    one.run('a')",
    "a number that a method takes": "with parts.Opened() as one:\n    one.count(most=0)",
    "a constant that is bound twice": "WAY = 'c'\nWAY = 'b'\nparts.rate(1, WAY, other=1)",
    "an argument of a class below": "kind = parts.make(1)\nkind.dig()\nkind.below('a')",
    "what a class above only raises": "kind = parts.make(1)\nkind.gone()",
    "what only some calls give a function": (
        "def write(kind):\n    kind.old()\nwrite(parts.Kind(1))\nwrite(parts.Any())"
    ),
    "what a function asserts of its own names": "parts.draw_other(1, None)",
    "what calls may give a function": (
        "def write(kind):\n    kind.old()\nif len('a'):\n    write(parts.Kind(1))"
    ),
    "a method called like a function": (
        "def write(kind):\n    kind.run('a')\nclass Page:\n    def write(self, kind):\n        kind.old()\n"
        "write(parts.Kind(1))\nPage().write(parts.Any())"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("calls") / "image")
    return tree.install("parts", "2", {"parts.py": f"{PARTS}__version__ = '2'\n"})


def judge(image: Tree, folder: Path, code: str) -> dict[str, str]:
    (folder / "train.py").write_text(f"import parts\n{code}\n")
    return failures(image.check(make_recipe("parts"), project=folder))


@pytest.mark.parametrize("name", SICK)
def test_what_does_not_fit_is_told_without_a_call(name: str, image: Tree, tmp_path: Path) -> None:
    code, words = SICK[name]
    found = judge(image, tmp_path, code)
    assert set(found) == {"project-imports"}
    assert re.search(words, found["project-imports"])


@pytest.mark.parametrize("name", HEALTHY)
def test_what_may_fit_is_not_accused(name: str, image: Tree, tmp_path: Path) -> None:
    assert judge(image, tmp_path, HEALTHY[name]) == {}


def test_an_own_part_that_says_what_it_lacks_is_told(tmp_path: Path) -> None:
    files = {
        "clouds/__init__.py": "def save(one):\n    from .driver import open_driver\n    return open_driver(one)\n",
        "clouds/driver.py": "raise RuntimeError('To save pages you need rain')\n",
    }
    tree = Tree(tmp_path / "image").install("clouds", "1", files)
    (tmp_path / "train.py").write_text("import clouds\nclouds.save(1)\n")
    found = failures(tree.check(make_recipe("clouds"), project=tmp_path))
    assert "save() of clouds imports: To save pages you need rain" in found["project-imports"]


ARRAYS = """\
class ndarray:
    def __init__(self, size):
        self.size = size
    @property
    def ptp(self):
        raise AttributeError("`ptp` was removed from the ndarray class in NumPy 2.0.")
def zeros(shape):
    return ndarray(shape)
"""


@pytest.mark.parametrize(
    ("name", "words"), [("ptp", "`ptp` was removed"), ("size", ""), ("old", "no attribute 'old'")]
)
def test_an_array_is_asked_for_its_names(tmp_path: Path, name: str, words: str) -> None:
    tree = Tree(tmp_path / "image").install("numpy", "2", {"numpy.py": ARRAYS})
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(
        f"import numpy as np\nkept = np.zeros(3)\nprint(kept.{name})\n"
    )
    report = tree.check(make_recipe("numpy"), project=project)
    hints = [one.hint or "" for one in report.findings if one.outcome == "failed"]
    assert words in failures(report).get("project-imports", "") if words else not failures(report)
    assert all("change that line of the project, or bound numpy" in hint for hint in hints)


FORMS = "from fastapi import FastAPI, Form\nname = Form()\n"
PARSERS = (
    "class Registry:\n    def lookup(self, name):\n        return name == 'html.parser' or None\n"
    "builder_registry = Registry()\n"
)
PAGES = "import jinja2\npages = jinja2.Environment(extensions=['{}'])\n"
EXTENSIONS = "def import_string(name):\n    raise AttributeError(name + ' is gone')\n"
GAMES = """\
class Pole:
    pass
class Old:
    def seed(self, number):
        return number
class Spec:
    def __init__(self, name):
        self.entry_point = "gym:" + name
def spec(name):
    return Spec(name)
def make(name):
    return globals()[name]()
"""
PLAY = "import gym\ngame = gym.make({})\ngame.seed(0)\n"
WORDS = "__version__ = '3.7'\nclass English:\n    def create_pipe(self, name):\n        return print\n    def add_pipe(self, name):\n        pass\n"
PIPE = "import spacy\nnlp = spacy.English()\nnlp.add_pipe({})\n"
COPY = "import numpy as np\nkept = np.array({}, copy=False)\n"
ARRAY = "def array(given, copy=True):\n    if not copy and isinstance(given, list):\n        raise ValueError('Unable to avoid copy')\n"
OTHERS = (
    ("gym", "0.26", GAMES),
    ("spacy", "3.7", WORDS),
    ("numpy", "2", ARRAY),
)
SOUP = "from bs4 import BeautifulSoup\nsoup = BeautifulSoup('<p>', {})\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (FORMS, "FastAPI wants python-multipart"),
        (FORMS.replace("name =", "name = os.environ.get('FORM') or"), ""),
        (SOUP.format("'lxml'"), "parses by lxml, which is not in the image"),
        (SOUP.format("features='lxml'"), "parses by lxml"),
        (SOUP.format("'html.parser'"), ""),
        (PAGES.format("jinja2.ext.autoescape"), "jinja2.ext.autoescape is gone"),
        (PAGES.format("own.Extension"), ""),
        (SOUP.format("os.name"), ""),
        (PLAY.format("'Pole'"), r"seed() of Pole, which Gym 0.26 has no more"),
        (PLAY.format("'Old'"), ""),
        (PLAY.format("os.name"), ""),
        (PIPE.format("nlp.create_pipe('a')"), "takes the name of a component"),
        (PIPE.format("'sentencizer'"), ""),
        (COPY.format("[1, 2.5]"), "Unable to avoid copy"),
        (COPY.format("os.environ"), ""),
        (
            "from bs4 import BeautifulSoup\ntry:\n    BeautifulSoup('', 'lxml')\nexcept ValueError:\n    pass\n",
            "",
        ),
    ],
)
def test_what_a_call_names_has_to_be_there(tmp_path: Path, code: str, words: str) -> None:
    tree = Tree(tmp_path / "image")
    tree.install(
        "fastapi", "1", {"fastapi.py": "def Form(*rest):\n    return rest\nFastAPI = Form\n"}
    )
    soup = "class BeautifulSoup:\n    def __init__(self, text, features=None):\n        pass\n"
    tree.install("beautifulsoup4", "4", {"bs4/__init__.py": soup, "bs4/builder.py": PARSERS})
    pages = "class Environment:\n    def __init__(self, extensions=()):\n        pass\n"
    tree.install("jinja2", "3.1", {"jinja2/__init__.py": pages, "jinja2/utils.py": EXTENSIONS})
    for name, version, text in OTHERS:
        if f"import {name}" in code:
            tree.install(name, version, {f"{name}.py": text})
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(f"import os\n{code}")
    found = failures(tree.check(make_recipe("fastapi", "beautifulsoup4"), project=project))
    assert words in found.get("entry-points", "") if words else found == {}
