"""Makes one commit on the Hugging Face Hub, as a program: huggingface_hub waits for an answer without a time limit.

Reads the commit from standard input, and writes the commit's URL, or why there is none, to standard output, as JSON.
"""

import json
import sys
from typing import Any


def commit(asked: dict[str, Any]) -> dict[str, str]:
    """Create the repository if there is none, commit the files, and return `url`, or `why`.

    Args:
        asked: endpoint, token, repo, private, files (paths by their names there), message.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, errors  # noqa: PLC0415
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # noqa: PLC0415

    disable_progress_bars()  # they would fill a log
    api = HfApi(endpoint=asked["endpoint"], token=asked["token"])
    files = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in asked["files"].items()]
    try:
        api.create_repo(asked["repo"], private=asked["private"], exist_ok=True)
        return {"url": api.create_commit(asked["repo"], files, commit_message=asked["message"]).commit_url}
    # The client's HTTP library differs by version; `errors` exports the HTTPError of the installed one.
    except (errors.HTTPError, OSError, ValueError, RuntimeError) as err:  # type: ignore[attr-defined]
        return {"why": str(err) or type(err).__name__}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(commit(json.load(sys.stdin))))
