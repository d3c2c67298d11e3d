"""Kernels that were compiled on one of a run's machines are restored on the next one."""

from __future__ import annotations

import hmac
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.aws import Aws
from tests.agent.box import Box, wait_for
from tests.agent.places import Place, S3Place, manifest_of

MakeBox = Callable[..., Box]
TORCH = {"python": "/opt/bin/python3", "torch": "2.9.1+rocm6.4", "archs": ["gfx942"]}
NAME = "gfx942-2.9.1-rocm6.4"
KEY = f"cache/{NAME}.sealed"
COMPILE = """
    mkdir -p "$TRITON_CACHE_DIR/ab"
    echo kernel >"$TRITON_CACHE_DIR/ab/k.hsaco"
    touch "$TRITON_CACHE_DIR/ab/k.lock"
    echo db >"$MIOPEN_USER_DB_PATH/gfx942.udb"
    echo object >"$AMD_COMGR_CACHE_DIR/llvmcache-1"
    echo tuned >"${PYTORCH_TUNABLEOP_FILENAME%.csv}0.csv"
"""


@pytest.fixture
def make_machine(make_box: MakeBox, store: Place) -> Callable[..., Box]:
    """Make machines of one run whose torch is known."""

    def make(archs: tuple[str, ...] = ("gfx942",)) -> Box:
        box = make_box(provider="do", store_url=store.url, env=store.env, ship_every=0.2)
        (box.root / "torch.json").write_text(json.dumps({**TORCH, "archs": archs}))
        return box

    return make


def names_in(packed: bytes | None) -> list[str]:
    if packed is None:
        return []
    with tarfile.open(fileobj=io.BytesIO(packed[32:])) as tar:
        return tar.getnames()


def seal(content: bytes, secret: str = "", key: str = KEY) -> bytes:
    """Write an object as one of the run's machines does; without a secret, as machines with a role of their own do."""
    return hmac.digest(secret.encode(), key.encode() + b"\0" + content, "sha256") + content


def run(box: Box, command: str) -> None:
    box.start(command)
    assert box.await_state("succeeded", "failed")["state"] == "succeeded", box.log()


def test_compiled_kernels_go_from_machine_to_machine(make_machine: Callable[..., Box], store: Place) -> None:
    """They are uploaded while the command runs, and restored before it starts on the next machine."""
    first = make_machine()
    first.begin("watch")
    first.start(f"{COMPILE} sleep 1000")
    wait_for(lambda: len(names_in(store.read(KEY))) == 4)
    second = make_machine()
    run(second, 'cat "$TRITON_CACHE_DIR/ab/k.hsaco" "$MIOPEN_USER_DB_PATH/gfx942.udb"; ls "$TRITON_CACHE_DIR/ab"')
    run(second, 'cat "$AMD_COMGR_CACHE_DIR/llvmcache-1" "${PYTORCH_TUNABLEOP_FILENAME%.csv}0.csv"')
    assert " object\n" in second.log()
    assert " tuned\n" in second.log()
    assert " restored 4 files of compiled kernels for gfx942-2.9.1-rocm6.4\n" in second.log()
    assert " kernel\n" in second.log()
    assert " db\n" in second.log()
    assert " k.lock\n" not in second.log()


def test_kernels_of_another_architecture_are_not_restored(make_machine: Callable[..., Box], store: Place) -> None:
    """They are not restored; neither are any if the torch is unknown."""
    store.write(KEY, b"not fetched")
    for box in (make_machine(("gfx950",)), make_machine(())):
        run(box, "true")
        assert "compiled kernels" not in box.log()


@pytest.mark.parametrize("member", ["../../escaped", "/escaped", "link", "bomb"])
def test_a_damaged_or_hostile_copy_is_reported_and_stops_nothing(
    make_machine: Callable[..., Box], store: Place, member: str
) -> None:
    """Nothing is written elsewhere, no partial copy stays, and the run starts."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        if member == "link":
            link = tarfile.TarInfo("triton")
            link.type, link.linkname = tarfile.SYMTYPE, "/tmp"
            tar.addfile(link)
        content = tarfile.TarInfo("triton/k.hsaco" if member == "link" else member)
        content.size = 1 << 16
        tar.addfile(content, io.BytesIO(bytes(1 << 16)))
        if member == "bomb":
            content.size = 1 << 40
            tar.fileobj.write(content.tobuf())
    store.write(KEY, seal(packed.getvalue()[:-20] if member == "link" else packed.getvalue()))
    box = make_machine()
    run(box, 'test ! -e "$TRITON_CACHE_DIR/k.hsaco"; test ! -L "$TRITON_CACHE_DIR"')
    assert "compiled kernels can't be restored: " in box.log()
    assert (member == "bomb") == ("they are more than 512 MiB" in box.log())
    assert not list(Path(box.root.parent).rglob("escaped"))
    assert sorted(path.name for path in (box.root / "cache").iterdir()) == [NAME]


SECRET = "of this run"
EVIL = "echo hostile code runs"


def kernels(command: str) -> bytes:
    """Pack files that Triton would load."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("triton/launcher.so")
        member.size = len(command)
        tar.addfile(member, io.BytesIO(command.encode()))
    return packed.getvalue()


