"""What the head itself tells: of nodes, of rolls, and of how it is."""

from __future__ import annotations

from layercake.kraken.events import EVENTS as ENGINE_EVENTS
from layercake.kraken.events import EventKind, Severity

_D = Severity.DEBUG
_I = Severity.INFO
_W = Severity.WARNING
_E = Severity.ERROR

HEAD_STARTED = EventKind("head.started", _I, "The head has started.")
HEAD_STOPPED = EventKind("head.stopped", _I, "The head is stopping; no node is touched by that.")

HEAD_LEADS = EventKind(
    "head.leads", _W, "This head leads the site now; the text says in which epoch."
)
HEAD_HANDS_OVER = EventKind("head.hands-over", _I, "This head hands the site over to another one.")
HEAD_INVITED = EventKind(
    "head.invited", _I, "A machine is invited to become a head of the site, or a witness."
)
HEAD_JOINED = EventKind("head.joined", _I, "A machine has become a head of the site, or a witness.")
HEAD_RETIRED = EventKind("head.retired", _I, "A head does not lead any more, until it is promoted.")
HEAD_REMOVED = EventKind("head.removed", _I, "A head or a witness was taken out of the site.")
HEADS_UNWELL = EventKind(
    "heads.unwell",
    _W,
    "Something is wrong with the other heads, or with the store that they share; nothing may be "
    "left to take over.",
)
HEADS_ROOM = EventKind(
    "heads.store-freed",
    _W,
    "The store of the heads was full: nothing could be changed. What is not needed any more was "
    "given back, and it has room again.",
)
HEADS_WELL = EventKind("heads.well", _I, "The heads and their store are well again.")
HEAD_SLOW = EventKind(
    "head.slow",
    _W,
    "The head is late with all that it does: it, or its machine, has too much to do.",
    page="metrics",
)
HEAD_IN_TIME = EventKind("head.in-time", _I, "The head is in time again.")

DATABASE_UNWELL = EventKind(
    "database.unwell",
    _E,
    "The database cannot be written, or takes long: what is seen is kept in memory, changes that "
    "cannot be written are refused.",
)
DATABASE_WELL = EventKind("database.well", _I, "The database is written again as it should be.")

RECORD_UNWRITTEN = EventKind(
    "database.record-unwritten", _E, "The node's record cannot be written; those of all others are."
)

LOG_LEVEL = EventKind(
    "head.log-level", _I, "Somebody has changed how much a part of the head logs."
)
HISTORY_BEHIND = EventKind(
    "history.behind",
    _W,
    "The inventory's history, a Git repository, cannot be written; changes are accepted all the "
    "same.",
    page="undo-a-change",
)
HISTORY_CAUGHT_UP = EventKind(
    "history.caught-up", _I, "All that was accepted is in the inventory's history again."
)

INVENTORY_ADDED = EventKind("inventory.added", _I, "The node is new in the inventory.")
INVENTORY_CHANGED = EventKind(
    "inventory.changed",
    _I,
    "The node's entry in the inventory has changed; the text names the fields.",
)
INVENTORY_RENAMED = EventKind("inventory.renamed", _I, "The node has another name from now on.")
INVENTORY_REMOVED = EventKind("inventory.removed", _I, "A node was removed from the inventory.")
INVENTORY_NETWORKS = EventKind(
    "inventory.networks",
    _I,
    "Networks were added to the inventory, changed or removed; the text names them.",
)
DESIRED_STATE = EventKind("desired.state", _I, "A person wants the node up or off.")
POWER_CYCLE = EventKind("power.cycle", _I, "A person asked for a power cycle.")
POWER_SET_UP = EventKind(
    "power.set-up", _I, "The node's BMC was set up from inside, as the inventory says."
)
POWER_PASSWORD = EventKind(
    "power.password-changed", _I, "The node's BMC has a new password, and was seen to take it."
)
POWER_CAPPED = EventKind(
    "power.capped", _I, "A person had the node's BMC cap what it draws, or cap it no more."
)
POWER_CYCLED = EventKind(
    "power.cycled", _I, "The node was seen off, as a power cycle asks for, and is started again."
)
POWER_ORDER_FAILED = EventKind(
    "power.order-failed", _E, "What a person ordered of the node's power has failed."
)

