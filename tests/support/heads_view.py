"""Heads and their store as a view of them has them, for tests of what is shown."""

from __future__ import annotations

from layercake.heads.etcd import MemberStatus
from layercake.heads.site import HeadsShown
from layercake.heads.standby import HeadSays


def heads_view(now: float) -> HeadsShown:
    """The head `leader` leads, head2 follows and is behind by 700 entries, of three members of the
    store one is down."""
    leader = HeadSays("leader", "https://a:8443", "0.3.0", True, 900, "", now)
    follower = HeadSays("head2", "https://b:8443", "0.3.0", False, 200, "", now, behind_s=42.0)
    members = [
        MemberStatus("https://10.0.0.1:2379", version="3.4.23", leader=True, bytes_used=5_000_000),
        MemberStatus("https://10.0.0.2:2379", version="3.4.23", fsync_s=0.004),
        MemberStatus("https://10.0.0.3:2379", trouble="https://10.0.0.3:2379: it is refused"),
    ]
    heads = [leader, follower]
    return HeadsShown("leader", "leader", 3, 900, heads, members, own_store=True, lease_s=4.2)
