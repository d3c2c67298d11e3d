"""Results in the object store: uploaded whole, restored whole on the next machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from tests.agent.aws import Aws
from tests.agent.box import RUN, Box, wait_for
from tests.agent.places import Place, S3Place, manifest_of, uploaded

MakeBox = Callable[..., Box]


def run_to_end(box: Box, command: str, **config: Any) -> None:
    box.start(command, **config)
    box.await_state("succeeded", "failed", "stopped")


def test_a_new_machine_continues_the_lost_machine_s_run(make_box: MakeBox, store: Place) -> None:
    """Checkpoints, outputs, links and the log are there before the command starts; the log continues."""
    first = make_box(store_url=store.url, env=store.env, created=time.time() - 100)
    first.begin("watch")
    first.start(
        'cd "$KEDGE_CHECKPOINT_DIR"; mkdir "step 5"; echo five > "step 5/model.pt"; ln -s "step 5" latest; '
        "echo curve > \"$KEDGE_OUTPUT_DIR/curvé '1'.png\"; echo first machine; sleep 1000"
    )
    wait_for(
        lambda: (
            # The link is complete in its own time, not with the checkpoint.
            {"checkpoints/step 5/model.pt", "checkpoints/latest"} <= uploaded(store).keys()
            and b"first machine" in uploaded(store).get("run.log", b"")
        )
    )
    first.close()

    second = make_box(store_url=store.url, env=store.env, machine=f"{RUN}-m2")
    second.begin("watch")
    run_to_end(second, 'cat "$KEDGE_CHECKPOINT_DIR/latest/model.pt"; cat "$KEDGE_OUTPUT_DIR"/curv*; echo second')
    log = second.log()
    assert log.index("first machine") < log.index("restored") < log.index(" five\n") < log.index(" curve\n")
    checkpoint = second.root / "results/checkpoints/step 5/model.pt"
    original = first.root / "results/checkpoints/step 5/model.pt"
    assert abs(checkpoint.stat().st_mtime - original.stat().st_mtime) < 1e-5
    wait_for(lambda: manifest_of(store)["machine"] == f"{RUN}-m2" and b"second" in uploaded(store).get("run.log", b""))
    assert "checkpoints/step 5/model.pt" in uploaded(store)


def test_a_restarted_command_is_shown_as_running_in_the_store_at_once(make_box: MakeBox, store: Place) -> None:
    """If the machine is lost, the store must not say that it was stopped; the next upload would be in ten minutes."""
    box = make_box(store_url=store.url, env=store.env, ship_every=600.0)
    box.begin("watch")
    box.start("sleep 1000")
    box.await_state("running")
    box.ask("stop")
    wait_for(lambda: manifest_of(store).get("command", {}).get("state") == "stopped")
    box.start("sleep 1000")
    wait_for(lambda: manifest_of(store)["command"]["state"] in ("idle", "setting-up", "running"))


def test_every_uploaded_file_matches_its_hash_and_nothing_else_is_kept(make_box: MakeBox, store: Place) -> None:
    """Blobs are named by their content, and those that the manifest no longer names are removed."""
    box = make_box(store_url=store.url, env=store.env)
    box.begin("watch")
    box.start(
        'cd "$KEDGE_OUTPUT_DIR"; i=0; until [ -e "$KEDGE_NOTICE_FILE" ]; do i=$((i+1)); echo $i > now; sleep 0.1; done;'
        "rm now; echo x > end"
    )
    first = wait_for(lambda: uploaded(store).get("output/now"))
    wait_for(lambda: uploaded(store).get("output/now", first) != first)
    box.call("notice", "enough")
    box.await_state("succeeded")
    wait_for(lambda: manifest_of(store)["command"]["state"] == "succeeded")
    assert "output/end" in uploaded(store)
    assert "output/now" not in uploaded(store)

    def is_tidy() -> bool:
        named = {file["sha256"] for file in manifest_of(store)["files"]}
        return store.blobs() == named

    wait_for(is_tidy)
    # The watch would upload newer samples, and remove the ones before.
    box.close()
    for file in manifest_of(store)["files"]:
        content = store.read(f"blobs/{file['sha256']}") or b""
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (file["sha256"], file["bytes"])


def test_a_growing_or_temporary_checkpoint_does_not_count(make_box: MakeBox, store: Place) -> None:
    """Only files that no longer change are uploaded and reported."""
    # Far longer than the pauses between the writes: what is unchanged so long counts as complete.
    box = make_box(store_url=store.url, env=store.env, sample_every=1.0)
    box.begin("watch")
    box.start(
        'cd "$KEDGE_CHECKPOINT_DIR"; echo 1 > done.pt; echo 1 > a.pt.tmp; echo 1 > b.part;'
        "mkdir .c.tmp; echo 1 > .c.tmp/x;"
        "while true; do echo more >> growing.pt; sleep 0.05; done"
    )
    wait_for(lambda: manifest_of(store).get("checkpoint") == "done.pt")
    seen = time.time()
    wait_for(lambda: manifest_of(store)["time"] > seen)
    assert [path for path in uploaded(store) if path.startswith("checkpoints/")] == ["checkpoints/done.pt"]
    assert box.report()["checkpoint"]["name"] == "done.pt"
    box.ask("stop")
    wait_for(lambda: "checkpoints/growing.pt" in uploaded(store))


def test_an_output_that_never_stops_growing_is_uploaded_as_far_as_it_was(make_box: MakeBox, store: Place) -> None:
    """Rows come faster than the file can be copied: the upload is a prefix of the file."""
    box = make_box(store_url=store.url, env=store.env)
    box.begin("watch")
    box.start('i=0; while true; do i=$((i+1)); echo "$i" >> "$KEDGE_OUTPUT_DIR/rows.csv"; done')
    first = wait_for(lambda: uploaded(store).get("output/rows.csv"))

    def uploaded_later() -> bytes:
        found = uploaded(store).get("output/rows.csv", b"")
        return found if len(found) > len(first) else b""

    later = wait_for(uploaded_later)
    rows = (box.root / "results/output/rows.csv").read_bytes()
    assert rows.startswith(first)
    assert rows.startswith(later)
    box.ask("stop")


def test_a_damaged_copy_is_left_out_and_reported(make_box: MakeBox, store: Place) -> None:
    """A file with the wrong content is missing, never wrong; everything else is there."""
    first = make_box(store_url=store.url, env=store.env, created=time.time() - 100)
    first.begin("watch")
    run_to_end(first, 'cd "$KEDGE_CHECKPOINT_DIR"; echo good > a.pt; echo damaged-soon > b.pt')
    wait_for(lambda: "checkpoints/b.pt" in uploaded(store))
    first.close()
    content = b"damaged-soon\n"
    store.write(f"blobs/{hashlib.sha256(content).hexdigest()}", b"damaged")

    second = make_box(store_url=store.url, env=store.env, machine=f"{RUN}-m2")
    run_to_end(second, 'ls -A "$KEDGE_CHECKPOINT_DIR"')
    assert [path.name for path in (second.root / "results/checkpoints").iterdir()] == ["a.pt"]
    assert "the stored copy is damaged: checkpoints/b.pt" in second.log()


def test_a_run_never_starts_from_scratch_because_its_store_cannot_be_read(make_box: MakeBox, store: Place) -> None:
    """Starting over would destroy the lost machine's work: the attempt fails, and nothing is overwritten."""
    store.write("manifest.json", b"{damaged")
    box = make_box(store_url=store.url, env=store.env)
    box.begin("watch")
    run_to_end(box, "echo began")
    assert box.command()["state"] == "failed"
    assert " began\n" not in box.log()
    time.sleep(1.0)
    assert store.read("manifest.json") == b"{damaged"


