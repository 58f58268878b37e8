"""What of a container's description reaches the node itself is refused, unless config.yaml allows it
for the image, and is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from smallimages import build_plain_image

from imageapi.settings import ImageSettings, privileges
from imageapi.spec.container import ContainerSpec, parse_container
from imageapi.spec.privileges import CAPABILITIES, PRIVILEGES, WITHIN
from layercake.kraken.errors import Refused
from layercake.moduleapi.fields import Mistake
from tests.support.api import served, token
from tests.support.world import opened

HOOKS = {"poststart": [["/bin/true"]]}
OWN = {"user_namespace": True}
ROOT_OF_NODE = {"kind": "bind", "source": "/", "target": "/node"}
REACHING: list[tuple[str, dict[str, Any]]] = [
    ("hooks", {"hooks": HOOKS}),
    ("hooks", {"hooks": HOOKS, **OWN}),
    ("devices", {"devices": ["/dev/sda"]}),
    ("devices", {"devices": ["/dev/sda"], **OWN}),
    ("mounts", {"mounts": [ROOT_OF_NODE]}),
    ("mounts", {"mounts": [ROOT_OF_NODE], **OWN}),
    ("mounts", {"mounts": [{"kind": "uri", "uri": "file:///etc", "target": "/x"}]}),
    ("mounts", {"mounts": [{"kind": "uri", "uri": "file:///x.img", "target": "/x"}]}),
    ("mounts", {"mounts": [{"id": "m1", "target": "/x"}]}),
    (
        "mounts",
        {
            "mounts": [
                {"kind": "overlay", "lower": [{"kind": "tmpfs"}, {"id": "m1"}], "target": "/x"}
            ]
        },
    ),
    (
        "mounts",
        {"mounts": [{"kind": "attach", "attach": {"kind": "local", "disk": "S1"}, "target": "/x"}]},
    ),
    ("capabilities", {"capabilities": ["SYS_ADMIN"]}),
    ("capabilities", {"capabilities": ["ALL"]}),
    ("capabilities", {"capabilities": ["SYS_NICE", "NET_RAW"]}),
    ("namespaces", {"namespaces": ["mount"]}),
    ("head_api", {"head_api": True}),
]
HARMLESS: list[dict[str, Any]] = [
    {},
    {"systemd": True, "capabilities": ["SYS_ADMIN"], **OWN},
    {"capabilities": ["SYS_NICE", "SYS_RESOURCE", "IPC_LOCK"], "keep": ["/srv"]},
    {"mounts": [{"kind": "nfs", "source": "10.0.0.5:/home", "target": "/home"}]},
    {"mounts": [{"kind": "tmpfs", "target": "/x"}]},
    {"mounts": [{"kind": "uri", "uri": "nbd://h/x", "target": "/x"}]},
    {
        "mounts": [
            {"kind": "bind", "source": "/run/layercake/busy.d", "target": "/run/layercake/busy.d"}
        ]
    },
]


@pytest.mark.parametrize(("name", "asked"), REACHING)
def test_what_reaches_the_node_needs_a_word_in_config_yaml(
    name: str, asked: dict[str, Any]
) -> None:
    container = parse_container(asked)
    assert container.privileges == (name,)
    insufficient: list[dict[str, list[str]]] = [
        {},
        {"other": [name]},
        {"web:1": [name]},
        {"web": []},
    ]
    for allowed in insufficient:
        with pytest.raises(Refused, match=f"cannot add image web:2: its `{name}`") as refused:
            ImageSettings(privileges=allowed).check_privileges("web:2", container)
        assert f"{{web: [{name}]}}" in (refused.value.hint or "")
    for key in ("web:2", "web", "*"):
        ImageSettings(privileges={key: [name]}).check_privileges("web:2", container)


@pytest.mark.parametrize("asked", HARMLESS)
def test_what_stays_in_the_container_needs_none(asked: dict[str, Any]) -> None:
    ImageSettings().check_privileges("web", parse_container(asked))


def test_a_capability_is_a_privilege_unless_it_is_known_to_stay_inside() -> None:
    within = [n for n in CAPABILITIES if not ContainerSpec(capabilities=(n,)).privileges]
    assert sorted(within) == sorted(WITHIN)


@pytest.mark.parametrize(
    "value", [[], {"we b": []}, {1: []}, {"web": "hooks"}, {"web": ["hook"]}, {"web": [1]}]
)
def test_a_mistake_in_config_yaml_is_told(value: object) -> None:
    with pytest.raises(Mistake):
        privileges(value)


async def test_the_head_refuses_and_shows_them(tmp_path: Path) -> None:
    image = str(build_plain_image(tmp_path / "x.squashfs", "x"))
    asked = {"path": image, "systemd": False, "hooks": HOOKS, "devices": ["/dev/null"]}
    settings = {"images": {"privileges": {"trusted": ["hooks", "devices"]}}}
    async with opened(tmp_path, sections=settings) as world:
        headers = await token(world.head, "ann", "admin")
        async with served(world.head, local=False) as api:

            async def add(name: str) -> tuple[int, dict[str, Any]]:
                body = {**asked, "name": name}
                async with api.post("/v1/images", json=body, headers=headers) as answer:
                    return answer.status, await answer.json()

            status, said = await add("tenant:1")
            assert (
                status == 403 and "its `hooks`, `devices` would give it programs" in said["error"]
            )
            assert not (tmp_path / "images/index.json").exists(), "nothing was taken in"
            status, said = await add("trusted:1")
            assert status == 200 and said["image"]["privileges"] == ["hooks", "devices"]
            async with api.get("/v1/images", headers=headers) as answer:
                (shown,) = (await answer.json())["images"]
                assert shown["privileges"] == ["hooks", "devices"]
    assert set(PRIVILEGES) >= set(shown["privileges"])
