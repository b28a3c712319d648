"""Where a situation takes place: a project folder at one scheduler, and the list of all situations."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envbuild.run import Command, LocalRunner, Result
from tests.job.conftest import Project
from tests.support import wait_until

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
    def by_root(self) -> bool:
        """Whether its jobs are root's."""
        return os.geteuid() == 0 and not self.project.prefix

    @property
    def folder(self) -> Path:
        return self.project.folder

    def run(
        self, *words: str, timeout: float = 200, variables: dict[str, str] | None = None
    ) -> Result:
        return self.project.run(*words, timeout=timeout, variables=variables)

    def succeed(
        self, *words: str, timeout: float = 200, variables: dict[str, str] | None = None
    ) -> Result:
        return self.project.succeed(*words, timeout=timeout, variables=variables)

    def submit(self, *words: str, image: str = "./tiny.sif") -> str:
        return self.succeed("submit", image, "--on", self.scheduler, *words).stdout.strip()

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

    def wait_for(self, path: str) -> None:
        wait_until((self.folder / path).exists, f"{path} is there")

    def state(self, job: str) -> tuple[str, str]:
        """Return the word and the detail that `envbuild status` tells of a job."""
        [row] = json.loads(self.run("status", job, "--json").stdout)
        return row["state"], row["detail"]

    def wait_for_state(self, job: str, word: str, detail: str = "") -> None:
        """Wait until a job's state is ``word``, and its detail holds the pattern."""

        def tell() -> bool:
            state, told = self.state(job)
            return state == word and re.search(detail, told) is not None

        wait_until(tell, f"job {job} is {word} {detail}")

    def start_at_once(self, job: str) -> None:
        """Spare the two minutes that Slurm lets a job wait that was put back."""
        asked = ("squeue", "-h", "-j", job, "-o", "%T")
        wait_until(lambda: "PENDING" in self.client(*asked), f"job {job} was put back")
        # slurmd clears the first run away; a second one in the same second loses its script with it
        time.sleep(4)
        self.client("scontrol", "update", f"jobid={job}", "starttime=now")

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
