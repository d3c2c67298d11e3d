"""The command's environment: the run contract, the job's variables, secrets that are stored nowhere else, and links."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from tests.agent.box import RUN, Box, wait_for
from tests.agent.configs import encode

DUMP = 'env -0 > "$KEDGE_OUTPUT_DIR/env"'
SECRET = "s3cr3t-t0ken"


def environment_of(box: Box, **config: Any) -> dict[str, str]:
    """Run a command that writes its environment to a file, and return it."""
    box.start(DUMP, **config)
    over = box.await_state("succeeded", "failed")
    assert over["state"] == "succeeded", box.log()
    pairs = (box.root / "results/output/env").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def test_the_contract_is_in_the_environment(box: Box) -> None:
    """All names of the run contract, with this machine's values; the job can't override them."""
    env = environment_of(box, gpus_per_node=8, grace=42.9, envs={"KEDGE_RUN_ID": "other", "EPOCHS": "3"})
    assert env["KEDGE_RUN_ID"] == RUN
    assert env["KEDGE_OUTPUT_DIR"] == str(box.root / "results/output")
    assert env["KEDGE_CHECKPOINT_DIR"] == str(box.root / "results/checkpoints")
    assert abs(float(env["KEDGE_DEADLINE"]) - box.machine["deadline"]) < 0.01
    assert env["KEDGE_NOTICE_FILE"] == str(box.root / "notice")
    assert env["KEDGE_GPUS_PER_NODE"] == "8"
    assert env["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "42"
    assert env["PYTHONUNBUFFERED"] == "1"
    assert env["EPOCHS"] == "3"


def test_paths_are_put_first_on_the_existing_path(make_box: Any) -> None:
    """The machine's own programs and the job's Python folders come first, and the rest stays."""
    box = make_box(path=["/opt/some/bin"])
    env = environment_of(box, envs={"PYTHONPATH": "/elsewhere"}, python_path=["src", "lib"])
    release = str((box.root / "code").resolve())
    assert env["PATH"].split(":")[:2] == ["/opt/some/bin", str(box.root / "bin")]
    assert set(os.environ["PATH"].split(":")) <= set(env["PATH"].split(":"))
    assert env["PYTHONPATH"] == f"{release}/src:{release}/lib:/elsewhere"


def test_the_supervisors_own_variables_stay_outside(box: Box) -> None:
    """The machine's mark is passed on, tmux's and the agent's own variables aren't."""
    env = environment_of(box, supervisor="tmux")
    assert env["KEDGE_TEST_MARK"] == box.mark
    assert not {"TMUX", "TMUX_PANE"} & env.keys()


def test_secrets_reach_the_command_and_are_stored_nowhere_else(box: Box) -> None:
    """Only secrets.json contains them, only the user can read it, and no process has them in its arguments."""
    box.start('echo "${#TOKEN}"; sleep 1000', secrets={"TOKEN": SECRET})
    wait_for(lambda: f" {len(SECRET)}\n" in box.log())
    # Until then, temporary files come and go.
    box.await_state("running")
    holders = [path for path in box.root.rglob("*") if path.is_file() and SECRET in path.read_text(errors="replace")]
    assert [path.name for path in holders] == ["secrets.json"]
    assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600
    arguments = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in box.processes()]
    assert not any(SECRET.encode() in argument for argument in arguments)


def test_a_bad_request_starts_nothing(box: Box) -> None:
    """Each is refused with exit code 2; the error names what is wrong, without its value."""
    good = box.config("true")
    cases: list[tuple[dict[str, Any], bytes]] = [
        ({**good, "restarts": "three"}, b"restarts"),
        ({**good, "secrets": {"TOKEN": 17}}, b"secrets"),
        ({**good, "outputs": ["../up"]}, b"../up"),
        ({**good, "outputs": ["a"], "data": ["a/b"]}, b"a/b"),
        ({**good, "supervisor": "runit"}, b"tmux, screen, nohup"),
        ({**good, "run": "../x"}, b"run"),
        ({name: value for name, value in good.items() if name != "command"}, b"command"),
    ]
    for config, told in cases:
        refused = box.call("start", stdin=encode(config))
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr
        assert b"Traceback" not in refused.stderr
    assert box.call("start", stdin=b"{nonsense").returncode == 2
    assert box.call("start", stdin=b" " * (5 << 20)).returncode == 2
    assert box.command()["state"] == "idle"
    assert not (box.root / "run.json").exists()


def test_a_missing_supervisor_names_its_package(box: Box, tmp_path: Path) -> None:
    """If tmux isn't installed, the error says so, and what to install."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "bash", "env"):
        (programs / name).symlink_to(f"/bin/{name}" if name != "env" else "/usr/bin/env")
    refused = box.call("start", stdin=encode(box.config("true", supervisor="tmux")), PATH=str(programs))
    assert refused.returncode == 2
    assert b"install the package tmux" in refused.stderr


def test_systemd_gets_the_unit_and_is_told_to_run_it(box: Box, tmp_path: Path) -> None:
    """The unit is installed for the user, enabled at boot and started; a stand-in starts it here."""
    programs = tmp_path / "programs"
    programs.mkdir()
    calls = tmp_path / "calls"
    stand_in = f'#!/bin/sh\necho "$@" >> "{calls}"\ncase "$*" in *restart*) "{box.launcher}" run & ;; esac\n'
    for name in ("systemctl", "loginctl"):
        (programs / name).write_text(stand_in)
        (programs / name).chmod(0o755)
    config = box.config("echo by systemd", supervisor="systemd-user", unit="[Service]\nExecStart=kedge-agent run\n")
    done = box.call(
        "start",
        stdin=encode(config),
        PATH=f"{programs}:{os.environ['PATH']}",
        XDG_CONFIG_HOME=str(tmp_path / "config"),
    )
    assert done.returncode == 0, done.stderr
    unit = tmp_path / "config/systemd/user/kedge-run.service"
    assert unit.read_text() == config["unit"]
    assert calls.read_text().splitlines() == [
        "enable-linger",
        "--user daemon-reload",
        "--user reset-failed kedge-run.service",
        "--user enable kedge-run.service",
        "--user restart --no-block kedge-run.service",
    ]
    box.await_state("succeeded")
    assert " by systemd\n" in box.log()


def test_outputs_checkpoints_and_data_are_links_in_the_code_folder(box: Box) -> None:
    """What a command writes there is a result, and the command finds the data that was sent."""
    (box.root / "data/digits/raw").mkdir(parents=True)
    (box.root / "data/digits/raw/x").write_text("data")
    box.start(
        "echo out > runs/today/a; echo ckpt > ckpts/1.pt; cat digits/raw/x",
        outputs=["runs/today/"],
        checkpoints="./ckpts",
        data=["digits/raw"],
    )
    assert box.await_state("succeeded", "failed")["state"] == "succeeded", box.log()
    assert (box.root / "results/output/runs/today/a").read_text() == "out\n"
    assert (box.root / "results/checkpoints/1.pt").read_text() == "ckpt\n"
    assert " data\n" in box.log()
