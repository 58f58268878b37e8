"""What the API answers of the TPMs of nodes."""

from __future__ import annotations

import msgspec


class RegisterShown(msgspec.Struct, kw_only=True):
    """A register as it was shown last, and as it was recorded ("" if it was not), in hex. `wanted`:
    the inventory has it compared."""

    register: int
    what: str
    value: str
    recorded: str
    wanted: bool


class TpmShown(msgspec.Struct, kw_only=True):
    """A node's TPM. `asked` is what the inventory says: none, recorded or required; `quoted`: the
    boot that runs has shown who it is and what was booted, as recorded. `ek` is the SHA-256 of the
    endorsement key that was recorded, `shown` of that which was shown last, "" for none; `boot` is
    the boot set that was shown with it, `resets` how often the TPM was reset."""

    node: str
    asked: str
    secrets: str
    quoted: bool
    ek: str
    since: float
    shown: str
    maker: str
    issuer: str
    boot: str
    at: float
    resets: int
    firmware: str
    registers: list[RegisterShown]
    troubles: list[str]


class TpmList(msgspec.Struct, kw_only=True):
    """The TPMs of nodes."""

    tpms: list[TpmShown]


class StepShown(msgspec.Struct, kw_only=True):
    """Something that went into a register, by the node's event log."""

    register: int
    kind: str
    digest: str
    text: str


class OneTpm(msgspec.Struct, kw_only=True):
    """A node's TPM, and the event log that was shown last."""

    tpm: TpmShown
    log: list[StepShown]
