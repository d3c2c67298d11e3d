"""What a later attempt finds: the checkpoints of the attempt before, on this machine and on a new one."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import pytest

from tests.agent.box import Box, wait_for
from tests.agent.places import Place

MakeBox = Callable[..., Box]

TRAIN = r"""
cat > train.py <<'END'
import os, pathlib, pickle, sys, time
path = pathlib.Path("out/ckpt.pt")
step = pickle.loads(path.read_bytes())["iter_num"] if "--resume" in sys.argv else 0
print("from", step, "resume", repr(os.environ["KEDGE_RESUME"]), os.environ["KEDGE_CHECKPOINT"], flush=True)
last = step + 50 if os.environ["KEDGE_RESUME"] else 650
while step < last:
    step += 50
    path.write_bytes(pickle.dumps({"model": bytes(1000), "iter_num": step, "config": {"step": 9}}))
print("saved", step, flush=True)
if last == 650:
    sys.exit(1)
time.sleep(1000)
END
"""
RUN = f"{TRAIN}\npython3 train.py"
RESUME = f"{TRAIN}\npython3 train.py --resume"


def step_of(content: bytes) -> int:
    return int(pickle.loads(content)["iter_num"])


def stored(store: Place) -> dict[str, bytes]:
    """Read the files that the store's manifest names; all of them are there."""
    manifest = json.loads(store.read("manifest.json") or b"{}")
    return {row["path"]: store.read(f"blobs/{row['sha256']}") or b"" for row in manifest.get("files", ())}


def test_the_last_checkpoint_survives_a_command_that_starts_from_scratch(make_box: MakeBox, store: Place) -> None:
    """It overwrites its only checkpoint, of step 650; that one is kept here and in the store, and reported."""
    box = make_box(store_url=store.url, env=store.env)
    box.begin("watch")
    box.start(RUN, restarts=1, checkpoints="out")
    wait_for(lambda: " saved 50\n" in box.log())
    results = box.root / "results"
    assert step_of((results / "checkpoints/ckpt.pt").read_bytes()) == 50
    assert step_of((results / "checkpoints.kept/ckpt.pt").read_bytes()) == 650
    anew = wait_for(lambda: box.report()["anew"])
    assert (anew["name"], anew["step"], anew["had_step"], anew["kept"]) == ("ckpt.pt", 50, 650, "ckpt.pt")
    # Logged after it has been reported.
    wait_for(lambda: "it seems to have started over: its first checkpoint, ckpt.pt, is of step 50" in box.log())
    wait_for(lambda: step_of(stored(store).get("checkpoints/ckpt.pt", pickle.dumps({"iter_num": 0}))) == 50)
    assert step_of(stored(store)["checkpoints.kept/ckpt.pt"]) == 650
    box.ask("stop")
    # Another fresh start doesn't replace it either.
    box.start(RUN, checkpoints="out")
    wait_for(lambda: box.log().count(" saved 50\n") == 2)
    assert step_of((results / "checkpoints.kept/ckpt.pt").read_bytes()) == 650


def test_the_resume_command_continues_from_the_checkpoint(make_box: MakeBox) -> None:
    """`resume` is started once there is a checkpoint, and no fresh start is reported."""
    box = make_box()
    box.begin("watch")
    box.start(RUN, resume=RESUME, restarts=1, checkpoints="out")
    wait_for(lambda: " saved 700\n" in box.log())
    checkpoint = box.root / "results/checkpoints/ckpt.pt"
    assert " from 0 resume '' \n" in box.log()
    assert f" from 650 resume '1' {checkpoint}\n" in box.log()
    assert "resuming from checkpoint ckpt.pt (step 650): starting `resume`" in box.log()
    wait_for(lambda: box.note("checkpoint").get("name") == "ckpt.pt")
    assert "started over" not in box.log()
    assert box.report()["anew"] is None


