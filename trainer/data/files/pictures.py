"""What decoding a picture may raise: a module of its own, because Pillow is an optional package."""

import struct
import zlib

from PIL import Image

DAMAGED = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError, SyntaxError, AssertionError, MemoryError),
    *(struct.error, zlib.error, Image.DecompressionBombError),
)
"""All errors that Pillow raises for a damaged file: its parsers of chunks and markers let Python's own ones through."""
