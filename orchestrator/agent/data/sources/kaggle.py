"""`kaggle://competitions/NAME` and `kaggle://datasets/OWNER/NAME[@VERSION]`: downloads and unpacks the whole archive.

Source: kagglesdk 0.1 (the client in Kaggle's own command line), datasets/types/dataset_api_service.py and
competitions/types/competition_api_service.py, read in November 2026. Both answer with a redirect to storage.
"""

from __future__ import annotations

import base64
from urllib.parse import quote

from .address import parse_kaggle
from .https import download_file
from .refusals import Access
from .task import FetchedSource, Task
from .web import Web

_ENDPOINT = "https://www.kaggle.com"
_SECRETS = "KAGGLE_API_TOKEN (or KAGGLE_USERNAME and KAGGLE_KEY)"


def fetch(task: Task) -> FetchedSource:
    """Download and unpack a competition's data or a data set.

    Raises:
        AgentError: Kaggle refuses, or the archive can't be unpacked.
        OSError: Kaggle can't be reached.
    """
    kind, name, version = parse_kaggle(task.address)
    home = task.setting("KAGGLE_API_ENDPOINT").rstrip("/") or _ENDPOINT
    authorization = _authorization(task)
    is_competition = kind == "competitions"
    path = f"competitions/data/download-all/{quote(name)}" if is_competition else f"datasets/download/{quote(name)}"
    query = f"?datasetVersionNumber={quote(version)}" if version else ""
    rules = f"accept the rules of the competition at {_ENDPOINT}/c/{name}/rules" if is_competition else ""
    access = Access(f"{kind}/{name} of Kaggle", _SECRETS, is_sent=bool(authorization), hint=rules)
    return download_file(task, Web(home, authorization), f"{home}/api/v1/{path}{query}", access, unpacks=True)


def _authorization(task: Task) -> str:
    if token := task.credential("KAGGLE_API_TOKEN"):
        return f"Bearer {token}"
    user, key = task.credential("KAGGLE_USERNAME"), task.credential("KAGGLE_KEY")
    return f"Basic {base64.b64encode(f'{user}:{key}'.encode()).decode()}" if user and key else ""
