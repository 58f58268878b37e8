"""What nodes ask of the image store: the secrets that their images need."""

from __future__ import annotations

import base64
from collections.abc import Callable

from aiohttp import web

from imageapi.spec.objects import secrets_of
from imageapi.store.store import ImageStore
from layercake.agents.https.routes import NO_STORE, NodeRoute
from layercake.base.secrets import OF_IMAGES, SecretRef, Vault
from layercake.features.images.document import ImagesDocument
from layercake.fleet import events
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import InputError, OperationFailed, Refused


class ImageSecretRequests:
    """Hands a node the secrets that its own images need, and no others. `guard_secrets` raises
    Refused for a node that is to have none now."""

    def __init__(
        self,
        store: Store,
        images: ImageStore,
        vault: Vault,
        document: ImagesDocument,
        guard_secrets: Callable[[Record, str], None],
    ) -> None:
        self._store = store
        self._images = images
        self._vault = vault
        self._document = document
        self._guard_secrets = guard_secrets

    def routes(self) -> list[NodeRoute]:
        """The routes."""
        return [NodeRoute("GET", "/node/v1/secrets/{name}", self._secret)]

    async def _secret(self, record: Record, request: web.Request) -> web.Response:
        """A key of the store's cluster, or of what the node's containers mount."""
        name = request.match_info["name"]
        self._guard_secrets(record, f"secret {name}")
        document = self._document.of(record)
        images = (*document["images"], *document["stage"])
        if any(name in secrets_of(i["container"]) for i in images):
            return web.json_response({"key": self._of_mount(record, name)}, headers=NO_STORE)
        if not any(i.get("attach", {}).get("secret") == name for i in images):
            self._store.event(
                record,
                events.SECRET_REFUSED,
                "asked for a secret that none of its images needs",
                data={"secret": name[:80]},
            )
            raise Refused("cannot hand out the secret: no image of this node needs it")
        key = self._images.secret(name, record.name)
        return web.json_response({"key": key}, headers=NO_STORE)

    def _of_mount(self, record: Record, name: str) -> str:
        """A secret in the directory of those that nodes get, base64."""
        try:
            secret = self._vault.open(SecretRef(file=f"{OF_IMAGES}/{name}")).reveal()
        except InputError as error:
            self._store.event(record, events.SECRET_UNREADABLE, str(error))
            raise OperationFailed(
                f"cannot hand out secret {name}: the head cannot read it"
            ) from None
        return base64.b64encode(secret.encode()).decode()
