"""A home folder and an environment that no image should listen to, to see which it does."""

from __future__ import annotations

from pathlib import Path

USER_MODULE, PATH_MODULE = "envbuild_poison_user", "envbuild_poison_path"
PYTHONS = tuple(f"python3.{minor}" for minor in range(6, 16))
CONDA = ("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV")


def poison_home(folder: Path) -> dict[str, str]:
    """Fill a folder with what a user's home may hold; return the environment of such a user."""
    for python in PYTHONS:
        packages = folder / ".local/lib" / python / "site-packages"
        packages.mkdir(parents=True)
        (packages / f"{USER_MODULE}.py").touch()
    path = folder / "pythonpath"
    path.mkdir()
    (path / f"{PATH_MODULE}.py").touch()
    values = {
        "HOME": str(folder),
        "PYTHONPATH": str(path),
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "LD_PRELOAD": "",
        **{name: str(folder / "miniconda3") for name in CONDA},
    }
    # both runtimes take the home folder from the user database unless told
    return {**values, "APPTAINER_HOME": str(folder), "SINGULARITY_HOME": str(folder)}
