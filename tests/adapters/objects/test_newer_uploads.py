"""Results that their machine replaces while a laptop copies them."""

from __future__ import annotations

from pathlib import Path

from tests.adapters.objects.backends import RUN, Backend, blob_key, files_below, upload_run


def test_a_newer_upload_meanwhile_is_followed(backend: Backend, tmp_path: Path) -> None:
    """A machine deletes the contents that its newest list doesn't name, while they are being fetched."""
    upload_run(backend, {"a.jsonl": b"1", "run.log": b"old", "weights": b"w", "removed": b"r"})
    done: list[int] = []

    def upload_again(_done: int, _total: int) -> None:
        done.append(_done)
        if len(done) == 1:
            upload_run(backend, {"a.jsonl": b"12", "run.log": b"newer", "weights": b"w", "more": b"m"})
            for replaced in (b"1", b"old", b"r"):
                backend.delete(blob_key(replaced))

    backend.store.fetch(RUN, str(tmp_path / "here"), upload_again)
    here = files_below(tmp_path / "here")
    here.pop("removed", None)  # fetched before, or not
    assert here == {"a.jsonl": b"12", "run.log": b"newer", "weights": b"w", "more": b"m"}
