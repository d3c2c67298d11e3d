"""Lists a bucket's objects, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element

from .client import Client
from .xml import parse

MOST_LISTED = 1000
"""S3's maximum number of keys per page."""


def list_objects(
    client: Client, prefix: str, *, page: int = MOST_LISTED, delimiter: str = ""
) -> Iterator[tuple[str, Element]]:
    """Yield the key of every object with a prefix, and its element in the response.

    Args:
        client: the bucket's client.
        prefix: the prefix of the keys.
        page: keys per page.
        delimiter: leaves out keys that contain it after the prefix.

    Raises:
        OSError: S3 can't be reached or refuses, or its response is invalid.
    """
    # URL-encoded, because a key may have characters that XML can't have.
    query = {"list-type": "2", "encoding-type": "url", "prefix": prefix, "max-keys": str(page)}
    if delimiter:
        query["delimiter"] = delimiter
    while True:
        listing = parse(client.call("GET", "", query=query).body)
        is_encoded = find_text(listing, "EncodingType") == "url"
        for entry in listing.iterfind("{*}Contents"):
            key = find_text(entry, "Key")
            yield unquote_plus(key) if is_encoded else key, entry
        more = find_text(listing, "NextContinuationToken")
        if not more:
            return
        query = {**query, "continuation-token": more}


def find_text(element: Element, name: str) -> str:
    """Return the text of the first child with this name, in any namespace; empty if there is none."""
    return element.findtext(f"{{*}}{name}", "")
