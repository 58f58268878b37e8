"""The head's mutations as a node sees them: what others do before and after its own steps.

A node plans its whole chain: that it has to stop its images and detach when it shall be switched off follows from
power-off, which is not possible while it is in sync. The services that declare these mutations stay on the head, and
only what a running node can meet is here: a node that is off plans nothing. tests/minos compares them with the head's.
"""

from __future__ import annotations

from layercake.kraken.mutation import Mutation, declare

HEAD_MUTATIONS: tuple[Mutation, ...] = (
    declare("power-discover", changes={"power": ("UNKNOWN", "OFF")}),
    declare("power-on", changes={"power": ("OFF", "ON")}),
    declare("power-off", changes={"power": ("ON", "OFF")}, excludes={"run": "SYNC", "busy": "BUSY"}),
    declare("boot-arm", changes={"boot": ("UNKNOWN", "WAIT")}, requires={"power": "ON"}),
    declare("boot-wait", changes={"boot": ("WAIT", "INIT"), "run": ("UNKNOWN", "INIT")}, requires={"power": "ON"}),
    declare("attach", changes={"run": ("INIT", "SYNC")}, requires={"power": "ON"}),
)
