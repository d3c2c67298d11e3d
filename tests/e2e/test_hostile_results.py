"""An untrusted job, from its launch to its results at home, with the real program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.laptop import Laptop

JOB = """
    name: hostile
    run: |
      cd "$KEDGE_OUTPUT_DIR"
      echo weights > real.bin
      ln -s {secret} model.bin
      mkdir -p d1/d2 && ln -s n/../../.. d1/d2/a && ln -s ../.. d1/d2/n
      git init -q repo && git -C repo config core.fsmonitor 'touch {marker}; false'
    outputs: [results]
    deadline: 10m
    supervisor: {{kind: nohup, restarts: 0}}
"""


def test_a_hostile_jobs_results_lead_nowhere_and_the_user_is_told(laptop: Laptop, tmp_path: Path) -> None:
    """No link leaves the results, and git finds no repository, from the machine or the store; both are reported."""
    secret, marker = tmp_path / "id_rsa", tmp_path / "git ran"
    secret.write_text("the laptop's own key")
    laptop.write_job(JOB.format(secret=secret, marker=marker))
    said = laptop.kedge("launch", "--yes")
    home = next((laptop.home / "kedge-results").glob("hostile-*"))
    laptop.kedge("fetch", home.name, "--to", str(tmp_path / "from the store"))
    for results in (home, tmp_path / "from the store"):
        assert (results / "output/real.bin").read_text() == "weights\n"
        assert [path for path in results.rglob("*") if not path.resolve().is_relative_to(results)] == []
        assert not (results / "output/model.bin").is_symlink()
        assert (results / "output/repo/.git/HEAD.kedge-renamed").exists()
        subprocess.run(["git", "status"], cwd=results / "output/repo", capture_output=True, check=False)
    assert not marker.exists()
    assert "a link that leaves the results" in said
    assert "renamed, so that git and Mercurial run nothing" in said
    laptop.write_job("name: next\nrun: ls\ndata: {in: kedge-results}\n")
    laptop.kedge("plan")
    (home / "output/model.bin").symlink_to(secret)
    laptop.kedge("plan", code=2)
    assert str(secret) in laptop.errors
