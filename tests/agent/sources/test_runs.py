"""Runs whose data comes from other sites, through the agent itself."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable

import pytest

from orchestrator.agent.base.errors import RequestError
from orchestrator.agent.base.parse import parse_run_config
from tests.agent.box import Box, wait_for
from tests.agent.configs import encode
from tests.agent.sources.machine import zipped
from tests.agent.sources.web import Kaggle, Serve, Site


def test_a_run_s_data_is_there_before_setup_and_no_secret_is_shown(make_box: Callable[..., Box], serve: Serve) -> None:
    """The agent fetches it with a token; the token is neither in the log nor in any file but its own."""
    storage = serve(Site(), host="localhost")
    kaggle = serve(Kaggle({"/api/v1/datasets/download/me/faces": zipped({"a/b.csv": b"1,2\n"})}, storage=storage))
    kaggle.accepts = ("Bearer hunter2",)
    box = make_box()
    box.start(
        "cat set/a/b.csv; cat seen", setup="ls set/a > seen", data=["set"], envs={"KAGGLE_API_ENDPOINT": kaggle.url},
        sources=[{"source": "kaggle://datasets/me/faces", "target": "set"}], secrets={"KAGGLE_API_TOKEN": "hunter2"},
    )  # fmt: skip
    box.await_state("succeeded", "failed")
    assert " 1,2\n" in box.log()
    assert " b.csv\n" in box.log()
    assert "fetching kaggle://datasets/me/faces to set" in box.log()
    assert storage.sent("authorization") == [""]
    telling = [path.name for path in box.root.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert telling == ["secrets.json"]
    box.start("cat set/a/b.csv", data=["set"], sources=[{"source": "kaggle://datasets/me/faces", "target": "set"}])
    wait_for(lambda: box.log().count(" 1,2\n") == 2)
    assert len(kaggle.asked) == 1


def test_a_run_whose_data_is_denied_says_which_secret_is_missing(box: Box, serve: Serve) -> None:
    """The command isn't started, and the attempts are counted."""
    kaggle = serve(Kaggle())
    box.start(
        "echo started", data=["set"], envs={"KAGGLE_API_ENDPOINT": kaggle.url}, restarts=1,
        sources=[{"source": "kaggle://competitions/titanic", "target": "set"}],
    )  # fmt: skip
    over = box.await_state("failed")
    assert "access to competitions/titanic of Kaggle was denied" in over["reason"]
    assert "attempt 2 of 2" in over["reason"]
    assert "name KAGGLE_API_TOKEN (or KAGGLE_USERNAME and KAGGLE_KEY) under `secrets`" in box.log()
    assert " started\n" not in box.log()


def test_a_stop_ends_a_fetch_at_once(box: Box, serve: Serve) -> None:
    """Whatever the fetch waits for; none of its processes is left."""
    site = serve(Site({"/x": b"x"}))
    site.holds_from = 1
    box.start("echo started", data=["x"], sources=[{"source": f"{site.url}/x", "target": "x"}], grace=1000.0)
    wait_for(lambda: site.asked)
    assert box.command()["state"] == "setting-up"
    began = time.monotonic()
    assert box.ask("stop")["state"] == "stopped"
    assert time.monotonic() - began < 30
    assert " started\n" not in box.log()
    wait_for(lambda: not box.processes())


def test_a_fetch_that_was_killed_is_resumed(box: Box, serve: Serve) -> None:
    """The next start resumes at the same byte; until it is complete, nothing is at the target."""
    content = os.urandom(2_000_000)
    site = serve(Site({"/x": content}, cuts=[1_500_000]))
    site.holds_from = 2
    how = {"data": ["x"], "sources": [{"source": f"{site.url}/x", "target": "x"}]}
    box.start("sha256sum < x", **how)
    wait_for(lambda: len(site.asked) == 2)
    assert not (box.root / "data" / "x").exists()
    assert box.ask("kill")["reason"] == "killed"
    site.goes.set()
    box.start("sha256sum < x", **how)
    box.await_state("succeeded")
    assert hashlib.sha256(content).hexdigest() in box.log()
    assert site.sent("range")[-1] == "bytes=1500000-"


def test_a_source_needs_a_target_among_the_data(box: Box) -> None:
    """The command wouldn't find it."""
    config = box.config("true", sources=[{"source": "hf://me/model", "target": "elsewhere"}])
    with pytest.raises(RequestError, match="sources"):
        parse_run_config(encode(config))
