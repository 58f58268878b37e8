"""A virtual rack: QEMU machines that stay off until their own virtual BMC, spoken to by IPMI or Redfish, powers them on."""

from vrack.rack import Rack, RackError
from vrack.spec import BmcKind, Firmware, NicRom, VmSpec, standard_nodes

__all__ = ["BmcKind", "Firmware", "NicRom", "Rack", "RackError", "VmSpec", "standard_nodes"]
