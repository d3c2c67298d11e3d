"""What the timer's unit says of the shell that installs it; systemctl alone is a stand-in that agrees to everything."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.support.laptop import Laptop

MARKER = "kedge-marker-in-a-unit"
KEPT = {"AWS_PROFILE": "work", "AWS_ENDPOINT_URL_S3": "https://s3.example.org", "KEDGE_SPACES_BUCKET": "mine"}
HELD = ("HOME_PASSWORD", "PATH_OF_ONE", "AWS_SECRET_ACCESS_KEY", "AWS_CREDENTIALS", "KEDGE_AMD_DELETE_TOKEN", "OTHER")
STORE_KEYS = ("KEDGE_STORE_ACCESS_KEY_ID", "KEDGE_STORE_SECRET_ACCESS_KEY")


def test_the_timers_unit_has_places_and_no_keys(laptop: Laptop, tmp_path: Path) -> None:
    """A unit's file is read by more programs than its owner's, and by backups: names are let through one by one."""
    for name in ("systemctl", "loginctl"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    env = {name: f"{MARKER}-{name}" for name in (*HELD, *STORE_KEYS)} | KEPT
    paths = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    laptop.kedge("recover", "--install", env=env | paths)
    service = tmp_path / "config/systemd/user/kedge-recover.service"
    text = service.read_text()
    assert MARKER not in text
    assert all(f"{name}={value}" in text for name, value in KEPT.items())
    assert f"KEDGE_STATE_DIR={laptop.state}" in text
    assert stat.S_IMODE(service.stat().st_mode) == 0o600
