"""The text of `node explain`: written for a person at night, most important things first."""

from __future__ import annotations

import time
from typing import Any


def _when(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def explain_text(view: dict[str, Any]) -> str:
    """The explanation of `views.explain_view` as lines of text."""
    lines = [f"{view['node']}: {view['status']}" + (f" ({view['status_text']})" if view["status_text"] else "")]
    lines.append("  is:      " + " ".join(f"{k}={v}" for k, v in view["state"].items()))
    lines.append("  wanted:  " + (" ".join(f"{k}={v}" for k, v in view["goal"].items()) or "nothing"))
    blocked = view.get("blocked") or []
    for text in [blocked] if isinstance(blocked, str) else blocked:
        lines.append(f"  blocked: {text}")
    chain = view.get("chain")
    if chain is None:
        lines.append("  way:     none")
    elif chain:
        lines.append("  way:")
        lines += [f"    {n}. {step['name']:<16} {step['doc']} [{step['where']}]" for n, step in enumerate(chain, 1)]
    tried = view.get("attempts") or {}
    if tried:
        lines.append("  tried:   " + ", ".join(f"{name} {count}x" for name, count in tried.items()))
    if view["boot"]:
        lines.append("  the last boot:")
        lines += [f"    {_when(e['at'])} {e['kind']}: {e['text']}" for e in view["boot"]]
    if view["trouble"]:
        lines.append("  the last trouble:")
        lines += [f"    {_when(e['at'])} {e['kind']}: {e['text']}" for e in view["trouble"]]
    return "\n".join(lines)
