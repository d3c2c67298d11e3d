"""XML answers of an S3 endpoint, which may be hostile."""

from __future__ import annotations

import pytest

from orchestrator.agent.s3.xml import error_code, parse

BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><Error><Code>&b;</Code></Error>'


@pytest.mark.parametrize(
    "answer",
    [
        b"<Error><Code>NoSuchKey</Code><Message>&lt;Code&gt;</Message></Error>",
        b'<?xml version="1.0"?>\n<Error xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Code>NoSuchKey</Code></Error>',
        b' \n \n<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>',
    ],
)
def test_an_errors_code_is_found_in_any_namespace(answer: bytes) -> None:
    """Also after the spaces that S3 sends while it works on a long request."""
    assert error_code(answer) == "NoSuchKey"


@pytest.mark.parametrize(
    "answer",
    [b"", b"<Error><Code>cut", b"<html>no", b"\xff", BOMB, BOMB.decode().encode("utf-16"), b"<a>" + b" " * (17 << 20)],
    ids=["nothing", "cut", "no XML", "no UTF-8", "entities", "entities in UTF-16", "too long"],
)
def test_xml_that_is_no_answer_of_s3_is_refused_and_has_no_code(answer: bytes) -> None:
    """XML entities could expand without end."""
    with pytest.raises(OSError, match="is invalid"):
        parse(answer)
    assert error_code(answer) == ""


def test_an_answer_that_is_no_error_has_no_code() -> None:
    """For example the answer that completes a multipart upload."""
    assert error_code(b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>") == ""
