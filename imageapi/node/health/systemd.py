"""What a container's systemd says of itself, and whether that is well: the question, and a pure
function from the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layercake.base.text import first_few

_FAILED = "== failed"
_JOBS = "== jobs"
_SCRIPT = f"""
state=$(systemctl is-system-running 2>&1)
echo "$state"
case "$state" in initializing|starting|degraded|maintenance|stopping) ;; *) exit 0 ;; esac
echo "{_FAILED}"
systemctl list-units --state=failed --plain --no-legend --no-pager
echo "{_JOBS}"
systemctl list-jobs --no-legend --no-pager
exit 0
"""
COMMAND = ("/bin/sh", "-c", _SCRIPT)
"""What is run in the container. While all is well, or nobody is there yet to be asked, it is one
question and no more."""

_EARLY = ("", "initializing", "starting", "offline", "unknown")
_NO_BUS = "connect to bus"
"""What systemctl says before systemd takes calls."""

NAMED = 5
"""How many units a text names."""


def verdict(answer: str, allowed: Collection[str]) -> tuple[bool, str]:
    """(whether systemd is well, what is wrong otherwise). Units in `allowed` may have failed."""
    lines = answer.splitlines()
    state = lines[0].strip() if lines else ""
    failed = [unit for unit in _units(lines, _FAILED) if unit not in allowed]
    units = f"failed units: {first_few(failed, NAMED)}" if failed else ""
    if state == "running":
        return True, ""
    if state == "degraded":
        return not failed, units
    if state in ("stopping", "maintenance"):
        return False, f"systemd is {state}" + (f", {units}" if units else "")
    if state not in _EARLY and _NO_BUS not in state:
        return False, f"systemd does not answer: {state[:200]}"
    waits = f": waiting for {first_few(_waited_for(lines), NAMED)}" if _waited_for(lines) else ""
    return False, f"systemd has not finished starting{waits}" + (f"; {units}" if units else "")


def _section(lines: Sequence[str], title: str) -> list[list[str]]:
    """The lines below a title, in words, up to the next one."""
    if title not in lines:
        return []
    below = lines[lines.index(title) + 1 :]
    end = next((i for i, line in enumerate(below) if line.startswith("== ")), len(below))
    return [line.split() for line in below[:end] if line.strip()]


def _units(lines: Sequence[str], title: str) -> list[str]:
    return [fields[0] for fields in _section(lines, title)]


def _waited_for(lines: Sequence[str]) -> list[str]:
    """The units whose jobs run now ("12 slow.service start running"); all others wait for them."""
    jobs = [fields for fields in _section(lines, _JOBS) if len(fields) == 4]
    return [unit for _, unit, _, state in jobs if state == "running"] or [
        unit for _, unit, _, _ in jobs
    ]