def test_an_unreachable_store_costs_no_attempt(make_box: MakeBox, aws: Aws) -> None:
    """The only attempt waits, says for what, and resumes from the checkpoint once S3 answers."""
    store = S3Place(aws)
    first = make_box(store_url=store.url, env=store.env, created=time.time() - 100)
    first.begin("watch")
    run_to_end(first, 'echo five > "$KEDGE_CHECKPOINT_DIR/last.pt"')
    wait_for(lambda: "checkpoints/last.pt" in uploaded(store))
    first.close()
    aws.gate.refuses = "InvalidAccessKeyId"
    second = make_box(store_url=store.url, env=store.env, machine=f"{RUN}-m2")
    second.start('cat "$KEDGE_CHECKPOINT_DIR/last.pt"', restarts=0)
    waiting = wait_for(lambda: command if "store" in (command := second.command())["reason"] else None)
    assert (waiting["state"], "InvalidAccessKeyId" in waiting["reason"]) == ("setting-up", True)
    aws.gate.refuses = ""
    assert second.await_state("succeeded", "failed")["attempt"] == 1
    assert " five\n" in second.log()


def test_a_stop_ends_the_wait_for_the_store(make_box: MakeBox, aws: Aws) -> None:
    """At once, like any other stop."""
    aws.gate.refuses = "InvalidAccessKeyId"
    box = make_box(store_url=aws.store_url, env=S3Place(aws).env)
    box.start("echo began", restarts=3)
    wait_for(lambda: "store" in box.command()["reason"])
    assert box.ask("stop", "--reason", "enough")["state"] == "stopped"
    assert " began\n" not in box.log()