def test_a_new_machine_continues_from_the_restored_checkpoint(make_box: MakeBox, store: Place) -> None:
    """The store says that there was an attempt; the new machine keeps the restored checkpoint apart, too."""
    first = make_box(store_url=store.url, env=store.env)
    first.begin("watch")
    first.start(RUN, checkpoints="out")
    first.await_state("failed")
    wait_for(lambda: "checkpoints/ckpt.pt" in stored(store))
    second = make_box(store_url=store.url, env=store.env, machine="digits-1a2b-m2")
    second.begin("watch")
    second.start(RUN, resume=RESUME, checkpoints="out")
    wait_for(lambda: " saved 700\n" in second.log())
    assert step_of((second.root / "results/checkpoints.kept/ckpt.pt").read_bytes()) == 650
    wait_for(lambda: step_of(stored(store).get("checkpoints.kept/ckpt.pt", pickle.dumps({"iter_num": 0}))) == 650)


@pytest.mark.parametrize(("checkpoints", "found"), [("out", "''"), ("", "'1'")])
def test_an_attempt_that_left_no_checkpoint(box: Box, checkpoints: str, found: str) -> None:
    """A job with `checkpoints` starts `run` again; another job starts `resume`, as its checkpoints are unknown."""
    box.start(
        """python3 -c 'import os; print("resume", repr(os.environ["KEDGE_RESUME"]))'; false""",
        resume="""python3 -c 'import os; print("other", repr(os.environ["KEDGE_RESUME"]))'; false""",
        restarts=1,
        checkpoints=checkpoints,
    )
    box.await_state("failed")
    words = "resume" if checkpoints else "other"
    assert " resume ''\n" in box.log()
    assert box.log().count(f" {words} {found}\n") == (2 if checkpoints else 1)


HUGGING_FACE = r"""
cat > train.py <<'END'
import json, os, pathlib, sys, time
print("from", os.environ["KEDGE_CHECKPOINT"], flush=True)
out = pathlib.Path("out")
def save(step, whole=True):
    folder = out / f"checkpoint-{step}"
    folder.mkdir()
    (folder / "model.bin").write_bytes(b"w" * 1000)
    if whole:
        (folder / "trainer_state.json").write_text(json.dumps({"epoch": 0.5, "global_step": step}))
if not os.environ["KEDGE_RESUME"]:
    for step in (50, 100, 150):
        save(step)
    (out / "runs").mkdir()
    save(200, whole=False)
    (out / "runs" / "events.out.tfevents.1700000000").write_bytes(b"log")
    os.kill(os.getpid(), 9)
time.sleep(1000)
END
python3 train.py
"""


def test_the_newest_complete_checkpoint_folder_is_named(box: Box) -> None:
    """Neither a truncated one, nor the logs beside them."""
    box.start(HUGGING_FACE, restarts=1, checkpoints="out")
    wait_for(lambda: box.log().count("Z from ") == 2)
    assert f" from {box.root}/results/checkpoints/checkpoint-150\n" in box.log()
    kept = box.root / "results/checkpoints.kept/checkpoint-150"
    assert sorted(path.name for path in kept.iterdir()) == ["model.bin", "trainer_state.json"]


def test_the_variables_work_in_shells_that_refuse_unset_ones(box: Box) -> None:
    """They are empty rather than missing, in each form that the documentation shows."""
    shown = (
        'set -u; [ "$KEDGE_RESUME" = 1 ] && echo one; echo "args:" ${KEDGE_CHECKPOINT:+--resume "$KEDGE_CHECKPOINT"}'
    )
    box.start(f"{shown}; echo x > out/a-10.bin; [ $KEDGE_RESUME ]", restarts=1, checkpoints="out")
    box.await_state("succeeded")
    log = box.log()
    assert log.count(" one\n") == 1
    assert " args:\n" in log
    assert f" args: --resume {box.root}/results/checkpoints/a-10.bin\n" in log


@pytest.mark.parametrize("path", ["out/runs/events.out.tfevents.1700000000", "out/log.txt", "out/args.json"])
def test_logs_alone_are_no_checkpoint(box: Box, path: str) -> None:
    """Trainers write logs before their first checkpoint: a command that gets one as its checkpoint fails."""
    shown = f'echo "resume <$KEDGE_RESUME> <$KEDGE_CHECKPOINT>"; mkdir -p out/runs; echo "{{}}" > {path}; false'
    box.start(shown, restarts=1, checkpoints="out")
    box.await_state("failed")
    assert box.log().count("resume <> <>\n") == 2