NODE_FOUND = EventKind(
    "node.found-running", _W, "The machine runs something that is not ours; it is left alone."
)
NODE_TAKEN = EventKind(
    "node.taken", _I, "A machine that was found running is ours from now on, and is started anew."
)
REMEDY = EventKind(
    "remedy.begun", _W, "A silent node is started anew; the text says what witnesses said of it."
)
REMEDY_HELD = EventKind("remedy.held", _W, "A silent node is not started anew; the text says why.")
REMEDY_RELEASED = EventKind(
    "remedy.released", _I, "A person said that a silent node may be started anew."
)
OUTAGE_CALLED = EventKind(
    "outage.called", _E, "Many nodes fell silent together: no power action until they are back."
)
OUTAGE_OVER = EventKind("outage.over", _W, "An outage is over, or a person has ended it.")
FROZEN = EventKind(
    "guard.frozen",
    _W,
    "A person froze the node, or with no node the site: it is observed, and nothing is done.",
)
THAWED = EventKind("guard.thawed", _I, "A person ended a freeze.")
MAINTENANCE_BEGUN = EventKind("maintenance.begun", _I, "A maintenance of the node has begun.")
MAINTENANCE_ENDED = EventKind("maintenance.ended", _I, "A maintenance of the node has ended.")

STATE_CHANGED = EventKind(
    "state.changed", _D, "The discovered state of the node has changed.", private=True
)
MUTATION_STARTED = EventKind("mutation.started", _I, "An attempt at a mutation begins.")
MUTATION_DONE = EventKind("mutation.done", _I, "A mutation has had its effect, which was seen.")
MUTATION_CANCELLED = EventKind(
    "mutation.cancelled", _I, "An attempt was called off; the text says why.", private=True
)

BOOT_ROLL = EventKind(
    "node.boot-set", _I, "The node is started anew with another boot set: kernel and minOS."
)
BOOT_ROLL_BACK = EventKind(
    "node.boot-set-back", _W, "A roll takes the node back to the boot set from before."
)
AGENT_ROLL = EventKind(
    "node.agent-set", _I, "The node's agent is replaced in place; its images go on."
)
BOOT_SLOW = EventKind(
    "node.boot-slow",
    _W,
    "A boot of the node takes more than twice as long as usual; it is still waited for.",
)
BOOT_DEFAULT = EventKind(
    "node.boot-default", _I, "A person chose what nodes boot that no roll took elsewhere."
)
BOOT_SET_REFUSED = EventKind(
    "boot-set.refused",
    _E,
    "A boot set is not what was signed when it was built: no node is given it.",
    security=True,
)
BOOT_SET_WELL = EventKind(
    "boot-set.well", _I, "A boot set that was refused is what was signed again."
)

NODE_JOINED = EventKind(
    "node.joined", _I, "The node's agent has joined with the token of this boot."
)
JOIN_REFUSED = EventKind(
    "join.refused",
    _W,
    "A join was refused: no boot window, a wrong token, or one that was used.",
    security=True,
)
API_REFUSED = EventKind(
    "api.refused",
    _W,
    "A request of the API was refused: its caller is not known, or may not do that.",
    security=True,
)
JOIN_DISPUTED = EventKind(
    "join.disputed",
    _E,
    "Two machines claim to be one node with the token of its boot: both are refused, "
    "and the node is quarantined until a person has looked.",
    security=True,
)
SESSION_STALE = EventKind(
    "session.stale",
    _W,
    "Something still speaks with a session that has ended: a BMC that did not do what "
    "it said, or somebody who has taken the session.",
    security=True,
)
REPEATED = EventKind(
    "security.repeated",
    _W,
    "Events of security, of too many nodes to be counted for each.",
    security=True,
)
NODE_REVOKED = EventKind(
    "node.revoked",
    _W,
    "A person ended a node's session, with its keys and certificates.",
    security=True,
)
AUTHORITY_ROTATING = EventKind(
    "authority.rotating", _W, "A person has begun to replace the head's authority.", security=True
)
AUTHORITY_ROTATED = EventKind(
    "authority.rotated",
    _W,
    "The head's authority was replaced; the old one is trusted no more.",
    security=True,
)
ROTATION_DUE = EventKind(
    "rotation.due",
    _W,
    "The authority or passwords of BMCs are older than the settings want; told once a day.",
    security=True,
)
NODE_EVENT = EventKind(
    "node.event", _I, "A node told something of a kind that this head does not know.", private=True
)
NODE_FLOODS = EventKind(
    "node.floods",
    _W,
    "A node told more than a history can hold; the text says how much was left out.",
    security=True,
)
NODE_EXEC = EventKind("node.exec", _I, "A person runs a command on the node.", private=True)
NODE_EXEC_ENDED = EventKind(
    "node.exec-ended",
    _I,
    "A command that a person ran has ended; never what it said.",
    private=True,
)
NODE_COPY = EventKind("node.copy", _I, "A person copies a file to nodes.", private=True)
NODE_COPIED = EventKind(
    "node.copied", _I, "How the copy of a file to the node has ended.", private=True
)
NODE_CONSOLE = EventKind(
    "node.console", _I, "A person opens the node's console to write to it.", private=True
)
NODE_CONSOLE_LEFT = EventKind(
    "node.console-left", _I, "A person leaves the node's console.", private=True
)
NODE_CLEAR_FAILED = EventKind(
    "node.clear-failed", _W, "The node could not be told to forget its failures."
)
SYNC_ATTACHED = EventKind("sync.attached", _I, "The node's agent speaks.")
SYNC_LOST = EventKind("sync.lost", _W, "The node fell silent, or did not answer when it was asked.")
SECRET_REFUSED = EventKind(
    "secret.refused", _W, "A node asked for a secret that none of its images needs.", security=True
)
SECRET_EXPOSED = EventKind(
    "secret.exposed", _W, "Others on the head may read the file of a secret."
)
SECRET_UNREADABLE = EventKind(
    "secret.unreadable", _E, "A secret that the inventory refers to cannot be read on the head."
)

