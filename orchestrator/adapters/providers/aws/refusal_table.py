"""AWS's refusals of a launch, as data: what each means, what kedge does, and what a person can do.

Codes: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html (November 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.adapters.aws_sdk import SCP, SIGN_IN


class Reaction(StrEnum):
    """What kedge does about a refusal."""

    NEXT_POOL = "try the next offer"
    NEXT_ZONE = "try the next zone"
    NEXT_REGION = "go on to the next region"
    NEXT_QUOTA = "skip all offers that count against this quota in this region"
    RETRY = "ask again, a bounded number of times, with the same token"
    UNCLEAR = "ask again with the same token, then look the machine up by its tag; it may exist"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One or more of AWS's codes that mean the same.

    Attributes:
        codes: as AWS sends them; `*` stands for any ending.
        says: a part of the message, in lower case, where the code alone doesn't tell.
        about: the same for people who read the table.
        remedy: what a person can do; `{quota}` and `{url}` are filled in.
        our_fault: the request can't be carried out as written, or not by this account.
    """

    codes: tuple[str, ...]
    meaning: str
    reaction: Reaction
    remedy: str
    says: str = ""
    about: str = ""
    our_fault: bool = False


_ASK_FOR_MORE = "ask for a higher quota {quota} at {url}, or try another --region or market"

