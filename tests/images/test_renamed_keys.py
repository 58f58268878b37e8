"""A node's key of the cluster goes with the node when it is renamed, and nobody else gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from imageapi.store.nodekeys import NodeKeys


class Jobs:
    """Makes keys as the cluster does, and notes which clients it was told to take away."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def run(self, op: str, what: str, **more: Any) -> dict[str, Any]:
        if op == "drop_keys":
            self.dropped += more["users"]
        return {"keys": {user: f"key of {user}" for user in more["users"]}}


def test_a_renamed_node_keeps_its_client_and_the_next_of_its_old_name_gets_another(
    tmp_path: Path,
) -> None:
    jobs = Jobs()
    keys = NodeKeys(tmp_path / "node-keys.json", "images", jobs)
    keys.make(["n0", "n1"])
    first = keys.of("n0")
    assert first is not None
    keys.rename([("n0", "gpu0"), ("unknown", "other")])
    assert keys.of("gpu0") == first and keys.of("n0") is None
    keys.make(["n0"])
    again = NodeKeys(tmp_path / "node-keys.json", "images", jobs)
    second = again.of("n0")
    assert second is not None and second[0] != first[0]
    assert again.drop_old(["n0", "n1", "gpu0"], ["n0", "n1", "gpu0"]) == []
    assert again.drop_old([], ["n0", "n1"]) == [first[0]] == jobs.dropped


def test_a_new_key_after_the_old_name_is_used_again_is_nobody_elses(tmp_path: Path) -> None:
    keys = NodeKeys(tmp_path / "node-keys.json", "images", Jobs())
    keys.make(["n0"])
    keys.rename([("n0", "gpu0")])
    keys.make(["n0"])
    keys.make(["n0", "gpu0"], anew=True)
    keys.rename([("n0", "x"), ("x", "y")])
    keys.make(["n0"])
    users = [found[0] for name in ("n0", "gpu0", "y") if (found := keys.of(name)) is not None]
    assert len(set(users)) == 3