FILES_CHANGED = EventKind(
    "files.changed",
    _I,
    "Files that nodes have beside their images are others; the text names the sources.",
)
DISK_GIVEN = EventKind(
    "disk.given-free",
    _W,
    "A person has given a disk of a node free: it is made anew, whatever it holds.",
)
FILES_FAILED = EventKind(
    "files.failed",
    _W,
    "Files of the node could not be made; the text says which, line and cause. It keeps those that "
    "it has.",
)

SERVICE_RUNNING = EventKind("service.running", _I, "A module's process is well.")
SERVICE_UNWELL = EventKind("service.unwell", _E, "A module's process says what is wrong with it.")
SERVICE_DETACHED = EventKind(
    "service.detached", _W, "A module's process went away; it is started again."
)
SERVICE_REFUSED = EventKind(
    "service.refused",
    _W,
    "A module's process said something that was not its to say, or that made no sense; it was left "
    "out.",
)
SERVICE_FLOODS = EventKind(
    "service.floods",
    _W,
    "A module told more than a history can hold; the text says how much was left out.",
)

WEBHOOK_FAILED = EventKind(
    "webhook.failed",
    _W,
    "A webhook, or a mail server, does not take events: they wait, and it is tried again.",
)
WEBHOOK_REFUSED = EventKind(
    "webhook.refused",
    _E,
    "A webhook, or a mail server, refuses events for good: those are not sent again.",
)
WEBHOOK_WELL = EventKind(
    "webhook.well", _I, "It takes events again; the text says what was left out."
)

LOGS_FAILED = EventKind(
    "logs.failed",
    _W,
    "A collector of logs takes nothing: the lines wait, and it is tried again.",
    page="logs",
)
LOGS_WELL = EventKind(
    "logs.well", _I, "A collector of logs takes lines again; the text says how many were left out."
)

IMAGE_ADDED = EventKind("image.added", _I, "An image was put into the store.")
IMAGE_REMOVED = EventKind("image.removed", _I, "An image's name was taken out of the store.")
IMAGE_PRUNED = EventKind("image.pruned", _I, "Contents that nothing needs were deleted.")
IMAGE_ROLL = EventKind("image.roll", _I, "Another image set is wanted of the node now.")
IMAGE_ROLL_BACK = EventKind(
    "image.roll-back", _W, "The image set from before is wanted of the node again."
)
IMAGES_READY = EventKind("images.ready", _I, "The image store works.")
IMAGE_KEYS = EventKind(
    "image.keys", _I, "Nodes have other keys for the image store, or old ones were taken away."
)
IMAGES_UNWELL = EventKind(
    "images.unwell", _E, "The image store does not work; what nodes run needs no store."
)

ROLL_SCHEDULED = EventKind("roll.scheduled", _I, "A roll is to begin at a later time.")
ROLL_STARTED = EventKind("roll.started", _I, "A roll begins.")
ROLL_ROLLING = EventKind(
    "roll.rolling", _I, "The new content is on every node; they begin to switch."
)
ROLL_BATCH = EventKind("roll.batch", _I, "The next batch of a roll is chosen.")
ROLL_STAGE = EventKind("roll.stage", _I, "A stage of a roll is through its gate.")
ROLL_PAUSED = EventKind(
    "roll.paused", _I, "A roll is paused: by a person, or because a node failed.", private=True
)
ROLL_RESUMED = EventKind("roll.resumed", _I, "A paused roll goes on.")
ROLL_ROLLING_BACK = EventKind("roll.rolling-back", _E, "A batch failed and is taken back.")
ROLL_DONE = EventKind("roll.done", _I, "A roll is done.")
ROLL_FAILED = EventKind("roll.failed", _E, "A roll has failed.")
ROLL_ABORTED = EventKind("roll.aborted", _I, "A roll was ended by a person.")
ROLL_SKIPPED = EventKind("roll.skipped", _W, "A roll passes the node over; the text says why.")
ROLL_NODE_FAILED = EventKind("roll.node-failed", _E, "The node failed in a roll.")

