"""A Kaggle data set, uploaded with the user's token: against a stand-in for Kaggle."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer import harness
from tests.trainer.kaggle_server import DATASETS, Kaggle, serving_kaggle
from trainer.base.contract import KaggleAccess, read_contract
from trainer.base.errors import BadRequestError, PublishError
from trainer.report.publish.kaggle_upload import check_upload, upload_dataset

TOKEN = "KGAT_a_secret"
DATASET = "me/surface-weights"
SETTINGS = (
    *("epochs=1", "batch_size=64", "model.width=6", "curves=false", "onnx=false"),
    *(f"publish.kaggle_dataset={DATASET}", "publish.kaggle_upload=true", "publish.license=cc-by-nc-sa-4.0"),
)


@pytest.fixture
def kaggle() -> Iterator[Kaggle]:
    with serving_kaggle(f"Bearer {TOKEN}") as kaggle:
        yield kaggle


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "model.safetensors").write_bytes(os.urandom(300_000))
    (tmp_path / "README.md").write_text("# weights\n")
    return [tmp_path / "model.safetensors", tmp_path / "README.md"]


def upload(files: list[Path], access: KaggleAccess, pause: Callable[[float], None] = time.sleep) -> str:
    return upload_dataset(DATASET, files, access, license_id="cc-by-4.0", notes="", pause=pause)


def test_run_uploads_a_private_data_set_and_then_new_versions(tmp_path: Path, kaggle: Kaggle) -> None:
    """All files, the same bytes, from the output folder: a second copy of them there would come home as well."""
    output = tmp_path / "a"
    done = run(output, kaggle)
    assert done.code == 0, done.err
    assert f"Kaggle: {kaggle.endpoint}/datasets/{DATASET}" in done.out
    expected = {"title": "surface weights", "slug": "surface-weights", "ownerSlug": "me"}
    assert kaggle.created == [{**expected, "licenseName": "CC-BY-NC-SA-4.0", "isPrivate": True}]
    (version,) = kaggle.versions[DATASET]
    assert set(version) == {"README.md", "model.safetensors", "metrics.jsonl"}
    assert all(content == (output / name).read_bytes() for name, content in version.items())
    assert not [path for path in output.rglob("*") if path.name == "kaggle"]
    assert run(tmp_path / "b", kaggle).code == 0
    assert len(kaggle.versions[DATASET]) == 2
    assert kaggle.notes[0].startswith("digits: best val_accuracy")


def test_token_goes_to_kaggle_alone_and_is_nowhere_else(tmp_path: Path, kaggle: Kaggle) -> None:
    """Not to the storage, whose address is its own credential; not into a file, an argument or the log."""
    done = run(tmp_path / "a", kaggle)
    by_storage = {path.startswith("/storage/"): value for path, value in kaggle.authorizations}
    assert by_storage == {True: "", False: f"Bearer {TOKEN}"}
    written = b"".join(path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert TOKEN.encode() not in written
    assert TOKEN not in done.out + done.err
    assert TOKEN not in repr(read_contract({"KAGGLE_API_TOKEN": TOKEN, "KAGGLE_KEY": "k"}))


def test_refused_upload_fails_the_run_with_its_results_and_the_same_command_only_uploads(
    tmp_path: Path, kaggle: Kaggle
) -> None:
    """The stand-in repeats the token in its message, which is masked."""
    output = tmp_path / "a"
    refused = run(output, kaggle, token="wrong_secret")
    assert refused.code == 1
    assert f"not uploaded to Kaggle's data set {DATASET}" in refused.err
    assert "HTTP 401 Unauthenticated: Bearer ***" in refused.err
    assert "wrong_secret" not in refused.err + refused.out
    assert "Traceback" not in refused.err
    assert harness.read_status(output)["state"] == "failed"
    assert (output / "model.safetensors").is_file()
    rows = harness.read_rows(output)
    assert run(output, kaggle).code == 0
    assert harness.read_rows(output) == rows
    assert len(kaggle.versions[DATASET]) == 1
    assert harness.read_status(output)["state"] == "succeeded"


def run(output: Path, kaggle: Kaggle, token: str = TOKEN) -> harness.Result:
    return harness.run(
        output,
        *SETTINGS,
        KAGGLE_API_TOKEN=token,
        KAGGLE_API_ENDPOINT=kaggle.endpoint,
        NO_PROXY="127.0.0.1",
        PATH=os.environ["PATH"],
    )


@pytest.mark.parametrize(
    ("settings", "environ", "why"),
    [
        (SETTINGS, {}, "there is no token"),
        (SETTINGS, {"KAGGLE_USERNAME": "me"}, "there is no token"),
        (SETTINGS, {"KAGGLE_API_TOKEN": TOKEN, "KAGGLE_API_ENDPOINT": "http://example.org"}, "isn't https://"),
        ((*SETTINGS, "publish.kaggle_dataset=me/abc"), {"KAGGLE_API_TOKEN": TOKEN}, "no name for a new data set"),
        (("publish.kaggle_upload=true",), {"KAGGLE_API_TOKEN": TOKEN}, "no name for a new data set"),
    ],
)
def test_upload_that_cannot_work_is_refused_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: tuple[str, ...], environ: dict[str, str], why: str
) -> None:
    """Exit 2, and no folder is made."""
    assert harness.call(tmp_path / "output", *settings, environ=environ) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_name_and_key_work_as_well(files: list[Path]) -> None:
    """The older credentials: HTTP's basic authentication."""
    basic = f"Basic {base64.b64encode(b'me:key').decode()}"
    with serving_kaggle(basic) as kaggle:
        access = KaggleAccess(username="me", key="key", endpoint=kaggle.endpoint)
        check_upload(DATASET, access)
        assert upload(files, access).endswith(f"/datasets/{DATASET}")


