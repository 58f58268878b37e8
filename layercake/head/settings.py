"""The head's settings: one YAML file in the data directory, written by `layercake init`, checked
when the head starts.

Each module has a section of its own, read by the module's own struct; `modules` names the site's
own modules and holds theirs.
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from layercake.agents.settings import SyncSettings
from layercake.api.delegation import Delegated
from layercake.base.files import write_atomic
from layercake.base.text import describe
from layercake.features.access.people import OidcSettings
from layercake.features.access.settings import AccessSettings, AuditSettings
from layercake.features.authority.settings import CertificateSettings, RotationSettings
from layercake.features.guard.settings import GuardSettings
from layercake.features.logs.settings import LogSettings
from layercake.features.remote.settings import FanOutSettings
from layercake.features.webhooks.settings import MailSettings, WebhookSettings
from layercake.head import modules
from layercake.head.addresses import reached_at
from layercake.heads.floating.settings import mistakes as floating_mistakes
from layercake.heads.settings import HeadsSettings
from layercake.inventory import structs
from layercake.inventory.problems import InventoryErrors, Problems
from layercake.inventory.yaml_marks import Listing, Table
from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import NEWER, Check, Mistake, https_url, text
from layercake.moduleapi.module import Module, Site
from layercake.moduleapi.network import HeadAddress, addresses, fits, is_host
from layercake.modules.declared import SiteModule

FILE_NAME = "config.yaml"
DATABASE = "layercake.db"
USUAL = Path("/var/lib/layercake")
ETC = Path("/etc/layercake")
"""The usual data directory. Its settings are in ETC, where an administrator looks for them, and
FILE_NAME is a link to them."""


def ipv4(value: object) -> str:
    """An IPv4 address of this machine's network."""
    word = text(value)
    try:
        return str(ipaddress.IPv4Address(word))
    except ValueError:
        raise Mistake(f"{word!r} is not an IPv4 address") from None


def ipv4_or_none(value: object) -> str | None:
    """An IPv4 address, or null."""
    return None if value is None else ipv4(value)