def test_a_replaced_machine_uploads_nothing_more(make_box: MakeBox, store: Place) -> None:
    """A machine that was thought lost and comes back must not overwrite its successor's uploads."""
    old = make_box(store_url=store.url, env=store.env, created=time.time() - 100)
    old.begin("watch")
    old.start("while true; do date; sleep 0.05; done")
    wait_for(lambda: manifest_of(store))
    new = make_box(store_url=store.url, env=store.env, machine=f"{RUN}-m2")
    new.begin("watch")
    new.start("while true; do date; sleep 0.05; done")
    wait_for(lambda: manifest_of(store)["machine"] == f"{RUN}-m2")
    wait_for(lambda: "taken over this run" in old.note("shipped")["error"])
    for _ in range(20):
        assert manifest_of(store)["machine"] == f"{RUN}-m2"
        time.sleep(0.05)


def test_nothing_is_uploaded_before_a_run_starts(make_box: MakeBox, store: Place) -> None:
    """A machine that has just booted doesn't know yet what it has to restore."""
    store.write("manifest.json", b'{"files": []}')
    box = make_box(store_url=store.url, env=store.env)
    box.begin("watch")
    wait_for(lambda: box.note("sample"))
    time.sleep(1.0)
    assert manifest_of(store) == {"files": []}


def test_results_are_listed_with_their_checksums(box: Box) -> None:
    """`manifest` names finished files with slashes; links inside have their target's content, others are left out."""
    output = box.root / "results/output"
    (output / "sub").mkdir(parents=True)
    (output / "sub/ünï 'q' \n.txt").write_bytes(b"abc")
    (output / "x.tmp").write_bytes(b"unfinished")
    (output / "link").symlink_to("sub/ünï 'q' \n.txt")
    (output / "out").symlink_to("/etc/passwd")
    (output / "b\udcff".encode(errors="surrogateescape").decode(errors="surrogateescape")).write_bytes(b"?")
    listed = {file.pop("path"): file for file in box.ask("manifest")}
    abc = {"bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest(), "link": "", "left_out": ""}
    assert listed == {
        "output/sub/ünï 'q' \n.txt": abc,
        "output/link": {**abc, "link": "sub/ünï 'q' \n.txt"},
        "output/out": {"bytes": 0, "sha256": "", "link": "", "left_out": "it is a link that leaves the results"},
    }
    assert b"not UTF-8" in box.call("manifest").stderr
