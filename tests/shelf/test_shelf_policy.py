"""A recipe from a shelf cannot read or write outside its build: refused when it is published and when it is taken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import envbuild.app.shelf.publish
import envbuild.shelf.publish
from envbuild.errors import EnvbuildError, UsageError
from envbuild.recipe.model import Source
from envbuild.shelf.policy import refuse_recipe
from envbuild.shelf.publish import EntryDraft, draft_entry
from envbuild.shelf.sanitize import sanitize_text
from tests.shelf.people import RECIPE, Member, member

DIRECT = 'dependencies = ["six==1.16.0"]'
LEADS_OUT: dict[str, tuple[str, str]] = {
    "base is a local image": ('"docker://example.invalid/lab/torch:2.5"', '"images/base.sif"'),
    "base is an absolute path": ('"docker://example.invalid/lab/torch:2.5"', '"/etc/base.sif"'),
    "base is an archive": ('"docker://example.invalid/lab/torch:2.5"', '"oci-archive:/home/you/x.tar"'),
    "base is a layout": ('"docker://example.invalid/lab/torch:2.5"', '"oci:layout"'),
    "base is an engine's": ('"docker://example.invalid/lab/torch:2.5"', '"docker-daemon:torch:2.5"'),
    "base has shell": ('"docker://example.invalid/lab/torch:2.5"', '"docker://example.invalid/$(id):1"'),
    "requirement is a file": (DIRECT, 'dependencies = ["six @ file:///etc/passwd"]'),
    "requirement is a FILE": (DIRECT, 'dependencies = ["six @ FILE:///etc/passwd"]'),
    "requirement is a local checkout": (DIRECT, 'dependencies = ["six @ git+file:///srv/six@abc"]'),
    "requirement goes over ssh": (DIRECT, 'dependencies = ["six @ git+ssh://host/six@abc"]'),
    "requirement over plain http": (DIRECT, 'dependencies = ["six @ http://example.invalid/six.whl"]'),
    "requirement has a password": (DIRECT, 'dependencies = ["six @ https://a:b@example.invalid/six.whl"]'),
    "requirement is this folder": (DIRECT, 'dependencies = ["."]'),
    "requirement is a path": (DIRECT, 'dependencies = ["../six"]'),
    "requirement is an option": (DIRECT, 'dependencies = ["--index-url=x"]'),
    "index is a path": (DIRECT, DIRECT + '\nindexes = ["/srv/wheels"]'),
    "index is a URL of files": (DIRECT, DIRECT + '\nindexes = ["file:///srv/wheels"]'),
    "index is a URL": (DIRECT, DIRECT + '\nindexes = ["https://example.invalid/simple"]'),
    "index has shell": (DIRECT, DIRECT + '\nindexes = ["lab;reboot"]'),
    "script is absolute": ('script = "NAME/check.py"', 'script = "/etc/passwd"'),
    "script leads up": ('script = "NAME/check.py"', 'script = "NAME/../../check.py"'),
    "script has shell": ('script = "NAME/check.py"', 'script = "NAME/$(id).py"'),
    "script is hidden": ('script = "NAME/check.py"', 'script = ".ssh/config"'),
    "files are copied": ("[check]", '[files]\n"/etc/passwd" = "/opt/x"\n[check]'),
    "job reads a path": ("[check]", '[job]\ninputs = ["/home/you/.ssh"]\n[check]'),
    "job reads upwards": ("[check]", '[job]\ninputs = ["data/../../.."]\n[check]'),
    "job reads the home": ("[check]", '[job]\ninputs = ["~/.ssh"]\n[check]'),
    "job writes a path": ("[check]", '[job]\noutput = "/home/you/.bashrc"\n[check]'),
    "job has shell": ("[check]", '[job]\npartition = "gpu; reboot"\n[check]'),
    "job has a newline": ("[check]", '[job]\naccount = "lab\\n#SBATCH --wrap=id"\n[check]'),
    "name has shell": ('name = "NAME"', 'name = "NAME;reboot"'),
    "name leads up": ('name = "NAME"', 'name = "../NAME"'),
    "summary moves the cursor": ("A small recipe for shelves", "good \\u009b31m"),
    "summary turns the text": ("A small recipe for shelves", "good \\u202e reverse"),
    "post hides what it runs": ("[check]", '[system]\npost = ["true \\u202e; rm -rf /"]\n[check]'),
    "post begins a section": ("[check]", '[system]\npost = ["%setup"]\n[check]'),
    "post has a template": ("[check]", '[system]\npost = ["echo {{ secret }}"]\n[check]'),
    "variable has a line break": ("[check]", '[run]\nenvironment = { A = "x\\n%setup" }\n[check]'),
}  # fmt: skip


SCRIPTS_THERE = {"script has shell": "small/$(id).py", "script is hidden": ".ssh/config"}
"""Scripts that exist: one that does not would be refused for that alone."""
SEEN_IN_THE_DEFINITION = ("post begins a section", "post has a template")


def text_of(fault: str) -> str:
    before, after = LEADS_OUT[fault]
    assert before in RECIPE
    return RECIPE.replace(before, after)


def recipe(who: Member, text: str) -> None:
    """Write a recipe with a lock that fits it, as far as it can be read at all."""
    try:
        who.recipe(text=text)
    except EnvbuildError:
        who.recipe()
        (who.folder / "recipes/small.toml").write_text(text.replace("NAME", "small"))


@pytest.mark.parametrize("fault", sorted(LEADS_OUT))
def test_it_is_not_published(fault: str, tmp_path: Path) -> None:
    ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
    recipe(ann, text_of(fault))
    if fault in SCRIPTS_THERE:
        script = ann.folder / "recipes" / SCRIPTS_THERE[fault]
        script.parent.mkdir(exist_ok=True)
        script.touch()
    with pytest.raises(EnvbuildError) as told:
        ann.publish()
    assert "does not exist" not in told.value.what
    assert not ann.library.numbers


@pytest.mark.parametrize(
    "fault", ["summary moves the cursor", "summary turns the text", "post hides what it runs"]
)
def test_what_hides_text_is_refused_for_that(fault: str) -> None:
    with pytest.raises(UsageError, match="hides what a terminal shows"):
        refuse_recipe(text_of(fault), "test")


@pytest.mark.parametrize("fault", sorted(LEADS_OUT))
def test_it_is_not_taken_from_one_who_published_it_all_the_same(fault: str, tmp_path: Path) -> None:
    """Whoever can write to a shelf needs no envbuild for it, so what publishing refuses is refused again."""
    ann, bob = (member(tmp_path / name, str(tmp_path / "shelf")) for name in ("ann", "bob"))
    ann.recipe()
    with pytest.MonkeyPatch.context() as patch:
        for rule in ("refuse_recipe", "refuse_lock"):
            patch.setattr(envbuild.shelf.publish, rule, lambda *_: None)
        forged = text_of(fault).replace("NAME", "small")

        def draft_forged(source: Source, *given: Any, **more: Any) -> EntryDraft:
            return draft_entry(structs.replace(source, text=forged), *given, **more)

        patch.setattr(envbuild.app.shelf.publish, "draft_entry", draft_forged)
        ann.publish()
    with pytest.raises(EnvbuildError) as caught:
        bob.take()
    # two are seen where the definition is written: nobody who may write to a shelf by hand is asked before
    if fault in SEEN_IN_THE_DEFINITION:
        assert caught.value.code == 6
    else:
        assert caught.value.code == 2
        assert re.match(
            r"lab/small@[0-9a-f]{12}, its (lock|recipe, line \d+)|example.invalid/",
            caught.value.where or "",
        )
    assert not (bob.folder / "recipes").exists()
    assert not list((bob.folder / "store").rglob("*.toml"))


@pytest.mark.parametrize(
    "line",
    [
        '"six>=1.16,<2"', '"torch[cuda]~=2.5 ; python_version >= \'3.10\' and sys_platform == \\"linux\\""',
        '"six @ https://example.invalid/six-1.16.0-py2.py3-none-any.whl"',
        '"six @ git+https://example.invalid/six.git@0123456789abcdef0123456789abcdef01234567"', '"a.b-c_d!=1.*"',
    ],
)  # fmt: skip
def test_what_people_write_is_published(line: str) -> None:
    text = RECIPE.replace("NAME", "small").replace('"six==1.16.0"', line)
    refuse_recipe(
        text + '[job]\ngpus = 1\nwalltime = "24:00:00"\nmemory = "32GiB"\npartition = "gpu-a100"\n',
        "test",
    )


CONDA = '[conda]\nchannels = ["conda-forge"]\ndependencies = ["LINE"]\n'


@pytest.mark.parametrize(
    "line",
    [
        "numpy 1.26.*",
        "pytorch >=2.5,<3",
        "pytorch * cuda129*",
        "pytorch[flags=[cuda]]",
        "bioconda::samtools",
        "r-base=4.4",
        "libblas=*=*mkl",
    ],
)
def test_what_people_write_for_conda_is_published(line: str) -> None:
    refuse_recipe(RECIPE.replace("NAME", "small") + CONDA.replace("LINE", line), "test")


@pytest.mark.parametrize(
    "line", ["file:x", "/a", "../a", "a;b", "a $(b)", "https://a.invalid/b", "-x"]
)
def test_what_is_no_plain_match_spec_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="no plain match spec has"):
        refuse_recipe(RECIPE.replace("NAME", "small") + CONDA.replace("LINE", line), "test")


def test_the_shipped_recipes_may_be_published() -> None:
    for path in (Path(__file__).parents[2] / "recipes").glob("*.toml"):
        refuse_recipe(path.read_text("utf-8"), str(path))


def test_a_link_is_not_published(tmp_path: Path) -> None:
    ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
    ann.recipe()
    script = ann.folder / "recipes/small/check.py"
    script.rename(ann.folder / "recipes/small/real.py")
    script.symlink_to("real.py")
    with pytest.raises(UsageError, match="is a link; a shelf takes the file itself"):
        ann.publish()


@given(
    key=st.sampled_from(["account", "partition", "gpu-type", "memory", "walltime", "output"]),
    value=st.one_of(
        st.text(max_size=20).map(lambda text: f"/{text}"),
        st.text(max_size=20).map(lambda text: f"../{text}"),
        st.text(max_size=20).map(lambda text: f"a/../{text}"),
        st.text(max_size=20).map(lambda text: f"file:{text}"),
        st.builds(
            "{}{}{}".format,
            st.text(max_size=9),
            st.sampled_from("`$;&|<>\\\"'\n\r(){}*?!"),
            st.text(max_size=9),
        ),
    ),
)
def test_no_value_is_a_path_a_url_of_a_file_or_shell(key: str, value: str) -> None:
    """The law: outside of what runs inside the image, every value is a plain word."""
    from envbuild.toml import quote

    text = f'[recipe]\nname = "x"\n[base]\nimage = "docker://a.invalid/b:1"\n[job]\n{key} = {quote(value)}\n'
    with pytest.raises(UsageError):
        refuse_recipe(text, "test")


@given(st.text())
def test_text_of_strangers_moves_no_cursor(text: str) -> None:
    assert all(
        char >= " " and not "\x7f" <= char <= "\x9f" and char != "\u202e"
        for char in sanitize_text(text)
    )
