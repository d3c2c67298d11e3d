"""`pip install` in `setup`, on a machine whose torch belongs to root: the real program on AWS in the box."""

from __future__ import annotations

import shutil
import subprocess

from tests.adapters.aws.world import set_up
from tests.agent.images import make_wheels
from tests.cloudbox.aws.box import Box
from tests.support.laptop import TRAIN, Laptop

JOB = """
    name: toy
    workdir: .
    sudo: true
    setup: |
        sudo -n sh -c 'echo by setup >/etc/kedge-made'
        ! /opt/pytorch/bin/python -m pip install --no-index --find-links wheels toy
        pip install --no-index --find-links wheels toy
    run: |
        cat /etc/kedge-made
        python3 -c 'import sys, toy, yaml; print(sys.prefix, toy.__file__, yaml.__file__)'
        python3 train.py
    outputs: [results]
    envs: {STEPS: 3, PAUSE: 0.1, KEDGE_TORCH_WHEEL: none}
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, use_spot: true, region: us-east-1}
    supervisor: {kind: systemd, restarts: 0, grace: 5s}
"""
# The first use of `uv` installs it, which needs a network; the box has none.
SHOW = "command -v python; command -v pip; command -v uv; python -c 'import toy, yaml; print(toy.__version__)'\n"
SHOWN = [*(f"/opt/kedge/env/bin/{name}" for name in ("python", "pip", "uv")), "1.0"]


def test_setup_installs_packages_beside_those_of_the_image(box: Box, laptop: Laptop) -> None:
    """The job's user can't write to /opt/pytorch; packages are installed next to its, and nothing is left.

    `kedge exec` and `kedge ssh` find the same.
    """
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shutil.copy(TRAIN, laptop.home / "train.py")
    make_wheels(laptop.home / "wheels", "toy")
    laptop.write_job(JOB)
    assert "the job's user can become root" in laptop.kedge("launch", "--yes", "--keep")
    for argv in (["exec", "--", "sh", "-c", SHOW], ["ssh"]):
        done = subprocess.run(
            [*laptop.program, *argv],
            input=SHOW,
            cwd=laptop.home,
            env=laptop.env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-4:] == SHOWN
    laptop.kedge("teardown", "--yes")
    (results,) = (laptop.home / "kedge-results").glob("toy-*")
    log = (results / "run.log").read_text()
    assert "Z by setup\n" in log, "a job that asks for sudo has it"
    assert " /opt/kedge/env /opt/kedge/env/lib/python3" in log
    assert "/toy/__init__.py /opt/pytorch/lib/python3" in log
    assert (results / "output" / "results" / "model.txt").read_text() == "trained for 3 steps"
    assert box.billing() == []
