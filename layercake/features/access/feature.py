"""Who may do what: tokens, sessions of browsers, people by the site's provider; and who did it."""

from __future__ import annotations

from layercake.features.access.audit import Audit
from layercake.features.access.audit_routes import AuditRoutes
from layercake.features.access.doors import Endings, NetworkAccess
from layercake.features.access.operations import TokenChanges
from layercake.features.access.people import People
from layercake.features.access.routes import TokenRoutes
from layercake.features.access.session_routes import SessionRoutes
from layercake.features.access.sessions import Sessions
from layercake.features.access.tokens import DOCUMENTS, FILE_NAME, Tokens
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    store = kernel.store
    endings = Endings()
    settings = kernel.section("access")
    tokens = Tokens(store.wall, endings.announce, settings.emergency_token)
    sessions = Sessions(store.wall, endings.announce)
    people = People(kernel.section("oidc"), kernel.clock, store.wall)
    audit = Audit(kernel.database, store, kernel.clock, kernel.section("audit"))
    operations = TokenChanges(store, kernel.desire, tokens, kernel.authority)

    access = NetworkAccess(
        tokens,
        sessions,
        people,
        audit,
        endings,
        kernel.settings.people_url,
        certificates=settings.client_certificates,
    )

    def load() -> None:
        tokens.load(kernel.database.documents(DOCUMENTS))
        tokens.adopt(kernel.data_dir / FILE_NAME, store.documents)

    return Running(
        (tokens, sessions, people, audit, operations),
        load=load,
        loops=(audit.keep_writing,),
        stop=audit.write,
        routes=(
            TokenRoutes(operations, tokens, store),
            AuditRoutes(audit),
            SessionRoutes(sessions, access),
        ),
        access=access,
    )


FEATURE = Feature("access", _start, routes=(TokenRoutes, AuditRoutes, SessionRoutes))
