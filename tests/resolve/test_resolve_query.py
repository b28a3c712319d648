from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.resolve.uv.query import (
    QUIET,
    REQUESTS,
    Question,
    building_environment,
    cache_variables,
    read_origins,
    uv_arguments,
    uv_environment,
    write_question,
)
from envbuild.settings import CERTIFICATE_VARIABLES, load_settings
from tests.resolve.conftest import base


def test_arguments_of_a_question(tmp_path: Path) -> None:
    question = Question(requirements=("rich",), as_of="2020-04-08", fresh=("setuptools",))
    facts = base(python="3.6.9", glibc="2.27")
    assert uv_arguments(question, tmp_path / "question-1", facts, "/usr/bin/python3") == (
        *("pip", "compile", "--color", "never", "--no-header", "--no-python-downloads"),
        *("--config-file", "uv.toml", "--python", "/usr/bin/python3", "--python-version", "3.6.9"),
        *("--python-platform", "x86_64-manylinux_2_17"),
        *(
            "--constraints",
            "constraints.txt",
            "--output-file",
            "pylock.toml",
            "--no-build-isolation",
        ),
        *("--find-links", str(tmp_path / "soft"), "--exclude-newer", "2020-04-08"),
        *("--exclude-newer-package", "setuptools=false", "requirements.in"),
    )


def test_question_without_dependencies_soft_stubs_or_date(tmp_path: Path) -> None:
    found = uv_arguments(
        Question(requirements=("rich",), deps=False, soft=False), tmp_path / "q", base(), "python3"
    )
    assert "--no-deps" in found
    assert not {"--find-links", "--exclude-newer", "--only-binary"} & set(found)


def test_a_question_that_asks_the_index_again(tmp_path: Path) -> None:
    indexes = {"default": "https://mirror.invalid/simple"}
    plain = Question(requirements=("rich",))
    given, files = [], []
    for number, fresh in enumerate((False, True)):
        place = tmp_path / f"question-{number}"
        place.mkdir()
        question = replace(plain, refresh=fresh)
        given.append(set(uv_arguments(question, place, base(), "python3")))
        write_question(place, question, hard=tmp_path / "hard", indexes=indexes, static={})
        files.append("cache-control" in (place / "uv.toml").read_text())
    assert given[1] - given[0] == {"--refresh"}
    assert files == [True, False]


def test_files_of_a_question(tmp_path: Path) -> None:
    question = Question(
        requirements=("rich", "numpy"), constraints=("numpy<2",), seed=(("numpy", "1.24.4+base"),)
    )
    indexes = {
        "cu121": "https://user:pass@mirror.invalid/whl/cu121",
        "default": "file:///srv/simple",
    }
    static = {("old", "0.9.0"): ('six; extra == "x"',)}
    write_question(tmp_path, question, hard=Path("/stubs/hard"), indexes=indexes, static=static)
    assert (tmp_path / "uv.toml").read_text() == (
        '[[index]]\nname = "base"\nurl = "/stubs/hard"\nformat = "flat"\n\n'
        '[[index]]\nname = "cu121"\nurl = "https://user:pass@mirror.invalid/whl/cu121"\n'
        'cache-control = { api = "max-age=600", files = "max-age=31536000, immutable" }\n\n'
        '[[index]]\nname = "default"\nurl = "file:///srv/simple"\ndefault = true\n\n'
        '[[dependency-metadata]]\nname = "old"\nversion = "0.9.0"\nrequires-dist = ["six; extra == \\"x\\""]\n'
        'provides-extra = ["x"]\n'
    )
    assert (tmp_path / "requirements.in").read_text() == "rich\nnumpy\n"
    assert (tmp_path / "constraints.txt").read_text() == "numpy<2\n"
    assert 'version = "1.24.4+base"' in (tmp_path / "pylock.toml").read_text()


def test_nothing_of_the_environment_leaks_but_cache_trust_and_credentials() -> None:
    kept = {
        "PATH": "/usr/bin",
        "HTTPS_PROXY": "http://proxy.invalid:3128",
        "SSL_CERT_FILE": "/etc/ca.crt",
        "UV_CACHE_DIR": "/scratch/uv",
        "UV_HTTP_TIMEOUT": "60",
        "UV_INDEX_CU121_PASSWORD": "x",
        "UV_OFFLINE": "1",
    }
    dropped = {
        "UV_CONSTRAINT": "c.txt",
        "UV_INDEX": "https://mirror.invalid",
        "UV_DEFAULT_INDEX": "https://mirror.invalid",
        "UV_FIND_LINKS": "/wheels",
        "UV_EXCLUDE_NEWER": "2020-01-01",
        "UV_PRERELEASE": "allow",
        "PIP_FIND_LINKS": "/wheels",
        "PIP_EXTRA_INDEX_URL": "https://mirror.invalid",
        "VIRTUAL_ENV": "/venv",
        "CONDA_PREFIX": "/opt/conda",
        "PYTHONPATH": "/lib",
        "PYTHONHOME": "/lib",
    }
    own = {**QUIET, "RUST_LOG": REQUESTS, "PIP_CERT": "/etc/ca.crt"}
    assert uv_environment(
        load_settings(kept | dropped | {"HOME": "/nonexistent"})
    ) == kept | own | {"HOME": "/nonexistent"}


@pytest.mark.parametrize("variable", CERTIFICATE_VARIABLES)
def test_uv_trusts_what_envbuild_trusts(variable: str, tmp_path: Path) -> None:
    def environment(**given: str) -> dict[str, str]:
        found = uv_environment(
            load_settings({"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", **given})
        )
        return {name: value for name, value in found.items() if "CERT" in name}

    assert environment() == {"UV_SYSTEM_CERTS": "1"}
    assert environment(UV_SYSTEM_CERTS="0") == {"UV_SYSTEM_CERTS": "0"}
    bundle = tmp_path / "campus.crt"
    found = environment(**{variable: str(bundle)})
    assert found["SSL_CERT_FILE"] == found["PIP_CERT"] == str(bundle)
    bundle.mkdir()
    assert environment(**{variable: str(bundle)}).get("SSL_CERT_DIR") == str(bundle)


def test_index_annotations() -> None:
    text = (
        "rich==14.0\n    # via -r requirements.in\n    # from https://mirror.invalid/simple\n"
        "torch==2.5.1+cu121\n    # from https://****@mirror.invalid/whl/cu121/\n"
    )
    indexes = {
        "cu121": "https://user:pass@mirror.invalid/whl/cu121",
        "default": "https://mirror.invalid/simple",
    }
    assert read_origins(text, indexes) == {"torch": "cu121"}


def test_a_cache_without_hard_links_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over sshfs: uv could not put its lock in place."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    usual = load_settings({"HOME": str(tmp_path / "usual")}, cwd=tmp_path)
    assert cache_variables(usual) == {}
    monkeypatch.setattr(os, "link", refuse)
    settings = load_settings(
        {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}, cwd=tmp_path
    )
    other = Path(uv_environment(settings)["UV_CACHE_DIR"])
    assert (other.parent, other.stat().st_mode & 0o777) == (tmp_path, 0o700)
    assert building_environment(settings, tmp_path)["UV_CACHE_DIR"] == str(other)
    other.chmod(0o777)
    assert cache_variables(settings) == {}, "it may be somebody else's"
    other.chmod(0o700)
    assert list((tmp_path / "home/.cache/uv").iterdir()) == []
    named = {**settings.environment, "UV_CACHE_DIR": str(tmp_path / "named")}
    assert uv_environment(load_settings(named, cwd=tmp_path))["UV_CACHE_DIR"] == str(other)