@pytest.fixture
def make_keyed(make_box: MakeBox, aws: Aws, tmp_path: Path) -> Callable[[str, str], Box]:
    """Make machines that were given the bucket's keys, as every machine of the account is."""

    def make(secret: str, more: str) -> Box:
        keys = tmp_path / f"keys-{secret}.json"
        keys.write_text(json.dumps({"access_key": "k", "secret_key": "s", "seal": secret}))
        box = make_box(provider="do", store_url=f"{aws.store_url}&keys={keys}{more}", ship_every=0.2)
        (box.root / "torch.json").write_text(json.dumps(TORCH))
        return box

    return make


@pytest.mark.parametrize(
    "left",
    [
        kernels(EVIL),
        seal(kernels(EVIL)),
        seal(kernels(EVIL), "of another run"),
        seal(kernels(EVIL), SECRET, key="cache/gfx942-2.8.0.sealed"),
        seal(kernels("true"), SECRET)[:32] + kernels(EVIL),
        b"",
    ],
    ids=["bare", "no secret", "another run's", "another object's", "another content's", "empty"],
)
def test_kernels_from_another_run_are_never_run(make_keyed: Callable[[str, str], Box], aws: Aws, left: bytes) -> None:
    """Machines of other runs have the bucket's keys, but not this run's secret; compiled kernels are code."""
    S3Place(aws).write(KEY, left)
    box = make_keyed(SECRET, "")
    run(box, 'sh "$TRITON_CACHE_DIR/launcher.so" || true')
    assert "hostile code runs" not in box.log()
    assert "compiled kernels can't be restored: " in box.log()


def test_kernels_of_the_run_are_restored_although_others_have_the_buckets_keys(
    make_keyed: Callable[[str, str], Box], aws: Aws
) -> None:
    """They carry the run's seal."""
    first = make_keyed(SECRET, "")
    first.begin("watch")
    first.start('mkdir -p "$TRITON_CACHE_DIR"; echo echo mine >"$TRITON_CACHE_DIR/launcher.so"; sleep 1000')
    wait_for(lambda: names_in(S3Place(aws).read(KEY)) == ["triton/launcher.so"])
    second = make_keyed(SECRET, "")
    run(second, 'sh "$TRITON_CACHE_DIR/launcher.so"')
    assert " mine\n" in second.log()
    # Kernels for one torch aren't accepted for another.
    S3Place(aws).write("cache/gfx942-2.8.0.sealed", S3Place(aws).read(KEY) or b"")
    third = make_keyed(SECRET, "")
    (third.root / "torch.json").write_text(json.dumps({**TORCH, "torch": "2.8.0"}))
    run(third, 'sh "$TRITON_CACHE_DIR/launcher.so" || true')
    assert " mine\n" not in third.log()
    assert "compiled kernels can't be restored: " in third.log()


@pytest.mark.parametrize(("secret", "more"), [("", ""), (SECRET, "&shared=1")], ids=["no secret", "one role for all"])
def test_without_a_secret_of_the_run_kernels_stay_on_the_machine(
    make_keyed: Callable[[str, str], Box], aws: Aws, secret: str, more: str
) -> None:
    """None are restored, and none are uploaded."""
    S3Place(aws).write(KEY, seal(kernels(EVIL), secret))
    box = make_keyed(secret, more)
    box.begin("watch")
    run(box, 'sh "$TRITON_CACHE_DIR/launcher.so" || mkdir -p "$TRITON_CACHE_DIR"; echo 1 >"$TRITON_CACHE_DIR/k.so"')
    wait_for(lambda: "succeeded" in str(manifest_of(S3Place(aws))))
    assert "hostile code runs" not in box.log()
    assert names_in(S3Place(aws).read(KEY)) == ["triton/launcher.so"]