def ipv4_list(value: object) -> list[str]:
    """IPv4 addresses, perhaps none."""
    if not isinstance(value, list):
        raise Mistake(
            f"expected a list of IPv4 addresses, found {describe(value)}", "such as [10.0.0.1]"
        )
    return [ipv4(word) for word in value]


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Slurm whose nodes are ours, by the same names."""

    conf: Annotated[str, Meta(description="Its slurm.conf on this machine; empty for none.")] = ""
    drain: Annotated[
        bool,
        Meta(description="Whether rolls drain a node before its switch and resume it afterwards."),
    ] = True
    poll_s: Annotated[
        float, Meta(gt=0, description="Seconds between two looks at Slurm while there is a roll.")
    ] = 2.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the head. `sections` are the modules' structs (or plain mappings, before they
    were read), by section."""

    interface: Annotated[
        str, Meta(min_length=1, description="The network interface that the nodes are on.")
    ]
    address: Annotated[str, Check(ipv4), Meta(description="The head's address there.")]
    prefix: Annotated[
        int, Meta(ge=8, le=30, description="The length of that network's prefix.")
    ] = 24
    gateway: Annotated[
        str | None, Check(ipv4_or_none), Meta(description="The nodes' default gateway, or null.")
    ] = None
    dns: Annotated[list[str], Check(ipv4_list), Meta(description="The nodes' DNS servers.")] = []
    api_port: Annotated[
        int, Meta(ge=0, le=65535, description="TCP port of the API, for people and nodes.")
    ] = 8443
    api_listen: Annotated[
        str | None, Meta(description="The address that the API listens on; `address` if not given.")
    ] = None
    dashboard_url: Annotated[
        str,
        Check(https_url),
        Meta(
            description="The URL that people open the dashboard by, such as "
            "https://head.example.org:8443; its host is in the head's "
            "certificate. https://ADDRESS:API_PORT if empty."
        ),
    ] = ""
    more_networks: Annotated[
        dict[str, HeadAddress],
        Meta(description="More networks of nodes that the head is in, by a name for people."),
    ] = {}
    floating_addresses: Annotated[
        tuple[str, ...],
        Check(addresses),
        Meta(
            description="Addresses that the head has which leads, beside its own: at most one in "
            "each network that the heads are in."
        ),
    ] = ()
    socket: Annotated[
        str, Meta(description="The Unix socket for this machine's administrator.")
    ] = "/run/layercake/api.sock"
    socket_group: Annotated[
        str,
        Meta(description="A group of this machine whose members may use it too; empty for none."),
    ] = ""
    socket_role: Annotated[
        Literal["viewer", "operator"], Meta(description="The role that they have.")
    ] = "viewer"
    audit: Annotated[AuditSettings, Meta(description="The audit log: who changed what.")] = (
        AuditSettings()
    )
    access: Annotated[AccessSettings, Meta(description="Who is let in over the network.")] = (
        AccessSettings()
    )
    certificates: Annotated[
        CertificateSettings, Meta(description="The certificates that the head makes.")
    ] = CertificateSettings()
    rotation: Annotated[
        RotationSettings, Meta(description="When the head asks for what is to be replaced.")
    ] = RotationSettings()
    oidc: Annotated[OidcSettings, Meta(description="People by OpenID Connect.")] = OidcSettings()
    delegated: Annotated[
        dict[str, Delegated],
        Meta(
            description="What those who are bound to a group may name in the entries of its "
            "nodes, by group."
        ),
    ] = {}
    secrets: Annotated[
        str,
        Meta(
            description="The directory that the inventory's secrets are in; `secrets` in the data "
            "directory if empty."
        ),
    ] = ""
    sync: Annotated[SyncSettings, Meta(description="State sync with the nodes.")] = SyncSettings()
    slurm: Annotated[SlurmSettings, Meta(description="A Slurm cluster on the same nodes.")] = (
        SlurmSettings()
    )
    guard: Annotated[
        GuardSettings, Meta(description="What keeps the head from harming the site.")
    ] = GuardSettings()
    more_drivers: Annotated[
        bool,
        Meta(
            description="Whether nodes get drivers that their boot profile does not have, for "
            "devices that would have none."
        ),
    ] = True
    log_events: Annotated[
        Literal["debug", "info", "warning", "error", "none"],
        Meta(
            description="Events that are at least so grave are in the head's log too; in systemd's "
            "journal with the fields "
            "LAYERCAKE_NODE, LAYERCAKE_KIND, LAYERCAKE_EVENT."
        ),
    ] = "warning"
    webhooks: Annotated[
        dict[str, WebhookSettings],
        Meta(description="Who is told of events by HTTP, by a name for people."),
    ] = {}
    mail: Annotated[
        dict[str, MailSettings], Meta(description="Who is told by mail, by a name for people.")
    ] = {}
    logs: Annotated[
        dict[str, LogSettings],
        Meta(
            description="Who gets the head's log, and those of containers and consoles, by a name "
            "for people."
        ),
    ] = {}
    fan_out: Annotated[
        FanOutSettings, Meta(description="Commands, logs and copies of many nodes at once.")
    ] = FanOutSettings()
    heads: Annotated[HeadsSettings, Meta(description="Several heads of one site.")] = (
        HeadsSettings()
    )
    modules: Annotated[
        dict[str, SiteModule], Meta(description="The site's own modules, by name.")
    ] = {}
    simulated: Annotated[
        bool,
        Meta(
            description="Of `layercake sim`: all nodes are simulated, and what they cannot do is "
            "refused."
        ),
    ] = False
    sections: dict[str, Any] = {}

    @property
    def head_url(self) -> str:
        """Where nodes reach the head."""
        return f"https://{self.address}:{self.api_port}"

    @property
    def people_url(self) -> str:
        """Where people reach the head."""
        return self.dashboard_url or self.head_url

    @property
    def certificate_names(self) -> list[str]:
        """The addresses and names that the head's certificate is for."""
        host = urlsplit(self.dashboard_url).hostname
        return [*self.addresses, *self.floating_addresses, *([host] if host else [])]

    @property
    def network(self) -> str:
        """The subnet that the head is in."""
        return str(ipaddress.IPv4Network(f"{self.address}/{self.prefix}", strict=False))

    @property
    def own_networks(self) -> list[HeadAddress]:
        """All the networks that the head is in, the first one first."""
        return [
            HeadAddress(interface=self.interface, address=self.address, prefix=self.prefix),
            *self.more_networks.values(),
        ]

    @property
    def floating(self) -> list[HeadAddress]:
        """The addresses of the head that leads, each in a network that the head is in."""
        return [
            msgspec.structs.replace(own, address=address)
            for own in self.own_networks
            for address in self.floating_addresses
            if is_host(address, own.network)
        ]

    @property
    def addresses(self) -> list[str]:
        """The head's addresses, the first one first."""
        return [own.address for own in self.own_networks]

    @property
    def listens(self) -> list[str]:
        """The addresses that a head listens on for people and nodes."""
        return [self.api_listen] if self.api_listen else self.addresses

    @property
    def listens_too(self) -> list[str]:
        """Those that the head which leads listens on besides; it may not have them yet."""
        return [] if self.api_listen else list(self.floating_addresses)

    @property
    def agent_addresses(self) -> list[str]:
        """All addresses at which nodes can reach the API, as far as the machine has them now."""
        return list(dict.fromkeys([*self.addresses, *reached_at(self.api_listen or self.address)]))

    @property
    def agent_ports(self) -> list[int]:
        """The ports of the API and of state sync."""
        return [self.api_port, self.sync.port]

    @property
    def beside_nodes(self) -> list[str]:
        """The head's addresses with the length of their prefixes, those that float as such of one
        address; none for a head on loopback, which is in no network of nodes."""
        floating = [str(ipaddress.ip_interface(address)) for address in self.floating_addresses]
        return (
            []
            if ipaddress.IPv4Address(self.address).is_loopback
            else [*(str(own) for own in self.own_networks), *floating]
        )

    def site(self, data_dir: Path) -> Site:
        """What every module's process is told of the head."""
        return Site(
            interface=self.interface,
            address=self.address,
            prefix=self.prefix,
            gateway=self.gateway,
            dns=self.dns,
            head_url=self.head_url,
            sync_address=f"{self.address}:{self.sync.port}",
            data_dir=str(data_dir),
            more=list(self.more_networks.values()),
            floating=self.floating,
        )

    def secrets_in(self, data_dir: Path) -> Path:
        """The directory that secrets are read from, and nothing else is."""
        return Path(self.secrets) if self.secrets else data_dir.absolute() / "secrets"

    def of(self, module: Module) -> Any:
        """A module's settings."""
        found = self.sections.get(module.section)
        return module.settings() if found is None else msgspec.convert(found, module.settings)


