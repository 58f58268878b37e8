"""What webhooks say to receivers that have a form of their own: chats, pagers, Alertmanager. What
happened to many nodes is one alert; what is over resolves the alert of its beginning. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from layercake.base.text import count_of, printable
from layercake.fleet import events
from layercake.fleet.store import Event
from layercake.inventory.ranges import fold
from layercake.kraken.events import QUARANTINE_CLEARED, QUARANTINE_SET

Format = Literal["layercake", "slack", "mattermost", "teams", "pagerduty", "alertmanager"]
_PAIRS = ((events.OUTAGE_CALLED, events.OUTAGE_OVER), (QUARANTINE_SET, QUARANTINE_CLEARED))
ENDS: Mapping[str, str] = {end.name: begin.name for begin, end in _PAIRS}
"""What ends an alert: the kind that began it."""
_BEGIN = {begin.name: begin.severity for begin, _ in _PAIRS}
OF_EACH = frozenset({"pagerduty", "alertmanager"})
"""The formats whose receivers are told of each node, and resolve its alert by its key."""
_NUMBER = re.compile(r"[0-9]+")
MOST_TEXT = 1000
"""Characters that are told of one alert."""
MOST_NODES = 2000
"""Characters of node sets; of more the number alone is told."""
MOST_CHAT = 12_000
"""Characters of a message to a chat: Mattermost takes 16,383, Teams 28 KB. What is too long is
refused each time, and holds up all that comes after."""
OPEN_S = 7 * 86400.0
"""For how long Alertmanager holds what something will end: without, it calls it over by itself
after its resolve_timeout, 5 minutes."""


class Alert(NamedTuple):
    """One thing that happened, to one node or to many. `key` is the same for what ends it."""

    key: str
    kind: str
    severity: str
    nodes: str
    text: str
    at: float
    over: bool

    @property
    def line(self) -> str:
        """It, in a line."""
        of = f" of {self.nodes}" if self.nodes else ""
        return f"{'OVER: ' if self.over else ''}{self.kind}{of}: {self.text}"


def alerts(happened: Iterable[Event], *, of_each: bool = False) -> list[Alert]:
    """The alerts of these events, in the order of what happened last of each: of one that was over
    and began anew the beginning is told last. There is one for all nodes of which the same is said,
    but for its numbers, with what was said last. With `of_each`, what something ends has one for
    each node, which that resolves."""
    grouped: dict[tuple[str, ...], list[Event]] = {}
    for event in happened:
        about = str(event.data.get("domain", ""))
        if of_each and ENDS.get(event.kind, event.kind) in _BEGIN:
            about = event.node or about
        same = event.text.replace(event.node, "") if event.node else event.text
        key = (event.kind, about, "" if about else _NUMBER.sub("", same))
        grouped[key] = [*grouped.pop(key, ()), event]
    return [_alert(key[0], key[1], its) for key, its in grouped.items()]


def _alert(kind: str, about: str, its: Sequence[Event]) -> Alert:
    names = {event.node for event in its if event.node}
    nodes = fold(names)
    begun = ENDS.get(kind, kind)
    last = its[-1]
    return Alert(
        key=f"{begun} {about if begun in _BEGIN else its[0].id}".strip(),
        kind=kind,
        severity=str(_BEGIN.get(begun, last.severity)),
        nodes=nodes if len(nodes) <= MOST_NODES else count_of(len(names), "node"),
        text=printable(last.text, MOST_TEXT),
        at=last.at,
        over=kind in ENDS,
    )


Bodies = list[dict[str, Any] | list[dict[str, Any]]]


def lines(found: Sequence[Alert], head: str, left_out: int) -> list[str]:
    """The alerts, one in each line, as far as a message has room for them."""
    shown = [f"Layercake {head}"]
    left = MOST_CHAT
    for number, alert in enumerate(found):
        left -= len(alert.line) + 1
        if left < 0:
            shown.append(f"{count_of(len(found) - number, 'more alert')}: layercake events")
            break
        shown.append(alert.line)
    return [*shown, *([f"{count_of(left_out, 'event')} left out"] if left_out else [])]


def _slack(found: Sequence[Alert], head: str, left_out: int, secret: str) -> Bodies:
    """An incoming webhook of Slack. Its control characters are escaped, so no text becomes a link
    or a mention."""
    text = "\n".join(lines(found, head, left_out))
    for sign, word in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, word)
    return [{"text": text}]


def _mattermost(found: Sequence[Alert], head: str, left_out: int, secret: str) -> Bodies:
    """An incoming webhook of Mattermost. As code, in which nothing is Markdown or a mention."""
    plain = (line.replace("`", "'") for line in lines(found, head, left_out))
    return [{"text": "```\n" + "\n".join(plain) + "\n```"}]


def _teams(found: Sequence[Alert], head: str, left_out: int, secret: str) -> Bodies:
    """A workflow of Microsoft Teams that takes Adaptive Cards; as plain text runs, which are no
    Markdown."""
    blocks = [
        {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": line}]}
        for line in lines(found, head, left_out)
    ]
    schema = "http://adaptivecards.io/schemas/adaptive-card.json"
    card = {"$schema": schema, "type": "AdaptiveCard", "version": "1.4", "body": blocks}
    kind = "application/vnd.microsoft.card.adaptive"
    return [{"type": "message", "attachments": [{"contentType": kind, "content": card}]}]


_PAGED = {"debug": "info", "info": "info", "warning": "warning", "error": "critical"}


def _pagerduty(found: Sequence[Alert], head: str, left_out: int, secret: str) -> Bodies:
    """PagerDuty's Events API v2: one request for each alert. The secret is the routing key."""
    return [
        {
            "routing_key": secret,
            "event_action": "resolve" if alert.over else "trigger",
            "dedup_key": f"layercake/{head}/{alert.key}"[:255],
            "payload": {
                "summary": alert.line[:1024],
                "source": head,
                "severity": _PAGED.get(alert.severity, "warning"),
                "timestamp": _time(alert.at),
                "class": alert.kind,
            },
        }
        for alert in found
    ]


def _alertmanager(found: Sequence[Alert], head: str, left_out: int, secret: str) -> Bodies:
    """Alertmanager's POST /api/v2/alerts. What nothing ends is over when Alertmanager's
    resolve_timeout is; what something ends, when that is told, or after OPEN_S."""
    return [
        [
            {
                "labels": {
                    "alertname": ENDS.get(alert.kind, alert.kind),
                    "severity": alert.severity,
                    "head": head,
                    "key": alert.key,
                },
                "annotations": {"summary": alert.line},
                **_times(alert),
            }
            for alert in found
        ]
    ]


def _times(alert: Alert) -> dict[str, str]:
    if alert.over:
        return {"endsAt": _time(alert.at)}
    ends = {"endsAt": _time(alert.at + OPEN_S)} if alert.kind in _BEGIN else {}
    return {"startsAt": _time(alert.at), **ends}


def _time(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="milliseconds")


FORMATS: Mapping[str, Callable[[Sequence[Alert], str, int, str], Bodies]] = {
    "slack": _slack,
    "mattermost": _mattermost,
    "teams": _teams,
    "pagerduty": _pagerduty,
    "alertmanager": _alertmanager,
}
"""By name: the bodies of the requests that tell of alerts; of the head, how many events were left
out, and the webhook's secret."""
