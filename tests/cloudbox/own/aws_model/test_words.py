"""What stands in AWS's models in words only is understood: read by rule, or decided by hand."""

from __future__ import annotations

import pytest
from botocore.model import OperationModel, Shape

from tests.cloudbox.aws.model.check import rules_of, unread
from tests.cloudbox.aws.model.decided import DECISIONS, NEEDED, decision_on
from tests.cloudbox.aws.model.reader import read
from tests.cloudbox.aws.model.rules import Characters, Length, Matching, NotBoth, OneOf, Rule, Span
from tests.cloudbox.aws.model.sent import model_of
from tests.cloudbox.aws.model.texts import constraining, sentences
from tests.cloudbox.aws.model.used import PRODUCT, TESTS, members_of, used_operations

OF_GROUPS = r"[a-zA-Z0-9 \._\-:/\(\)\#,@\[\]\+=\&;\{\}!\$\*]"


def test_no_words_of_the_operations_that_kedge_uses_are_left() -> None:
    """A new call, or a new SDK, brings sentences: the reader learns them, or a person decides them.

    What only tests send is checked when it is sent: a member with words that nobody has decided is refused.

    fact: aws-words-are-rules
    """
    left = [
        f"{service}.{structure}.{member}: {sentence}"
        for service, structure, member, shape in _members(*PRODUCT)
        for sentence in unread(service, structure, member, shape)
    ]
    assert not left, "read or decide (tests/cloudbox/aws/model/decided.py):\n" + "\n".join(left)


def test_every_decision_decides_something() -> None:
    """A decision about what nobody sends any more, or what the reader has learned to read, goes."""
    used = {
        decision_on(service, f"{structure}.{member}", sentence)
        for service, structure, member, shape in _members(*PRODUCT, *TESTS)
        for sentence in constraining(shape.documentation)
        if read(sentence, shape) is None
    }
    assert not [(each.members, each.says) for each in DECISIONS if each not in used]
    assert not [each for each in DECISIONS if bool(each.rules) == bool(each.why)]
    structures = {f"{service}.{structure}": shape for service, structure, _, shape in _members(*PRODUCT, *TESTS)}
    assert not [each for each in NEEDED if each.structure not in structures]


@pytest.mark.parametrize(
    ("operation", "path", "rules"),
    [
        ("CreateSecurityGroup", "Description", (Length(255), Characters(OF_GROUPS))),
        ("CreateSecurityGroup", "GroupName", (Length(255), "it may not begin with sg-", Characters(OF_GROUPS))),
        ("RunInstances", "ClientToken", (Length(64), Characters(r"[\x00-\x7f]"))),
        ("TerminateInstances", "InstanceIds", (Length(1000),)),
        ("RunInstances", "Placement.AvailabilityZone", (NotBoth(("AvailabilityZone", "AvailabilityZoneId")),)),
        ("RunInstances", "MetadataOptions.HttpPutResponseHopLimit", (Span(1, 64),)),
        ("CreateVolume", "VolumeInitializationRate", (Span(100, 300),)),
        ("DescribeSecurityGroups", "MaxResults", (Span(5, 1000),)),
    ],
)
def test_words_become_rules(operation: str, path: str, rules: tuple[Rule | str, ...]) -> None:
    """What EC2's documentation says of a member is what its values are checked against."""
    model = model_of("ec2").operation_model(operation)
    structure, member, shape = _find(model, path)
    read_rules = rules_of("ec2", structure, member, shape)
    said = [each.says if isinstance(each, Matching) else each for each in read_rules]
    assert [each for each in said if each in rules] == list(rules)


def test_the_volumes_of_a_kind_have_limits_of_their_own() -> None:
    """What is said of gp3 ("gp3: 3,000 - 80,000 IOPS") doesn't hold for others."""
    structure, member, shape = _find(model_of("ec2").operation_model("CreateVolume"), "Iops")
    rules = rules_of("ec2", structure, member, shape)
    assert Span(3000, 80000, when=("VolumeType", ("gp3",))) in rules
    assert [each.broken_by("100", {"VolumeType": "io1"}) for each in rules] == [None] * len(rules)
    assert any(each.broken_by("100", {"VolumeType": "gp3"}) for each in rules)


def test_a_sentence_that_says_something_new_is_left_to_people() -> None:
    """What isn't understood is never taken for nothing."""
    shape = Shape("Colour", {"type": "string", "documentation": "<p>A colour. It must be of the season.</p>"})
    assert constraining(shape.documentation) == ("It must be of the season.",)
    assert read("It must be of the season.", shape) is None
    assert unread("ec2", "Paint", "Colour", shape) == ["It must be of the season."]


def test_sentences_are_taken_apart_at_their_ends_only() -> None:
    """A set of characters has full stops and semicolons inside."""
    text = "<p>Constraints: Up to 255 characters in length. Allowed characters are a-z, and ._-:/()#,@[]+=&amp;;{}</p>"
    assert sentences(text)[-1] == "Allowed characters are a-z, and ._-:/()#,@[]+=&;{}"


def test_values_in_words_are_an_enumeration() -> None:
    """The model lacks some that its words have: "Valid values: `a` | `b`"."""
    shape = Shape("Kind", {"type": "string"})
    assert read("Valid values: `interface` | `efa`", shape) == (OneOf(("interface", "efa")),)


def _members(*folders: str) -> list[tuple[str, str, str, Shape]]:
    return [
        (operation.service_model.service_name, structure, member, shape)
        for operation in used_operations(*folders)
        for structure, member, shape in members_of(operation)
    ]


def _find(operation: OperationModel, path: str) -> tuple[str, str, Shape]:
    name = path.rpartition(".")[2]
    parent = path.split(".")[-2] if "." in path else operation.input_shape.name if operation.input_shape else ""
    return next(
        found
        for found in members_of(operation)
        if found[1] == name and (found[0].startswith(parent) or found[0] == f"Instance{parent}Request")
    )
