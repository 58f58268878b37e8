"""The modules of a head: their processes, and who talks to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from layercake.agents.joining import Joining
from layercake.base.clock import Clock
from layercake.base.secrets import Vault
from layercake.fleet.site_heads import SiteHeads
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kraken.converge import Event
from layercake.moduleapi.module import Site
from layercake.modules.boot_timeouts import BootTimeouts
from layercake.modules.calls import ModuleCalls
from layercake.modules.dispatch import Dispatcher
from layercake.modules.effect_runner import EffectRunner
from layercake.modules.host import ModuleHost
from layercake.modules.log_levels import LogLevels
from layercake.modules.manager import Launch, ServiceManager, WaitingProcesses
from layercake.modules.notifier import ModuleNotifier

SOCKET = "modules.sock"
LOGS = "log"


def waiting_processes(data_dir: Path) -> WaitingProcesses:
    """The processes of a head that follows."""
    return WaitingProcesses(data_dir / SOCKET, data_dir / LOGS)


class BootSetSource(Protocol):
    """Who says what machines boot."""

    def boot_set(self, record: Record) -> str:
        """The boot set that a node boots next, "" for none."""

    def boot_sets_of_strangers(self) -> Mapping[str, str]:
        """{architecture: boot set} of machines that are being discovered."""


class ModuleSide:
    """`launches` are the processes, `site` is what they are told of the head. `post`
    has the engine hear of an event."""

    def __init__(
        self,
        data_dir: Path,
        table: Table,
        launches: Mapping[str, Launch],
        site: Site,
        store: Store,
        joining: Joining,
        vault: Vault,
        heads: SiteHeads,
        clock: Clock,
        boot_sets: BootSetSource,
        post: Callable[[Record, Event], None],
    ) -> None:
        self.host = ModuleHost(data_dir / SOCKET)
        self.services = ServiceManager(self.host, data_dir / SOCKET, data_dir / LOGS, launches)
        self.log_levels = LogLevels(self.host, launches)
        self.ask = ModuleCalls(table, self.host).call
        self.notifier = ModuleNotifier(
            store,
            table,
            self.host,
            boot_sets.boot_set,
            vault,
            site,
            heads.networks,
            boot_sets.boot_sets_of_strangers,
            heads.boot_words,
        )
        self.boot_timeouts = BootTimeouts(store, post, clock)
        self.dispatcher = Dispatcher(self.host, joining, table, self.boot_timeouts)
        self.effects = EffectRunner(self.dispatcher, self.notifier, joining, self.boot_timeouts)
