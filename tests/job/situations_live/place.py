"""Where a situation takes place: a project folder at one scheduler, and the list of all situations."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envbuild.run import Command, LocalRunner, Result
from tests.job.conftest import Project

NOTHING = ("--", "sh", "-c", ":")
"""A command that does nothing; the image has a shell, and little else."""


class NotHereError(Exception):
    """A situation that this scheduler does not have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A project folder of one situation, at one scheduler."""

    scheduler: str
    project: Project

    @property
    def folder(self) -> Path:
        return self.project.folder

    def run(
        self, *words: str, timeout: float = 200, variables: dict[str, str] | None = None
    ) -> Result:
        return self.project.run(*words, timeout=timeout, variables=variables)

    def submit(self, *words: str, image: str = "./tiny.sif") -> str:
        result = self.run("submit", image, "--on", self.scheduler, *words)
        assert result.code == 0, result.stderr
        return result.stdout.strip()

    def wait(
        self,
        *words: str,
        image: str = "./tiny.sif",
        code: int | None = 0,
        timeout: float = 200,
    ) -> Result:
        line = ("submit", image, "--on", self.scheduler, "--wait", *words)
        result = self.run(*line, timeout=timeout)
        if code is not None:
            assert result.code == code, result.stdout + result.stderr
        return result

    def shell(
        self, text: str, *words: str, image: str = "./tiny.sif", code: int | None = 0
    ) -> Result:
        return self.wait(*words, "--", "sh", "-c", text, image=image, code=code)

    def refused(self, *words: str, code: int = 2, image: str = "./tiny.sif") -> str:
        result = self.run("submit", image, "--on", self.scheduler, *words)
        assert result.code == code, result.stdout + result.stderr
        assert not list((self.folder / ".envbuild/jobs").glob(f"{self.scheduler}-*.json"))
        return result.stderr

    def client(self, *argv: str) -> str:
        command = Command(
            argv=argv, env=self.project.environment, timeout=20, cwd=self.project.folder
        )
        result = LocalRunner()(command, check=False)
        return result.stdout + result.stderr

    def receipts(self) -> list[dict[str, object]]:
        files = sorted((self.folder / ".envbuild/jobs").glob("*.receipt*.json"))
        return [json.loads(path.read_text()) for path in files]

    def wait_for(self, path: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not (self.folder / path).exists():
            assert time.monotonic() < end, f"{path} did not come"
            time.sleep(0.2)

    def add_to_site(self, text: str) -> None:
        site = self.folder / f"sites/{self.scheduler}.toml"
        site.write_text(site.read_text() + text)
        # naming it by its path says that it is meant
        self.run("job", "./tiny.sif", "--on", f"sites/{site.name}", "--", "true")

    def pick(self, **words: str | None) -> str:
        found = words[self.scheduler]
        if found is None:
            raise NotHereError(f"not a matter of {self.scheduler}")
        return found


SITUATIONS: dict[str, Callable[[Place], None]] = {}


def situation(function: Callable[[Place], None]) -> Callable[[Place], None]:
    SITUATIONS[function.__name__] = function
    return function
