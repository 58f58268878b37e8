"""What the API answers of releases."""

from __future__ import annotations

import msgspec

from layercake.features.releases.record import ErasedDisk, ReleaseStep


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


class ReleasesOfNodes(msgspec.Struct, kw_only=True):
    """The releases of nodes, one entry for each node of the range."""

    nodes: list[NodeReleaseList]
