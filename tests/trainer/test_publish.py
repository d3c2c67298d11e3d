"""What is published of the best weights: safetensors, model card, Hub, Kaggle."""

import json
import os
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.trainer import harness
from tests.trainer.hub_server import serving_hub
from trainer.base.contract import read_contract
from trainer.checkpoints.store import load_checkpoint
from trainer.recipes.digits import SmallResNet
from trainer.report.publish.kaggle import render_metadata

TOKEN = "hf_secret"
ONE_EPOCH = ("epochs=1", "batch_size=64", "model.width=6", "curves=false", "onnx=false")


def test_model_safetensors_holds_the_best_weights_under_the_models_own_names(small_run: Path) -> None:
    """Safetensors' own reader gives the model's weights, equal to the best checkpoint's."""
    weights = load_file(small_run / "model.safetensors")
    best = load_checkpoint(harness.best_checkpoint(small_run))["model"]
    SmallResNet(width=6, dropout=0.1).load_state_dict(weights)
    assert weights.keys() == best.keys()
    assert all(torch.equal(weights[name], best[name]) for name in best)


def test_model_card_says_results_settings_data_and_date(small_run: Path) -> None:
    """The head is YAML that the Hub reads, with the best epoch's metrics; the page names settings and data."""
    text = (small_run / "README.md").read_text()
    _, head, page = text.split("---\n", 2)
    fields = yaml.safe_load(head)
    best = load_checkpoint(harness.best_checkpoint(small_run))
    found = {metric["type"]: metric["value"] for metric in fields["model-index"][0]["results"][0]["metrics"]}
    assert found == best["metrics"]
    assert fields["license"] == "unknown"
    assert fields["tags"] == ["kedge", "digits"]
    assert f"after epoch {best['epoch']} of 2" in page
    assert "| `optimizer.learning_rate` | 0.004 |" in page
    assert "UCI" in page
    assert "- Date: 20" in page
    assert "`model.safetensors`" in page
    assert "`model.onnx`" not in page


def test_push_arrives_as_one_commit_with_the_files_and_the_card(tmp_path: Path) -> None:
    """The real client, against a Hub on this machine: a private repository, one commit, the same bytes."""
    folder = tmp_path / "output"
    with serving_hub(TOKEN) as hub:
        result = _push(folder, hub.endpoint, TOKEN)
        assert result.code == 0, result.err
        assert hub.repos == {"me/digits": True}
        (commit,) = hub.commits
        assert set(commit) == {"README.md", "model.safetensors", "metrics.jsonl"}
        assert all(content == (folder / name).read_bytes() for name, content in commit.items())
        assert hub.messages[0].startswith("digits: best val_accuracy")
        assert f"Hub: {hub.endpoint}/me/digits/commit/" in result.out
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert TOKEN.encode() not in written
    assert TOKEN not in result.out + result.err


def test_push_that_the_hub_refuses_fails_the_run_and_the_same_command_tries_again(tmp_path: Path) -> None:
    """The results are written, status.json has the error; with a better token nothing is trained again."""
    folder = tmp_path / "output"
    with serving_hub(TOKEN) as hub:
        refused = _push(folder, hub.endpoint, "hf_wrong")
        assert refused.code == 1
        assert "not pushed to me/digits" in refused.err
        assert "Traceback" not in refused.err
        assert harness.read_status(folder)["state"] == "failed"
        assert (folder / "model.safetensors").is_file()
        rows = harness.read_rows(folder)
        again = _push(folder, hub.endpoint, TOKEN)
        assert again.code == 0, again.err
        assert harness.read_rows(folder) == rows
        assert len(hub.commits) == 1
    assert harness.read_status(folder)["state"] == "succeeded"


def test_push_without_a_token_is_refused_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, the message names the variable, and no folder is made."""
    assert harness.call(tmp_path / "output", "publish.hub_repo=me/digits") == 2
    assert "HF_TOKEN" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_token_is_not_shown_with_the_contract() -> None:
    """The contract's repr, which a log might print, doesn't contain the token."""
    contract = read_contract({"HF_TOKEN": TOKEN})
    assert contract.hub.token == TOKEN
    assert TOKEN not in repr(contract)


def test_kaggle_folder_has_metadata_and_the_weights(tmp_path: Path) -> None:
    """`kaggle datasets create -p` accepts the folder; each run makes it anew."""
    folder = tmp_path / "output"
    settings = (*ONE_EPOCH, "publish.kaggle_dataset=me/digits-weights", "publish.license=cc-by-4.0")
    assert harness.call(folder, *settings) == 0
    kaggle = folder / "kaggle"
    assert json.loads((kaggle / "dataset-metadata.json").read_text()) == {
        "title": "digits weights",
        "id": "me/digits-weights",
        "licenses": [{"name": "CC-BY-4.0"}],
    }
    assert {path.name for path in kaggle.iterdir()} == {
        "README.md",
        "dataset-metadata.json",
        "metrics.jsonl",
        "model.safetensors",
    }
    assert (kaggle / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_kaggle_title_has_six_characters_at_least_and_an_unknown_license_is_other() -> None:
    """Kaggle accepts no shorter title, and only its own names of licenses."""
    content = json.loads(render_metadata("me/net", license_id="apache-2.0"))
    assert content["title"] == "net weights"
    assert content["licenses"] == [{"name": "other"}]


@pytest.mark.parametrize(
    "setting",
    ["publish.hub_repo=digits", "publish.kaggle_dataset=me", "publish.kaggle_dataset=me/No_Such"],
)
def test_invalid_name_is_refused_before_anything_is_trained(tmp_path: Path, setting: str) -> None:
    """Exit 2, and no folder is made."""
    assert harness.call(tmp_path / "output", setting, environ={"HF_TOKEN": TOKEN}) == 2
    assert not (tmp_path / "output").exists()


def _push(folder: Path, endpoint: str, token: str) -> harness.Result:
    return harness.run(
        folder,
        *ONE_EPOCH,
        "publish.hub_repo=me/digits",
        HF_TOKEN=token,
        HF_ENDPOINT=endpoint,
        HF_HOME=str(folder.parent / "hf"),
        # Large files then use git-lfs's protocol; the stand-in has no Xet.
        HF_HUB_DISABLE_XET="1",
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        NO_PROXY="127.0.0.1",
        PATH=os.environ["PATH"],
    )
