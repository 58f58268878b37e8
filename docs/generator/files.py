"""What people write: config.yaml, the inventory, container.yaml.

The two tables of meanings are for keys whose readers are functions and have no place for a
description. A key without a meaning is an error.
"""

from __future__ import annotations

import dataclasses
import inspect

from docs.generator.markdown import code, page, plain, table
from docs.generator.structs import FIELDS, fields_of
from imageapi.spec import objects
from imageapi.spec.container import CONTAINER_FIELDS, ContainerSpec, Resources
from imageapi.spec.health import CHECKS, Health
from layercake.head import modules
from layercake.head.settings import Settings
from layercake.inventory.rules import GROUP, NODE
from layercake.moduleapi.network import Network
from layercake.modules import declared

KEY_MEANINGS = {
    "arch": "The processor: `x86_64` or `aarch64`.",
    "firmware": "How it boots: `bios` or `uefi`.",
    "state": "What is wanted of it: `up` or `off`.",
    "profile": "The boot profile that its boot set is built by (`layercake profile list`); without "
    "one it boots the default set.",
    "network": "The name of the network that its address is in. It follows from the address: "
    "given, it is held against it.",
    "mac": "The card it boots from; a list when it has several, the first is the one it boots "
    "from.",
    "ip": "Its IPv4 address.",
    "images": "The names of the images that it shall run.",
    "groups": "The groups it belongs to. A later group goes before an earlier one.",
}
GROUP_MEANINGS = {
    "domain": "`true`: its nodes share what they can lose together, a switch or a power supply. "
    "Many of them silent at once are an "
    "outage, and are not started anew; see [when half the rack is "
    "dark](../howto/half-the-rack-is-dark.md)."
}
CONTAINER_MEANINGS = {
    "systemd": "Whether systemd is its init. `image add` sets it unless told otherwise; `image "
    "build` sees it in the image.",
    "command": "What is run as init, as a list of words. Without it: /sbin/init with systemd, else "
    "/init.",
    "env": "Variables of its environment, NAME: text. No secrets.",
    "stop_timeout_s": "Seconds to stop in before it is killed; 0 to 3600.",
    "restart": "When it is started again after its end: on-failure, never, always.",
    "depends": "Images of the same set that must be up, and healthy, before this one is started.",
    "health": "How to see that it does its work, or `none`; see below. Without it, systemd is "
    "asked where it is the init.",
    "resources": "Limits; see below.",
    "devices": "Devices of the node that it gets: paths under /dev. A [privilege]"
    "(../explanation/security.md#containers), as are hooks, and most of mounts and capabilities.",
    "hooks": "OCI hooks: for each point in its life, a list of commands, which root of the node "
    "runs.",
    "mounts": "What else it sees; see below.",
    "workdir": "The directory that the command starts in.",
    "namespaces": "The namespaces that it has of its own.",
    "hostname": "Its host name; the node's own if it is empty.",
    "capabilities": "Linux capabilities beside the least set, such as NET_RAW; or ALL. See "
    "[what a container may do](../explanation/security.md#containers).",
    "no_new_privileges": "Whether sudo and other set-user-ID programs gain nothing. Without it: "
    "true, with systemd false.",
    "user_namespace": "Whether its root is a user of the node without rights. Needs a Linux of 6.3 "
    "or later on the node.",
    "kernel_modules": "Whether it sees the modules of the node's kernel in /lib/modules, and "
    "firmware in /lib/firmware, read-only. "
    "See [drivers in images](../howto/drivers-in-images.md).",
    "keep": "Directories that outlive it, a path or a list: they are on the disk of the node whose "
    "volume says `keeps`. See "
    "[a node's own disks](../howto/disks.md).",
    "head_api": "Whether it may speak to the head's API, state sync and images, which are the agent's "
    "alone otherwise. A [privilege](../explanation/security.md#containers).",
}


_INVENTORY = """\
```yaml
defaults: {...}      # keys for every node
groups:
  NAME: {...}        # keys for the nodes that name the group
nodes:
  NAME or RANGE: {...}
```

What a node says goes before its groups, a later group before an earlier one, groups before `defaults`. `mac`, `ip`, `groups` and
the address of a BMC stand under a node only. For a range of nodes such a key is a list, or a start with `+` that counts up.
"""


