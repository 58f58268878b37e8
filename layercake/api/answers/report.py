"""What is answered of what happened in a time."""

from __future__ import annotations

import msgspec

from layercake.api.answers.head import Certificate, DatabaseShown, OutageShown, StopShown
from layercake.api.answers.images import RollShown


class ReportLine(msgspec.Struct):
    """A kind of event: how often it happened, when last (seconds since the epoch), how often to
    which node ("" is the head; of what is graver than info), what the kind means, and what the last
    one said, of which node."""

    kind: str
    count: int
    last: float
    nodes: dict[str, int]
    meaning: str
    node: str
    text: str


class SiteReport(msgspec.Struct):
    """What happened between two times (seconds since the epoch), by section, and how the site is
    now: nodes by status, outages, a freeze, the database, certificates that end soon. `rolls` are
    those that went on in that time."""

    since: float
    until: float
    head: str
    nodes: dict[str, int]
    outages: list[OutageShown]
    frozen: StopShown | None
    database: DatabaseShown
    certificates: list[Certificate]
    rolls: list[RollShown]
    sections: dict[str, list[ReportLine]]
