"""Which of torch's wheels a machine takes: by the version of its ROCm, or of the CUDA that its driver runs."""

from __future__ import annotations

import re

from .accelerators import Accelerators
from .errors import RequestError

INDEX = "https://download.pytorch.org/whl/"

# The version that the tag is for -> tag, in INDEX. The newest torch of each, and where that is said:
#   pytorch.org/get-started/previous-versions, as of 31 March 2026 (2.6.0 to 2.10.0), and PyTorch's release
#   compatibility matrix (RELEASE.md) for 2.13, github.com/pytorch/pytorch/pull/187075, 11 June 2026.
_ROCM = {
    (6, 1): "rocm6.1",  # 2.6.0
    (6, 2): "rocm6.2.4",  # 2.6.0
    (6, 3): "rocm6.3",  # 2.7.1
    (6, 4): "rocm6.4",  # 2.9.1
    (7, 1): "rocm7.1",  # 2.10.0
    (7, 2): "rocm7.2",  # 2.13
}
_CUDA = {
    (11, 8): "cu118",  # 2.7.1
    (12, 4): "cu124",  # 2.6.0
    (12, 6): "cu126",  # 2.13
    (12, 8): "cu128",  # 2.10.0
    (13, 0): "cu130",  # 2.13
}
_CPU = "cpu"
_TAG = re.compile(r"[a-z][a-z0-9.]*")


def choose_index(found: Accelerators, wanted: str = "") -> str:
    """Return the address of the index that pip takes torch from.

    Args:
        found: the machine's accelerators.
        wanted: a tag, such as rocm6.4, or the whole address of an index; empty: by the table.

    Raises:
        RequestError: `wanted` is neither.
    """
    if "://" in wanted:
        return wanted
    tag = wanted or choose_tag(found)
    if not _TAG.fullmatch(tag):
        raise RequestError(f"{tag!r} is no tag of torch's wheels", fix="write for example rocm6.4, cu128 or cpu")
    return INDEX + tag


def choose_tag(found: Accelerators) -> str:
    """Choose by the table; a GPU without a version that can be told gets the newest.

    A wheel brings all of ROCm's or CUDA's libraries and leaves only the driver to the machine. Within a major version
    drivers run older and newer ones, across them only older ones: the newest tag of the same major version that isn't
    newer than the machine's, else the oldest of the same major version, else the newest before it.
    """
    if found.archs:
        return _nearest(_ROCM, found.rocm)
    return _nearest(_CUDA, found.cuda) if found.cuda else _CPU


def _nearest(tags: dict[tuple[int, int], str], version: str) -> str:
    numbers = [int(number) for number in version.split(".")[:2] if number.isdigit()]
    if len(numbers) < 2:
        return tags[max(tags)]
    wanted = (numbers[0], numbers[1])
    same_major = [known for known in tags if known[0] == wanted[0]]
    not_newer = [known for known in same_major or tags if known <= wanted]
    return tags[max(not_newer) if not_newer else min(same_major or tags)]
