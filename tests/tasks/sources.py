"""Source distributions of others, fetched when a test wants them and kept outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "django-pgjobs-tests"
LONGEST = 280  # seconds for one that is not there yet


def fetch(name: str, version: str) -> Path:
    """Return the unpacked source distribution; skip the test where it cannot be fetched."""
    unpacked = FOLDER / f"{name.replace('-', '_')}-{version}"
    if unpacked.is_dir():
        return unpacked
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
        try:
            subprocess.run(
                [*command, "--dest", folder, f"{name}=={version}"],
                check=True,
                capture_output=True,
                timeout=LONGEST,
            )
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"The sources of {name} {version} cannot be fetched: {error}")
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        [top] = [path for path in Path(folder).iterdir() if path.is_dir()]
        top.rename(unpacked)
    return unpacked
