"""How images are named, and their contents."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?")
"""An image or container: digits, dots and dashes anywhere, and one tag after a colon: "web",
"app2.0-rc1:2026.11".

Names come from people and from the network, and become file names, mount points and cgroup names:
nothing is named by what does not match this."""

DIGEST = re.compile(r"blake2b:[0-9a-f]{64}")
"""A content: the blake2b-256 of its squashfs."""