def test_failures_of_the_server_are_repeated_and_refusals_are_not(files: list[Path], kaggle: Kaggle) -> None:
    """The first request is made again after a second."""
    pauses: list[float] = []
    kaggle.failures = [503]
    upload(files, kaggle.access, pause=pauses.append)
    assert pauses == [1.0]
    assert kaggle.requests[:2] == [f"POST {DATASETS}GetDatasetStatus"] * 2
    kaggle.failures = [400]
    with pytest.raises(PublishError):
        upload(files, kaggle.access, pause=pauses.append)
    assert pauses == [1.0]


def test_server_that_keeps_failing_ends_the_upload(files: list[Path], kaggle: Kaggle) -> None:
    """After three attempts."""
    pauses: list[float] = []
    kaggle.failures = [500] * 3
    with pytest.raises(PublishError) as refusal:
        upload(files, kaggle.access, pause=pauses.append)
    assert "HTTP 500 try again, Bearer ***" in refusal.value.why
    assert pauses == [1.0, 2.0]


def test_complaint_in_a_good_answer_is_a_refusal(files: list[Path], kaggle: Kaggle) -> None:
    """Kaggle says so with HTTP 200."""
    kaggle.complaint = "The requested title is already in use"
    with pytest.raises(PublishError) as refusal:
        upload(files, kaggle.access)
    assert refusal.value.why == "The requested title is already in use"


def test_redirect_is_not_followed(files: list[Path], kaggle: Kaggle) -> None:
    """Its target would get the token."""
    kaggle.failures = [302]
    with pytest.raises(PublishError, match="not uploaded"):
        upload(files, kaggle.access)
    assert not any("elsewhere" in request for request in kaggle.requests)


def test_storage_without_encryption_gets_nothing(files: list[Path], kaggle: Kaggle) -> None:
    """Only https, or this machine."""
    kaggle.storage = "http://storage.example.org"
    with pytest.raises(PublishError) as refusal:
        upload(files, kaggle.access)
    assert "it didn't say where to upload README.md" in refusal.value.why


def test_kaggle_that_cannot_be_reached_is_a_failure_of_publishing(files: list[Path]) -> None:
    """No traceback, and a next step."""
    pauses: list[float] = []
    with pytest.raises(PublishError, match="not uploaded"):
        upload(files, KaggleAccess(token=TOKEN, endpoint="http://127.0.0.1:9"), pause=pauses.append)
    assert len(pauses) == 2


def test_public_address_is_the_default() -> None:
    """A token alone is enough."""
    check_upload(DATASET, KaggleAccess(token=TOKEN))
    with pytest.raises(BadRequestError):
        check_upload(DATASET, KaggleAccess())
