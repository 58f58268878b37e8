"""The node's own API on the network: TLS with the certificate that the head gave at the join, open to the head alone.

Both sides are sure of each other: the certificate is signed by the head's authority and names this node and session, and
the head's credential is made with the session's key. An earlier boot's certificate or credential is worth nothing.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from imageapi.node.imageset.imageset import ImageSet
from layercake.base.files import write_atomic
from layercake.kraken.errors import LayercakeError, OperationFailed, WireError
from layercake.kraken.wire import TO_NODE, check_bearer
from layercake.node.api import Api
from minos.agent.bond.outbox import EventSink
from minos.agent.http.server import Server
from minos.agent.state import Config, Session
from minos.events import NODE_API, NODE_API_FAILED


def tls_context(run: Path, certificate: str, key: str) -> ssl.SSLContext:
    """A server's context. Raises OperationFailed.

    The ssl module reads certificate and key from a file only: it is there for a moment, in memory, for root alone.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    file = run / ".api.pem"
    write_atomic(file, key + certificate)
    try:
        context.load_cert_chain(file)
    except ssl.SSLError as error:
        raise OperationFailed(f"cannot serve the node's API: its certificate is unusable: {error.reason}") from None
    finally:
        file.unlink()
    return context


class Serving:
    """Serves a session. `start` takes a moment: it runs on a thread of its own."""

    def __init__(self, config: Config, images: ImageSet, event: EventSink, port: int) -> None:
        self._config = config
        self._images = images
        self._event = event
        self._port = port
        self._server: Server | None = None

    def start(self, session: Session) -> None:
        """Serves under a session. What goes wrong is told; the node does its work without."""
        try:
            if session.tls is None:
                return
            node, config = self._config.node_bytes, self._config

            def allowed(header: str) -> bool:
                try:
                    return check_bearer(header, session.key, TO_NODE) == (node, session.number)
                except WireError:
                    return False

            api = Api(self._images, lambda: {"node": config.node, "name": config.name, "boot_id": config.boot_id,
                                             "image": self._images.state()})
            self._server = Server(tls_context(config.run, *session.tls), allowed, api.handle, self._port)
            self.tell()
        except (LayercakeError, OSError) as error:
            self._event(NODE_API_FAILED, f"the node's API is not served: {error}")

    def tell(self) -> None:
        """Tells the head where the API listens."""
        if self._server is not None:
            self._event(NODE_API, f"the node's API listens on port {self._server.port}", port=self._server.port)
