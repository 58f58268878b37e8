"""The node's own API on the network: TLS with the certificate that the head gave at the join, open
to the head alone.

Both sides are sure of each other: the certificate is signed by the head's authority and names this
node and session, and the head's credential is made with the session's key. An earlier boot's
certificate or credential is worth nothing. A head of the site that acts no more is told so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from imageapi.node.imageset.imageset import ImageSet
from layercake.base.text import whole_number
from layercake.kraken.errors import LayercakeError, WireError
from layercake.kraken.wire import EPOCH_HEADER, MOST_EPOCHS, TO_NODE, check_bearer
from layercake.node.api import Api
from minos.agent.head_link.outbox import EventSink
from minos.agent.head_link.sync import Epochs
from minos.agent.head_link.trust import for_head, is_head, mark
from minos.agent.http.server import Handle, Reply, Request, Server
from minos.agent.state import Config, Session
from minos.events import NODE_API, NODE_API_FAILED


def fenced(handle: Handle, epochs: Epochs) -> Handle:
    """The same for requests of the head that acts; another one gets 409, and why. They are the
    head's: it has shown its credential and its certificate by then."""

    def checked(request: Request) -> Reply:
        epoch = whole_number(request.headers.get(EPOCH_HEADER.lower(), "0"), MOST_EPOCHS) or 0
        if epochs.accept(epoch):
            return handle(request)
        error = (
            f"cannot do this for a head of epoch {epoch}: this node follows that of epoch "
            f"{epochs.highest}"
        )
        hint = "another head of the site acts: ask that one"
        return Reply(
            json.dumps({"error": error, "hint": hint, "epoch": epochs.highest}).encode(), 409
        )

    return checked


class Serving:
    """Serves a session. `start` takes a moment: it runs on a thread of its own."""

    def __init__(
        self,
        config: Config,
        images: ImageSet,
        event: EventSink,
        port: int,
        bmc: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        epochs: Epochs | None = None,
    ) -> None:
        self._epochs = epochs or Epochs()
        self._config = config
        self._images = images
        self._event = event
        self._port = port
        self._bmc = bmc
        self.server: Server | None = None

    def start(self, session: Session) -> None:
        """Serves under a session. What goes wrong is told; the node does its work without."""
        try:
            if session.tls is None:
                return
            node = self._config.node_bytes
            config = self._config

            def allowed(header: str) -> bool:
                try:
                    return check_bearer(header, session.key, TO_NODE) == (node, session.number)
                except WireError:
                    return False

            api = Api(
                self._images,
                lambda: {
                    "node": config.node,
                    "name": config.name,
                    "boot_id": config.boot_id,
                    "image": self._images.state(),
                },
                self._bmc,
            )
            self.server = Server(
                for_head(config, session),
                allowed,
                fenced(api.handle, self._epochs),
                self._port,
                is_head if session.mutual else lambda certificate: True,
            )
            self.announce(session)
        except (LayercakeError, OSError) as error:
            self._event(NODE_API_FAILED, f"the node's API is not served: {error}")

    def renew(self, session: Session) -> None:
        """Goes on with another certificate, and the authorities of now."""
        if self.server is None:
            return
        try:
            self.server.context = for_head(self._config, session)
        except (LayercakeError, OSError) as error:
            self._event(
                NODE_API_FAILED, f"the node's API goes on with its old certificate: {error}"
            )
        self.announce(session)

    def announce(self, session: Session) -> None:
        """Tells the head where the API listens, which authorities the node trusts, and which
        certificate it has."""
        if self.server is not None:
            self._event(
                NODE_API,
                f"the node's API listens on port {self.server.port}",
                port=self.server.port,
                authorities=mark(self._config.authority),
                certificate=session.certificate,
            )
