"""Downloads weights from the Hugging Face Hub: one file, or the shards that an index lists. `HF_TOKEN` is optional."""

import json
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from trainer.base.errors import BadRequestError, first_line
from trainer.base.hub import HubAccess

PREFIX = "hf:"
INDEX_SUFFIX = ".index.json"
_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[^@]+))?(?:@(?P<revision>.+))?")
# What a repository of one model has, best first; pickled files come last.
_USUAL = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReference:
    """A model's place on the Hub; `file` and `revision` may be open."""

    repo: str
    file: str | None
    revision: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloaded:
    """The files on this machine, and the exact place that they came from."""

    files: tuple[Path, ...]
    origin: str


def parse_reference(text: str) -> HubReference:
    """Read `hf:OWNER/NAME[/FILE][@REVISION]`.

    Raises:
        BadRequestError: it has another form.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise _refusal(text, why="a place on the Hub is hf:OWNER/NAME[/FILE][@REVISION]", fix="write it like that")
    return HubReference(repo=match["repo"], file=match["file"], revision=match["revision"])


def download(text: str, access: HubAccess) -> Downloaded:
    """Download a model's weights into huggingface_hub's cache; files that are there already are not downloaded.

    Raises:
        BadRequestError: huggingface_hub is missing, there is no such model or file, or the Hub can't be reached.
    """
    reference = parse_reference(text)
    if find_spec("huggingface_hub") is None:
        raise _refusal(text, why="huggingface_hub is not installed", fix="pip install huggingface_hub")
    from huggingface_hub import errors  # noqa: PLC0415

    try:
        return _download(reference, access)
    # The client's HTTP library differs by version; `errors` exports the HTTPError of the installed one.
    except (errors.HTTPError, OSError, ValueError, RuntimeError) as err:  # type: ignore[attr-defined]
        raise _refusal(
            text,
            why=first_line(err),
            fix="look at the name, the revision and the network; a private model needs HF_TOKEN",
        ) from err


def _download(reference: HubReference, access: HubAccess) -> Downloaded:
    from huggingface_hub import HfApi, hf_hub_download  # noqa: PLC0415

    info = HfApi(endpoint=access.endpoint, token=access.token).model_info(reference.repo, revision=reference.revision)
    names = [item.rfilename for item in info.siblings or []]
    name = reference.file or _choose(reference.repo, names)

    def fetch(file: str) -> Path:
        path = hf_hub_download(reference.repo, file, revision=info.sha, token=access.token, endpoint=access.endpoint)
        return Path(path)

    first = fetch(name)
    shards = list_shards(first) if name.endswith(INDEX_SUFFIX) else []
    folder = f"{name.rpartition('/')[0]}/".lstrip("/")
    files = tuple(fetch(f"{folder}{shard}") for shard in shards) or (first,)
    return Downloaded(files=files, origin=f"hf:{reference.repo}/{name}@{(info.sha or 'main')[:12]}")


def list_shards(index: Path) -> list[str]:
    """List the files that an index of safetensors names.

    Raises:
        ValueError: it isn't an index, or names files outside of its folder.
    """
    content = json.loads(index.read_text())
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{index.name} is no index of safetensors: it has no weight_map")
    shards = list(dict.fromkeys(str(name) for name in places.values()))
    outside = next((name for name in shards if Path(name).name != name), None)
    if outside is not None:
        raise ValueError(f"{index.name} names a file in another folder: {outside}")
    return shards


def _choose(repo: str, names: list[str]) -> str:
    usual = next((name for name in _USUAL if name in names), None)
    candidates = [name for name in names if name.endswith((".safetensors", ".bin", ".pt", ".pth", ".ckpt"))]
    if usual or len(candidates) == 1:
        return usual or candidates[0]
    listed = f"it has {', '.join(candidates[:8])}" if candidates else "it has no file of weights"
    raise ValueError(f"{repo} doesn't say which file has the weights (hf:{repo}/FILE): {listed}")


def _refusal(text: str, *, why: str, fix: str) -> BadRequestError:
    return BadRequestError(f"--init {text} cannot be used", why=why, fix=fix)
