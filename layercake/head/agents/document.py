"""What a node is told when it asks for its desired state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from imageapi.store.content import Attachment
from imageapi.store.tickets import Tickets
from layercake.fleet.store import Record, WantedImage

Address = Callable[[str, str], str]
"""(digest, id of a node) -> where this node may fetch this content; `boot/SET` is that with the
kernel's modules of a boot set."""


def addresses(serves: Callable[[str], str], port: int, tickets: Tickets) -> Address:
    """Addresses at the image service, whose address for a node `serves` gives, each with a
    ticket."""

    def address(digest: str, node: str) -> str:
        content = digest.removeprefix("blake2b:")
        return f"http://{serves(node)}:{port}/images/{content}?{tickets.issue(content, node)}"

    return address


def no_attachment(digest: str, node: str) -> Attachment | None:
    """How nodes attach a content when all of them are fetched."""
    return None


def no_modules() -> Mapping[str, Any] | None:
    """Of a node that has booted no set with modules."""
    return None


def desired(
    record: Record,
    address: Address,
    requests: Mapping[int, dict[str, Any]],
    attachment: Callable[[str, str], Attachment | None] = no_attachment,
    agent: Mapping[str, Any] | None = None,
    trust: Mapping[str, Any] | None = None,
    signature: Callable[[str], str] = lambda digest: "",
    modules: Callable[[], Mapping[str, Any] | None] = no_modules,
) -> dict[str, Any]:
    """The document D of the wire reference: everything that a node needs to know to act. `modules`
    is asked for images that want the modules of the node's kernel."""
    return {
        "revision": record.cfg_revision,
        "goal": record.goal_values,
        **{
            part: [
                _image(
                    i,
                    address(i.digest, record.node.id),
                    attachment(i.digest, record.name),
                    signature(i.digest),
                    modules() if i.container.get("kernel_modules") else None,
                )
                for i in images
            ]
            for part, images in (("images", record.wanted), ("stage", record.stage))
        },
        "requests": [{"id": number, **request} for number, request in requests.items()],
        **({} if agent is None else {"agent": agent}),
        **({} if trust is None else {"trust": trust}),
    }


def _image(
    image: WantedImage,
    url: str,
    attachment: Attachment | None,
    signature: str,
    modules: Mapping[str, Any] | None,
) -> dict[str, Any]:
    document = {
        "name": image.name,
        "digest": image.digest,
        "size": image.size,
        "container": image.container,
        "url": url,
    }
    if attachment is not None:
        document |= {"attach": attachment.attach, "verity": attachment.verity}
    if signature:
        document["signature"] = signature
    if modules is not None:
        document["modules"] = modules
    return document
