"""The files that make one node different from the next, with the secrets in them."""

from __future__ import annotations

import minos.events
from layercake.features.files.hostkeys import DOCUMENTS as HOST_KEYS
from layercake.features.files.node_files import NodeFiles
from layercake.features.files.node_routes import FileRequests
from layercake.features.files.operations import FileChanges
from layercake.features.files.routes import FileRoutes
from layercake.features.files.sources import DOCUMENTS as SOURCES
from layercake.features.files.sources import Sources
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    files = NodeFiles(
        kernel.store,
        kernel.desire,
        kernel.networks,
        kernel.vault,
        kernel.section("files"),
        Sources(kernel.data_dir / "files"),
        kernel.serves,
        kernel.touch,
    )

    def load() -> None:
        documents = kernel.database.documents
        files.load(documents(SOURCES) | documents(HOST_KEYS))

    operations = FileChanges(kernel.store, files)
    return Running(
        (files, operations),
        load=load,
        stop=files.close,
        forget=files.forget,
        routes=(FileRoutes(operations, kernel.store),),
        node_routes=FileRequests(files, kernel.running.decisions.guard_secrets).routes(),
        document=files.document,
        troubles={"files": files.troubles},
        hears={minos.events.FILES: files.apply_report},
    )


FEATURE = Feature("files", _start, routes=(FileRoutes,))