def config_page() -> str:
    """config.yaml: the head's own keys and each module's section."""
    own = [row for row in fields_of(Settings) if row[0] not in ("`sections`", "`modules`")]
    parts = [
        "`layercake init` writes the file, `layercake serve` reads it when it starts. A mistake is "
        "reported with its line.\n",
        "## The head\n",
        table(FIELDS, own),
    ]
    for module in modules.built_in():
        if module.section:
            parts += [
                f"## {module.section}\n",
                f"Module `{module.name}`. {plain(module.doc)}\n",
                table(FIELDS, fields_of(module.settings, module.section + ".")),
            ]
    parts += [
        "## modules\n",
        "The site's own modules: `modules` is a mapping of a module's name to these keys. See "
        "[write a module](../howto/write-a-module.md).\n",
        table(FIELDS, fields_of(declared.SiteModule)),
    ]
    return page("config.yaml", *parts)


def inventory_page() -> str:
    """The inventory: keys of every node, and those of the modules."""
    keys = [*NODE, "images", "groups"]
    if set(keys) != set(KEY_MEANINGS) or set(GROUP) != set(GROUP_MEANINGS):
        raise SystemExit(
            f"cannot write the inventory page: KEY_MEANINGS is not {keys}, or GROUP_MEANINGS not "
            f"{list(GROUP)}"
        )
    own = [(code(k), plain(KEY_MEANINGS[k])) for k in keys]
    parts = [
        _INVENTORY,
        "## Keys of every node\n",
        table(("Key", "Meaning"), own),
        "## Keys of a group\n",
        table(("Key", "Meaning"), [(code(k), plain(GROUP_MEANINGS[k])) for k in GROUP]),
    ]
    parts += [
        "## Keys of a network\n",
        "`networks` is a mapping of a network's name to these keys; see "
        "[several networks](../howto/several-networks.md).\n",
        table(FIELDS, fields_of(Network)),
    ]
    for module in modules.built_in():
        if module.part is not None:
            prefix, entry = (
                f"{module.part.key}." if module.part.key else "",
                module.part.struct.ENTRY,
            )
            named = entry is not None  # the keys are names that the site gives
            rows = fields_of(entry or module.part.struct, f"{prefix}NAME." if named else prefix)
            parts += [f"## Keys of the module {module.name}\n", table(FIELDS, rows)]
    return page("Inventory", *parts)


def container_page() -> str:
    """container.yaml."""
    if set(CONTAINER_FIELDS) != set(CONTAINER_MEANINGS):
        raise SystemExit(
            "cannot write the container page: CONTAINER_MEANINGS does not have the fields of a "
            "container"
        )
    defaults = {f.name: f.default for f in dataclasses.fields(ContainerSpec)}
    rows = [(code(f), _shown(defaults[f]), plain(CONTAINER_MEANINGS[f])) for f in CONTAINER_FIELDS]
    health = [(code(f.name), _shown(f.default)) for f in dataclasses.fields(Health)]
    limits = [(code(f.name), _shown(f.default)) for f in dataclasses.fields(Resources)]
    checks = [(code(kind), plain(what)) for kind, what in CHECKS.items()]
    return page(
        "container.yaml",
        "How an image is run. The file is given with `--container` to `layercake image build` and "
        "`image add`.\n",
        table(("Field", "Default", "Meaning"), rows),
        "## health\n",
        plain(inspect.getdoc(Health)) + "\n",
        table(("Kind", "Healthy is"), checks),
        table(("Field", "Default"), health),
        "## resources\n",
        plain(inspect.getdoc(Resources)) + "\n",
        table(("Field", "Default"), limits),
        "## mounts\n",
        "A list. Each entry has `target`, the path in the container, and one of these descriptions "
        "M; see\n"
        "[directories from elsewhere](../howto/mount-from-elsewhere.md).\n",
        f"```text\n{_grammar()}\n```\n",
    )


def _shown(value: object) -> str:
    """A dataclass field's default; nothing for one that is empty."""
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, tuple):
        return code(", ".join(value))
    return code(value) if isinstance(value, str | int | float) else ""


def _grammar() -> str:
    """What a mount may be, from the docstring of the module that reads it."""
    text = inspect.getdoc(objects) or ""
    return inspect.cleandoc(
        "\n".join(line for line in text.splitlines() if line.startswith("    "))
    )
