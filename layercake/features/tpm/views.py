"""What people are shown of the TPM of a node."""

from __future__ import annotations

from typing import Any

from layercake.features.tpm import judging
from layercake.features.tpm.manager import Tpms
from layercake.features.tpm.module import TpmPart
from layercake.features.tpm.table import Known, Shown, compared
from layercake.fleet.store import Record


def tpm_view(record: Record, tpms: Tpms) -> dict[str, Any]:
    """A node's TPM as the API shows it: what the inventory asks for, what was recorded, and what
    was shown last."""
    part = tpms.part(record)
    known = tpms.of(record)
    session = record.session
    last = known.last
    return {
        "node": record.name,
        "asked": part.tpm,
        "secrets": part.secrets,
        "quoted": session is not None and session.quoted,
        "ek": known.ek,
        "since": known.since,
        "shown": last.ek if last is not None else "",
        "maker": last.maker if last is not None else "",
        "issuer": last.issuer if last is not None else "",
        "boot": last.boot if last is not None else "",
        "at": last.at if last is not None else 0.0,
        "resets": last.resets if last is not None else 0,
        "firmware": f"{last.firmware:016x}" if last is not None else "",
        "registers": [_register(number, last, part, known) for number in sorted(last.registers)]
        if last is not None
        else [],
        "troubles": tpms.troubles(record),
    }


def _register(number: int, shown: Shown, part: TpmPart, known: Known) -> dict[str, Any]:
    was = known.expected.get(judging.place(number, shown.boot), {}).get(number, "")
    return {
        "register": number,
        "what": judging.NAMES.get(number, ""),
        "value": compared(shown, number),
        "recorded": was,
        "wanted": number in part.tpm_registers,
    }
