"""The table of features: each is named once, here."""

from __future__ import annotations

from layercake.features.access.feature import FEATURE as ACCESS
from layercake.features.authority.feature import FEATURE as AUTHORITY
from layercake.features.boots.feature import FEATURE as BOOTS
from layercake.features.calls.feature import FEATURE as CALLS
from layercake.features.captures.feature import FEATURE as CAPTURES
from layercake.features.consoles.feature import FEATURE as CONSOLES
from layercake.features.disks.feature import FEATURE as DISKS
from layercake.features.events.feature import FEATURE as EVENTS
from layercake.features.files.feature import FEATURE as FILES
from layercake.features.guard.feature import FEATURE as GUARD
from layercake.features.heads.feature import FEATURE as HEADS
from layercake.features.history.feature import FEATURE as HISTORY
from layercake.features.images.feature import FEATURE as IMAGES
from layercake.features.inventory.feature import FEATURE as INVENTORY
from layercake.features.logs.feature import FEATURE as LOGS
from layercake.features.machines.feature import FEATURE as MACHINES
from layercake.features.nodes.feature import FEATURE as NODES
from layercake.features.power.feature import FEATURE as POWER
from layercake.features.releases.feature import FEATURE as RELEASES
from layercake.features.remote.feature import FEATURE as REMOTE
from layercake.features.rolls.feature import FEATURE as ROLLS
from layercake.features.slurm.feature import FEATURE as SLURM
from layercake.features.status.feature import FEATURE as STATUS
from layercake.features.thermal.feature import FEATURE as THERMAL
from layercake.features.tpm.feature import FEATURE as TPM
from layercake.features.webhooks.feature import FEATURE as WEBHOOKS
from layercake.kernel.feature import Feature

FEATURES: tuple[Feature, ...] = (
    LOGS,
    WEBHOOKS,
    ACCESS,
    CALLS,
    CONSOLES,
    GUARD,
    ROLLS,
    IMAGES,
    BOOTS,
    FILES,
    DISKS,
    MACHINES,
    TPM,
    THERMAL,
    SLURM,
    RELEASES,
    NODES,
    CAPTURES,
    REMOTE,
    EVENTS,
    POWER,
    AUTHORITY,
    INVENTORY,
    HISTORY,
    HEADS,
    STATUS,
)
"""What is stopped last stands first."""