SLURM_DRAINED = EventKind("slurm.drained", _I, "The node was drained in Slurm for its roll.")
SLURM_RESUMED = EventKind("slurm.resumed", _I, "The node was resumed in Slurm after its roll.")
SLURM_UNWELL = EventKind("slurm.unwell", _E, "Slurm cannot be asked; rolls wait for it.")
SLURM_WELL = EventKind("slurm.well", _I, "Slurm answers again.")

EVENTS: tuple[EventKind, ...] = (
    *ENGINE_EVENTS,
    HEAD_STARTED,
    HEAD_STOPPED,
    HEAD_LEADS,
    HEAD_HANDS_OVER,
    HEADS_UNWELL,
    HEADS_ROOM,
    HEADS_WELL,
    HEAD_INVITED,
    HEAD_JOINED,
    HEAD_RETIRED,
    HEAD_REMOVED,
    HEAD_SLOW,
    HEAD_IN_TIME,
    LOG_LEVEL,
    HISTORY_BEHIND,
    HISTORY_CAUGHT_UP,
    INVENTORY_ADDED,
    INVENTORY_CHANGED,
    INVENTORY_RENAMED,
    INVENTORY_REMOVED,
    INVENTORY_NETWORKS,
    DESIRED_STATE,
    POWER_CYCLE,
    POWER_CYCLED,
    POWER_SET_UP,
    POWER_PASSWORD,
    POWER_CAPPED,
    POWER_ORDER_FAILED,
    NODE_FOUND,
    NODE_TAKEN,
    REMEDY,
    REMEDY_HELD,
    REMEDY_RELEASED,
    OUTAGE_CALLED,
    OUTAGE_OVER,
    BOOT_ROLL,
    BOOT_ROLL_BACK,
    AGENT_ROLL,
    BOOT_SLOW,
    BOOT_DEFAULT,
    BOOT_SET_REFUSED,
    BOOT_SET_WELL,
    FROZEN,
    THAWED,
    MAINTENANCE_BEGUN,
    MAINTENANCE_ENDED,
    STATE_CHANGED,
    MUTATION_STARTED,
    MUTATION_DONE,
    MUTATION_CANCELLED,
    NODE_JOINED,
    JOIN_REFUSED,
    API_REFUSED,
    JOIN_DISPUTED,
    SESSION_STALE,
    REPEATED,
    NODE_REVOKED,
    AUTHORITY_ROTATING,
    AUTHORITY_ROTATED,
    ROTATION_DUE,
    NODE_EVENT,
    NODE_FLOODS,
    NODE_EXEC,
    NODE_EXEC_ENDED,
    NODE_COPY,
    NODE_COPIED,
    NODE_CONSOLE,
    NODE_CONSOLE_LEFT,
    NODE_CLEAR_FAILED,
    SYNC_ATTACHED,
    SYNC_LOST,
    SECRET_REFUSED,
    SECRET_EXPOSED,
    SECRET_UNREADABLE,
    WEBHOOK_FAILED,
    WEBHOOK_REFUSED,
    WEBHOOK_WELL,
    LOGS_FAILED,
    LOGS_WELL,
    SERVICE_RUNNING,
    IMAGE_KEYS,
    SERVICE_UNWELL,
    SERVICE_DETACHED,
    SERVICE_REFUSED,
    SERVICE_FLOODS,
    IMAGE_ADDED,
    IMAGE_REMOVED,
    IMAGE_PRUNED,
    IMAGE_ROLL,
    IMAGE_ROLL_BACK,
    IMAGES_READY,
    IMAGES_UNWELL,
    ROLL_SCHEDULED,
    ROLL_STARTED,
    ROLL_ROLLING,
    ROLL_BATCH,
    ROLL_STAGE,
    ROLL_PAUSED,
    ROLL_RESUMED,
    ROLL_ROLLING_BACK,
    ROLL_DONE,
    ROLL_FAILED,
    ROLL_ABORTED,
    ROLL_SKIPPED,
    ROLL_NODE_FAILED,
    SLURM_DRAINED,
    SLURM_RESUMED,
    SLURM_UNWELL,
    SLURM_WELL,
    DATABASE_UNWELL,
    DATABASE_WELL,
    RECORD_UNWRITTEN,
    FILES_CHANGED,
    FILES_FAILED,
    DISK_GIVEN,
)