# The first that matches counts.
REFUSALS = (
    Refusal(
        codes=("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"),
        meaning="no machine of this type is free in this zone now",
        reaction=Reaction.NEXT_POOL,
        remedy="allow more zones, regions or types, or try again later",
    ),
    Refusal(
        codes=("SpotMaxPriceTooLow",),
        meaning="the spot price is above the highest that was allowed",
        reaction=Reaction.NEXT_POOL,
        remedy="raise --max-price or leave it out, or launch without --spot",
    ),
    Refusal(
        codes=("UnfulfillableCapacity",),
        meaning="there is not enough spot capacity for this type in this zone",
        reaction=Reaction.NEXT_POOL,
        remedy="allow more zones, regions or types, or launch without --spot",
    ),
    Refusal(
        codes=("Unsupported",),
        meaning="this zone doesn't have this type",
        reaction=Reaction.NEXT_POOL,
        remedy="choose another --zone or --instance-type",
    ),
    Refusal(
        codes=("InsufficientFreeAddressesInSubnet",),
        meaning="the subnet of this zone has no address left",
        reaction=Reaction.NEXT_ZONE,
        remedy="end machines that hold addresses, or choose another --zone",
    ),
    Refusal(
        codes=("MissingInput", "InvalidInput"),
        meaning="this zone has no default subnet",
        reaction=Reaction.NEXT_ZONE,
        remedy="make one with `aws ec2 create-default-subnet --availability-zone ZONE`, or choose another --zone",
    ),
    Refusal(
        codes=("VolumeTypeNotAvailableInZone", "InsufficientVolumeCapacity"),
        meaning="this zone doesn't have gp3 volumes, or none is free in it now",
        reaction=Reaction.NEXT_ZONE,
        remedy="choose another --zone",
    ),
    Refusal(
        codes=("InvalidSubnetID.NotFound",),
        meaning="the subnet of this zone is gone",
        reaction=Reaction.NEXT_ZONE,
        remedy="name a subnet that is there, or choose another --zone",
    ),
    Refusal(
        codes=("UnsupportedOperation",),
        meaning="this type can't be had in this way: on this market, or with this image",
        reaction=Reaction.NEXT_POOL,
        remedy="choose another --instance-type, another image_id, or the other market",
    ),
    Refusal(
        codes=("VolumeLimitExceeded", "MaxIOPSLimitExceeded"),
        meaning="the account may not have so many volumes, or so much of their storage or speed, in this region",
        reaction=Reaction.NEXT_REGION,
        remedy="delete volumes that nobody needs, allow more regions, or ask for a higher quota of EBS",
    ),
    Refusal(
        codes=("VcpuLimitExceeded",),
        meaning="the account may not run so many vCPUs of this family on demand",
        reaction=Reaction.NEXT_QUOTA,
        remedy=_ASK_FOR_MORE,
    ),
    Refusal(
        codes=("MaxSpotInstanceCountExceeded",),
        meaning="the account may not run so many spot vCPUs of this family",
        reaction=Reaction.NEXT_QUOTA,
        remedy=_ASK_FOR_MORE,
    ),
    Refusal(
        codes=("InstanceLimitExceeded",),
        meaning="the account may not run so many machines of this family",
        reaction=Reaction.NEXT_QUOTA,
        remedy=_ASK_FOR_MORE,
    ),
    Refusal(
        codes=("RequestLimitExceeded", "Throttling", "ThrottlingException", "SlowDown"),
        meaning="too many calls in a short time",
        reaction=Reaction.RETRY,
        remedy="try again in a minute",
    ),
    Refusal(
        codes=("InternalError", "InternalFailure", "ServerInternal", "Unavailable", "ServiceUnavailable"),
        meaning="AWS itself failed; whether it had begun isn't known",
        reaction=Reaction.UNCLEAR,
        remedy="look with `kedge status`; https://health.aws.amazon.com says whether a region is ill",
    ),
    Refusal(
        codes=("InvalidParameterValue",),
        says="iaminstanceprofile",
        about="about the instance profile",
        meaning="the role of the run was made a moment ago and isn't known everywhere yet",
        reaction=Reaction.RETRY,
        remedy="try again in a minute",
    ),
    Refusal(
        codes=("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        says="perform: iam:",
        about="of a call of IAM",
        meaning="this user may not hand the run's role to a machine, in whatever region",
        reaction=Reaction.STOP,
        remedy="have an administrator allow the call, or use another AWS_PROFILE",
    ),
    Refusal(
        codes=("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        says=SCP,
        about="by a service control policy",
        meaning="the account's organization forbids it in this region",
        reaction=Reaction.NEXT_REGION,
        remedy="choose another --region, or have the organization's administrator allow it",
    ),
    Refusal(
        codes=("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        meaning="this user may not do this",
        reaction=Reaction.STOP,
        remedy="have an administrator allow the call, or use another AWS_PROFILE",
    ),
    Refusal(
        codes=("AuthFailure.ServiceLinkedRoleCreationNotPermitted",),
        meaning="the account has never used spot machines, and this user may not make the role that AWS needs for them",
        reaction=Reaction.STOP,
        remedy="have an administrator run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`",
        our_fault=True,
    ),
    Refusal(
        codes=("AuthFailure", "UnrecognizedClientException", "InvalidClientTokenId", "SignatureDoesNotMatch"),
        meaning="AWS doesn't accept the credentials, or not in this region",
        reaction=Reaction.STOP,
        remedy=SIGN_IN,
        our_fault=True,
    ),
    Refusal(
        codes=("ExpiredToken", "ExpiredTokenException", "RequestExpired"),
        meaning="the credentials have expired, or this computer's clock is wrong",
        reaction=Reaction.STOP,
        remedy=SIGN_IN,
        our_fault=True,
    ),
    Refusal(
        codes=("IdempotentParameterMismatch",),
        meaning="a machine was asked for with this token before, but another one",
        reaction=Reaction.STOP,
        remedy="look with `kedge status`, end what is there with `kedge teardown`, then launch again",
    ),
    Refusal(
        codes=("IdempotentInstanceTerminated",),
        meaning="the machine that was asked for with this token has been made, and has ended since",
        reaction=Reaction.STOP,
        remedy="look with `kedge status`, then go on with `kedge resume`, which asks for a new machine",
    ),
    Refusal(
        codes=("InvalidAMIID.*",),
        meaning="there is no such image in this region",
        reaction=Reaction.STOP,
        remedy="name an image of the region under image_id, or leave it out",
        our_fault=True,
    ),
    Refusal(
        codes=("InvalidParameter*", "InvalidUserData.*", "InvalidBlockDeviceMapping", "MissingParameter"),
        meaning="something in the request isn't valid",
        reaction=Reaction.STOP,
        remedy="change what AWS names; if nothing in the job says so, report it as kedge's mistake",
        our_fault=True,
    ),
    Refusal(
        codes=("TagPolicyViolation",),
        meaning="the account's organization has rules for tags, which these break",
        reaction=Reaction.STOP,
        remedy="change the tags in the job file, under `provider.aws.tags`, as AWS says",
        our_fault=True,
    ),
    Refusal(
        codes=("OptInRequired",),
        meaning="the account hasn't enabled this region or service",
        reaction=Reaction.STOP,
        remedy="enable it in the account's settings, or choose another --region",
        our_fault=True,
    ),
    Refusal(
        codes=("VPCIdNotSpecified", "DefaultVpcDoesNotExist"),
        meaning="the region has no default VPC",
        reaction=Reaction.STOP,
        remedy="name a subnet of yours in the job file, under `provider.aws.subnet`",
        our_fault=True,
    ),
    Refusal(
        codes=("PendingVerification", "Blocked"),
        meaning="AWS is checking the account, or has blocked it",
        reaction=Reaction.STOP,
        remedy="wait for AWS's mail (up to a few hours), or ask its support",
    ),
)

UNKNOWN = Refusal(
    codes=("any other",),
    meaning="kedge doesn't know it",
    reaction=Reaction.STOP,
    remedy="look the code up at https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html",
)
LOST = Refusal(
    codes=("no answer",),
    meaning="the connection broke, or time ran out, after the request was sent",
    reaction=Reaction.UNCLEAR,
    remedy="look with `kedge status`, and end what is there with `kedge teardown`",
)
UNSENT = Refusal(
    codes=("no connection",),
    meaning="the request was never sent",
    reaction=Reaction.STOP,
    remedy="check the network, and that the region is called so",
)

FAILED_STARTS = {
    "Client.InternalError": "its disk can't be made: most often the key that encrypts it may not be used",
    "Client.InvalidSnapshot.NotFound": "a snapshot of its image is gone",
    "Client.VolumeLimitExceeded": "the account may not have so many volumes, or so much storage, in this region",
    "Server.InsufficientInstanceCapacity": "no machine of this type was free after all",
    "Server.InternalError": "AWS itself failed",
}
"""State reasons of an instance that has never run, and what they mean: its launch failed after AWS had said yes.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html (November 2026).
"""
