"""How a revision is written: by the first digits of its hash, as HEAD~3, or as the time up to which
it was in force. Nothing else gets to git. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from layercake.base.text import show
from layercake.kraken.errors import InputError

_NAMED = re.compile(r"(?:HEAD|[0-9a-f]{4,40})(?:~[0-9]{1,6})?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
HINT = (
    "HEAD, HEAD~3, the first digits of a revision (`layercake inventory log`), yesterday, or a "
    "time as 2026-11-27T08:00"
)


def parse_revision(text: str, now: float) -> str:
    """A revision as the repository is asked for it: a name, or "@SECONDS" for the newest before a
    time. A time without a zone is that of the head's machine; `yesterday` is as it was when today
    began. Raises InputError."""
    if _NAMED.fullmatch(text):
        return text
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if text == "yesterday":
            return f"@{int(today.timestamp())}"
        if _TIME.fullmatch(text):
            at = datetime.fromisoformat(text)
            at += timedelta(days=1) if len(text) == 10 else timedelta()  # the whole day
            return f"@{max(0, int(at.timestamp()))}"
    except (ValueError, OverflowError, OSError):
        pass
    raise InputError(f"cannot use {show(text)} as a revision", hint=HINT)


def parse_span(text: str, now: float) -> tuple[str, str]:
    """What is to be undone: one revision, ("", it), or A..B, all after A up to B. Raises
    InputError."""
    since, dots, until = text.partition("..")
    if not dots:
        return "", parse_revision(text, now)
    return parse_revision(since, now), parse_revision(until or "HEAD", now)
