"""A certificate of a test's own, made by openssl."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate and its key in this folder, for the folder's owner; return their paths."""
    key, certificate = folder / "server.key", folder / "server.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"]
    subprocess.run([*command, *files], check=True, capture_output=True)
    key.chmod(0o600)
    owner = folder.stat()
    for path in (key, certificate):
        os.chown(path, owner.st_uid, owner.st_gid)
    return certificate, key
