"""`--init hf:OWNER/NAME`: weights from the Hugging Face Hub, with the real client against a Hub on this machine."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from tests.trainer import harness
from tests.trainer.hub_server import SHA, serving_hub
from trainer.base.errors import BadRequestError
from trainer.base.hub import HubAccess
from trainer.start.hub import HubReference, download, list_shards, parse_reference

ONE_EPOCH = ("epochs=1", "batch_size=480", "model.width=6", "curves=false", "onnx=false")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's: neither downloaded files nor a token."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


def test_run_starts_from_the_one_file_of_a_model(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only that file is downloaded; the line has the commit, and so has the model card."""
    content = (small_run / "model.safetensors").read_bytes()
    folder = tmp_path / "output"
    with serving_hub() as hub:
        hub.models["me/digits"] = {"README.md": b"#", "model.safetensors": content, "pytorch_model.bin": b"?"}
        environ = {"HF_ENDPOINT": hub.endpoint}
        assert harness.call(folder, *ONE_EPOCH, flags=("--init", "hf:me/digits@v1"), environ=environ) == 0
        assert hub.downloads == ["model.safetensors"]
    origin = f"hf:me/digits/model.safetensors@{SHA[:12]}"
    assert f"started from {origin}: " in capsys.readouterr().out
    assert f"Started from `{origin}`." in (folder / "README.md").read_text()


def test_shards_of_an_index_are_downloaded_and_no_others(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two shards make the whole model."""
    weights = load_file(small_run / "model.safetensors")
    names = sorted(weights)
    shards = {"model-00001.safetensors": names[::2], "model-00002.safetensors": names[1::2]}
    index = {"weight_map": {name: shard for shard, inside in shards.items() for name in inside}}
    files = {shard: save({name: weights[name] for name in inside}) for shard, inside in shards.items()}
    with serving_hub() as hub:
        hub.models["me/digits"] = {
            **files,
            "model-00003.safetensors": b"of another model",
            "model.safetensors.index.json": json.dumps(index).encode(),
        }
        environ = {"HF_ENDPOINT": hub.endpoint}
        assert harness.call(tmp_path / "output", *ONE_EPOCH, flags=("--init", "hf:me/digits"), environ=environ) == 0
        assert hub.downloads == ["model.safetensors.index.json", *shards]
    assert f": {len(weights)} tensors loaded" in capsys.readouterr().out


def test_index_of_a_local_folder_is_read_like_the_hubs(small_run: Path, tmp_path: Path) -> None:
    """A folder that somebody downloaded before."""
    weights = load_file(small_run / "model.safetensors")
    folder = tmp_path / "downloaded"
    folder.mkdir()
    names = sorted(weights)
    for shard, inside in (("a.safetensors", names[:5]), ("b.safetensors", names[5:])):
        save_file({name: weights[name] for name in inside}, folder / shard)
    places = {name: "a.safetensors" if name in names[:5] else "b.safetensors" for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert harness.call(tmp_path / "output", *ONE_EPOCH, flags=("--init", folder)) == 0
    (folder / "b.safetensors").unlink()
    assert harness.call(tmp_path / "second", *ONE_EPOCH, flags=("--init", folder)) == 2
    assert not (tmp_path / "second").exists()


def test_model_that_cannot_be_had_is_refused_with_nothing_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No such model, no such revision, no such file, several files: exit 2 with the way out."""
    torch.manual_seed(0)
    with serving_hub() as hub:
        hub.models["me/two"] = {"a.safetensors": b"", "b.safetensors": b""}
        for reference, expected in (
            ("hf:me/none", "HF_TOKEN"),
            ("hf:me/two@v7", "HF_TOKEN"),
            ("hf:me/two/c.safetensors", "HF_TOKEN"),
            ("hf:me/two", "hf:me/two/FILE): it has a.safetensors, b.safetensors"),
            ("hf:two", "hf:OWNER/NAME[/FILE][@REVISION]"),
        ):
            environ = {"HF_ENDPOINT": hub.endpoint}
            assert harness.call(tmp_path / "output", *ONE_EPOCH, flags=("--init", reference), environ=environ) == 2
            assert expected in capsys.readouterr().err, reference
    assert not (tmp_path / "output").exists()


def test_token_is_sent_and_a_file_is_downloaded_once(tmp_path: Path) -> None:
    """The second time it comes from huggingface_hub's cache."""
    with serving_hub() as hub:
        hub.models["me/digits"] = {"sub/w.safetensors": b"content"}
        access = HubAccess(token="hf_secret", endpoint=hub.endpoint)
        first = download("hf:me/digits/sub/w.safetensors", access)
        second = download("hf:me/digits", access)
        assert hub.downloads == ["sub/w.safetensors"]
        assert hub.readers == {"Bearer hf_secret"}
    assert first.files == second.files
    assert first.files[0].read_bytes() == b"content"
    assert first.origin == second.origin == f"hf:me/digits/sub/w.safetensors@{SHA[:12]}"


def test_reference_has_an_owner_and_a_name() -> None:
    """A file may be in folders; a revision may have slashes."""
    assert parse_reference("hf:me/net/a/b.bin@refs/pr/1") == HubReference(
        repo="me/net", file="a/b.bin", revision="refs/pr/1"
    )
    for text in ("hf:net", "hf:me/", "hf:/net", "hf:"):
        with pytest.raises(BadRequestError):
            parse_reference(text)


def test_index_never_leads_out_of_its_folder(tmp_path: Path) -> None:
    """A stranger's index names files that are read."""
    index = tmp_path / "model.safetensors.index.json"
    for content in ("[]", "{}", '{"weight_map": {"a": "../b.safetensors"}}', '{"weight_map": {"a": "/etc/passwd"}}'):
        index.write_text(content)
        with pytest.raises(ValueError, match=r"no weight_map|another folder"):
            list_shards(index)