def _sections(root: Table, problems: Problems) -> dict[str, Any]:
    """The sections of the built-in modules."""
    found = {}
    for module in modules.built_in():
        entry = root.entries.get(module.section)
        if not module.section or entry is None:
            continue
        made = structs.read(entry.value, module.settings, problems, module.section)
        if made is not None and module.check is not None:
            try:
                module.check(made)
            except Mistake as mistake:
                problems.add(entry.value.mark, mistake.message, mistake.hint)
        found[module.section] = made
    return found


def load(data_dir: Path) -> Settings:
    """Reads the settings. Raises InventoryErrors with every mistake and its line, or InputError."""
    path = data_dir / FILE_NAME
    root, problems = structs.read_file(path, "settings", "run `layercake init` first")
    names = {m.section for m in modules.built_in() if m.section}
    own = structs.read(root, Settings, problems, beside=names)
    sections = _sections(root, problems)
    if own is not None and not own.sync.hello_s < own.sync.dead_s:
        mark = root.entries["sync"].value.mark if "sync" in root.entries else root.mark
        problems.add(mark, "sync.dead_s must be above sync.hello_s", "three times hello_s is usual")
    if own is not None:
        _apart(root, own, problems)
        _check_floating(root, own, problems)
    if (
        own is not None
        and own.secrets
        and (not Path(own.secrets).is_absolute() or data_dir.resolve().is_relative_to(own.secrets))
    ):
        problems.add(
            root.entries["secrets"].value.mark,
            "secrets must be the absolute path of a directory of its own",
            "the data directory holds the head's own keys",
        )
    problems.raise_if_any()
    if own is None:
        raise InputError(f"cannot read {path}: it cannot be used")
    return msgspec.structs.replace(own, sections=sections)


def checked(document: Mapping[str, Any]) -> Settings:
    """Settings out of what would be written. Raises InputError with every mistake."""
    with tempfile.TemporaryDirectory(prefix="layercake-settings-") as scratch:
        (Path(scratch) / FILE_NAME).write_bytes(msgspec.yaml.encode(document))
        try:
            return load(Path(scratch))
        except InventoryErrors as error:
            raise InputError(
                f"cannot make the settings: {'; '.join(p.message for p in error.problems)}",
                hint=next((p.hint for p in error.problems if p.hint), ""),
            ) from None


