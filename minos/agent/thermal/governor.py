"""The processors' frequency governor (Linux' cpufreq): another one while a node is too warm, and
the one from before after that."""

from __future__ import annotations

import json
from pathlib import Path

_PLACE = "devices/system/cpu/cpufreq"
_IT = "the processors' governor"


class Governors:
    """Those of all processors. What was before stands in the file `kept`, so that the agent that
    takes over knows it."""

    def __init__(self, kept: Path, sys: str = "/sys") -> None:
        self._place = Path(sys, _PLACE)
        self._kept = kept
        self._set = ""
        self._before = dict[str, str]()
        if kept.exists():
            self._set, self._before = json.loads(kept.read_text())

    def be(self, wanted: str) -> str:
        """Sets a governor everywhere, or what was before if it is "". Returns what people should
        know, "" if nothing had to be done."""
        if wanted == self._set:
            return ""
        self._set = wanted
        if not wanted:
            failed = [
                why for policy, old in self._before.items() if (why := _write(Path(policy), old))
            ]
            self._before.clear()
            self._kept.unlink(missing_ok=True)
            return f"{_IT} could not be set back: {failed[0]}" if failed else f"{_IT} is as before"
        policies = sorted(self._place.glob("policy*"))
        if not policies:
            return f"the processors have no governor that could be {wanted}"
        failed = []
        for policy in policies:
            old = _read(policy / "scaling_governor")
            if wanted not in _read(policy / "scaling_available_governors").split():
                failed.append("they do not have it")
            elif why := _write(policy, wanted):
                failed.append(why)
            else:
                self._before.setdefault(str(policy), old)
        self._kept.write_text(json.dumps([self._set, self._before]))
        return f"{_IT} could not be {wanted}: {failed[0]}" if failed else f"{_IT} is {wanted}"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _write(policy: Path, word: str) -> str:
    """Why it could not be written, "" if it was."""
    try:
        (policy / "scaling_governor").write_text(word)
    except OSError as error:
        return error.strerror or str(error)
    return ""
