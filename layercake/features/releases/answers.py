"""What the API answers of releases."""

from __future__ import annotations

import msgspec


class ReleaseStep(msgspec.Struct, kw_only=True):
    """A step: when it began and ended, in seconds since the epoch, 0 for not yet; `result` is done,
    left, failed, or "" while it is not over; `tries` counts how often it was begun; `witness` says
    whose word its end is: bmc, tpm, head, or only the node's own (node)."""

    name: str
    began: float
    ended: float
    result: str
    detail: str
    tries: int
    witness: str


class ErasedDisk(msgspec.Struct, kw_only=True):
    """A disk that was erased: how, in how many seconds, and whether samples that were read back are
    blank."""

    model: str
    serial: str
    way: str
    seconds: float
    size: int
    verified: bool


class OneRelease(msgspec.Struct, kw_only=True):
    """A release: running, failed, unconfirmed (a person has to vouch for it), abandoned, freed or
    done. `left` are disks that were not erased, and why."""

    id: str
    by: str
    asked: float
    ended: float
    force: bool
    state: str
    abandoned_by: str
    freed_by: str
    confirmed_by: str
    steps: list[ReleaseStep]
    disks: list[ErasedDisk]
    left: list[str]


class NodeReleaseList(msgspec.Struct, kw_only=True):
    """A node's releases, the newest first; `held` says why nothing is started on it, "" if no
    release holds it."""

    node: str
    held: str
    releases: list[OneRelease]
