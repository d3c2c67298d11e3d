"""`--mode "custom 100 512"`: values that follow a mode's name, wherever a mode is chosen."""

from __future__ import annotations

from pathlib import Path

from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: fresnel
    run: echo "epochs $EPOCHS, batch $BATCH"; echo done > "$KEDGE_OUTPUT_DIR/done.txt"
    envs: {EPOCHS: 1, BATCH: 1}
    deadline: 20m
    supervisor: {kind: nohup, restarts: 0, grace: 1s}
    modes:
      fast: {}
      custom: {arguments: [EPOCHS, BATCH]}
      gpus: {resources: {accelerators: "H100:8"}}
"""


def test_values_follow_a_mode_in_every_command_that_takes_one(laptop: Laptop) -> None:
    """Each pair of values is a mode of its own; the same one again goes on where it is."""
    laptop.write_job(JOB)
    run = str(laptop.json("launch", "--mode", "custom 100 512", "--keep", "--yes")["run"])
    assert "epochs 100, batch 512" in laptop.kedge("logs")
    assert "(fresnel, mode custom 100 512, local)" in laptop.kedge("resume", "--dry-run")
    assert "it goes on there" in laptop.kedge("start", "--mode", "custom 100 512", "--dry-run")
    laptop.kedge("start", "--mode", "custom 100", code=2)
    assert "mode custom takes 2 values: EPOCHS, BATCH" in laptop.errors
    # The present mode is read again, with its values, to see that the other one needs another machine.
    laptop.kedge("start", "--mode", "gpus", code=2)
    assert "mode gpus needs another machine than mode custom" in laptop.errors
    laptop.kedge("resume", "--mode", "custom 7 8", "--yes", "--detach")
    wait_until(lambda: bool(list((laptop.state / "machines").glob(f"{run}-m1/results/2-custom/output/done.txt"))))
    laptop.kedge("logs", "-f")
    assert "epochs 7, batch 8" in laptop.kedge("logs")
    fetched = Path(laptop.json("fetch", "--mode", "custom")["results"])
    assert (fetched / "2-custom" / "output" / "done.txt").is_file()


def test_modes_with_values_may_follow_one_another(laptop: Laptop) -> None:
    """Between commas; `jobs` shows what a mode takes."""
    laptop.write_job(JOB)
    shown = laptop.kedge("plan", "--modes", "fast,custom 3 4,custom 5 6")
    assert "modes fast, custom 3 4, custom 5 6" in shown
    assert "fast, custom EPOCHS BATCH, gpus" in laptop.kedge("jobs")
    (job,) = (each for each in laptop.json("jobs") if each["path"].endswith("kedge.yaml"))
    assert (job["modes"], job["arguments"]) == (["fast", "custom", "gpus"], {"custom": ["EPOCHS", "BATCH"]})
