"""Out-of-memory errors: how to recognise one, and the smaller micro-batch that the next start uses."""

import json
from pathlib import Path

import torch

from trainer.base.files import write_atomically


def is_out_of_memory(err: BaseException) -> bool:
    """Tell whether an error means that the device or the machine has no memory left."""
    # The CPU's allocator raises a plain RuntimeError ("DefaultCPUAllocator: can't allocate memory"), and so does
    # oneDNN with another text.
    texts = ("can't allocate memory", "could not create a memory object", "std::bad_alloc")
    if isinstance(err, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(err, RuntimeError) and any(text in str(err) for text in texts)


RESTART_FILE = "micro-batch.json"


class MicroBatchFile:
    """A file with the micro-batch for the next start. A process that ran out of memory and can't continue writes it.

    `asked` is the user's setting when it was written: if the user has changed the setting since, the file is ignored.
    """

    def __init__(self, path: Path, *, asked: int, per_device: int) -> None:
        self._path = path
        self._asked = {"asked": asked, "per_device": per_device}

    def write(self, micro_batch: int) -> None:
        """Write a micro-batch durably."""
        text = json.dumps({**self._asked, "micro_batch": micro_batch}) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, lambda stream: stream.write(text.encode()))

    def read(self) -> int | None:
        """Return the micro-batch that was written for this setting; None if there is none."""
        try:
            content = json.loads(self._path.read_text())
            if {**content, **self._asked} != content:
                return None
            return int(content["micro_batch"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
