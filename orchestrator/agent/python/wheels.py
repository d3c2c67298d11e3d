"""Chooses the index of torch wheels for a machine, by its ROCm version or the CUDA version that its driver supports."""

from __future__ import annotations

import re

from ..base.errors import RequestError
from ..gpu.accelerators import Accelerators

INDEX = "https://download.pytorch.org/whl/"

# ROCm or CUDA version -> tag in INDEX. The comments have the newest torch of each tag, from these sources:
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
    """Return the URL of the index for pip to install torch from.

    Args:
        found: the machine's accelerators.
        wanted: a tag, such as rocm6.4, or an index's URL; empty: chosen by the table.

    Raises:
        RequestError: `wanted` is neither a tag nor a URL.
    """
    if "://" in wanted:
        return wanted
    tag = wanted or choose_tag(found)
    if not _TAG.fullmatch(tag):
        raise RequestError(f"{tag!r} is not a tag of torch's wheels", fix="write for example rocm6.4, cu128 or cpu")
    return INDEX + tag


def choose_tag(found: Accelerators) -> str:
    """Choose a tag by the table; a GPU whose version is unknown gets the newest.

    A wheel has all of ROCm's or CUDA's libraries; only the driver is the machine's. A driver supports older and newer
    libraries of its own major version, but only older major versions. So the choice is the newest tag of the same major
    version that isn't newer than the machine's, else the oldest of the same major version, else the newest before it.
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
