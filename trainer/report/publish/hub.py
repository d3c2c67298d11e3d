"""Pushes files to the Hugging Face Hub in one commit, within a time limit."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from trainer.base.errors import PublishError, first_line
from trainer.base.hub import HubAccess

_PROGRAM = Path(__file__).with_name("hub_commit.py")
_SLOWEST = 1e6
"""Bytes in a second: an upload may take that much longer than a request without files."""
_LONGEST = 300


def push(repo: str, files: Mapping[str, Path], access: HubAccess, *, private: bool, message: str) -> str:
    """Commit files, by their names there, to a model repository, and return the commit's URL; creates the repository.

    All files are in one commit, so nobody sees half of them; unchanged files are not uploaded.

    Raises:
        PublishError: the Hub refuses the push, can't be reached, or doesn't answer in time.
    """
    asked = {
        "endpoint": access.endpoint,
        "token": access.token,
        "repo": repo,
        "private": private,
        "files": {name: str(path.absolute()) for name, path in files.items()},
        "message": message,
    }
    seconds = access.patience + sum(path.stat().st_size for path in files.values()) / _SLOWEST
    # -P: the modules beside the program aren't importable under their bare names.
    argv = [sys.executable, "-P", str(_PROGRAM)]
    try:
        done = subprocess.run(
            argv, input=json.dumps(asked), capture_output=True, text=True, timeout=seconds, check=True
        )
        answer = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as err:
        raise _failure(repo, f"the Hub has not answered within {seconds:.0f} s") from err
    except subprocess.CalledProcessError as err:
        raise _failure(repo, f"{err}: {err.stderr.strip()[-_LONGEST:]}") from err
    if "why" in answer:
        raise _failure(repo, first_line(answer["why"]))
    return str(answer["url"])


def _failure(repo: str, why: str) -> PublishError:
    return PublishError(
        f"the results were not pushed to {repo}",
        why=why,
        fix="they are safe in the output folder; run the same command again: it pushes without training",
    )
