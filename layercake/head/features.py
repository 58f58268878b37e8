"""The table of features: each is named once, here."""

from __future__ import annotations

from layercake.features.disks.feature import FEATURE as DISKS
from layercake.features.files.feature import FEATURE as FILES
from layercake.features.machines.feature import FEATURE as MACHINES
from layercake.features.thermal.feature import FEATURE as THERMAL
from layercake.features.tpm.feature import FEATURE as TPM
from layercake.kernel.feature import Feature

FEATURES: tuple[Feature, ...] = (MACHINES, FILES, DISKS, TPM, THERMAL)