def _apart(root: Table, settings: Settings, problems: Problems) -> None:
    """The networks that the head is in do not overlap."""
    entries = root.entries["more_networks"].value if "more_networks" in root.entries else None
    for number, (name, more) in enumerate(settings.more_networks.items(), 1):
        mark = entries.entries[name].key_mark if isinstance(entries, Table) else root.mark
        if (more.prefix > 32 and ":" not in more.address) or not fits(more.network):
            problems.add(
                mark,
                f"more_networks.{name}: {more} is no network of nodes",
                "8 to 30 bits with IPv4, 64 with IPv6",
            )
            return
        for other in settings.own_networks[:number]:
            if other.network.version == more.network.version and other.network.overlaps(
                more.network
            ):
                problems.add(
                    mark,
                    f"more_networks.{name}: {more.network} overlaps with {other.network}, where "
                    "the head is too",
                )


def _check_floating(root: Table, settings: Settings, problems: Problems) -> None:
    """The head that leads can have the addresses that float."""
    floating = () if problems.found else settings.floating_addresses
    entry = root.entries.get("floating_addresses")
    listed = entry.value.items if entry and isinstance(entry.value, Listing) else []
    own = settings.own_networks
    for number, message, hint in floating_mistakes(floating, own, [settings.gateway]):
        problems.add(listed[number].mark, message, hint)


_NEWER = (
    "more_networks",
    "socket_group",
    "socket_role",
    "audit",
    "access",
    "certificates",
    "rotation",
    "oidc",
    "delegated",
    "secrets",
    "more_drivers",
    "webhooks",
    "mail",
    "log_events",
    "logs",
    "fan_out",
    "heads",
    "dashboard_url",
    "simulated",
    "floating_addresses",
)
"""Settings that a head of version 0.1 does not know: written only where they are not as usual, so
that a site can go back."""


def _plain(section: msgspec.Struct) -> dict[str, Any]:
    """A module's section as it is written: without what is newer than version 0.1 and as usual."""
    usual = msgspec.structs.asdict(type(section)())
    found = msgspec.structs.asdict(section)
    hints = get_type_hints(type(section), include_extras=True)
    newer = {
        name
        for name, hint in hints.items()
        for meta in get_args(hint)[1:]
        if isinstance(meta, Meta) and meta.extra == NEWER
    }
    return {
        name: value for name, value in found.items() if name not in newer or value != usual[name]
    }


def place(data_dir: Path) -> Path:
    """The file that the settings of a data directory are to be written to. A data directory whose
    settings are in it keeps them; the usual one gets its link. Raises OSError."""
    path = data_dir / FILE_NAME
    if data_dir == USUAL and not path.is_file():
        ETC.mkdir(mode=0o755, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(ETC / FILE_NAME)
    return path.resolve()


def present(data_dir: Path) -> bool:
    """Whether a data directory has settings. Those in ETC are the usual one's, also before it is
    made. Raises OSError."""
    if data_dir == USUAL and (ETC / FILE_NAME).is_file():
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        place(data_dir)
    return (data_dir / FILE_NAME).is_file()


def save(data_dir: Path, settings: Settings) -> None:
    """Writes the settings, for the owner only. Raises OSError."""
    write_atomic(place(data_dir), encode(settings))


def encode(settings: Settings) -> bytes:
    """The file of the settings."""
    comment = b"# Settings of the Layercake head; `layercake serve` reads them when it starts.\n"
    return comment + msgspec.yaml.encode(document(settings))


def document(settings: Settings) -> dict[str, Any]:
    """What is written of the settings."""
    plain = msgspec.to_builtins(Settings(interface=settings.interface, address=settings.address))
    own = {
        k: v
        for k, v in msgspec.to_builtins(settings).items()
        if k != "sections" and (k not in _NEWER or v != plain[k])
    }
    own["guard"] = _plain(settings.guard)
    sections = {m.section: _plain(settings.of(m)) for m in modules.built_in() if m.section}
    return {
        **own,
        **{name: msgspec.to_builtins(section) for name, section in sections.items() if section},
    }
