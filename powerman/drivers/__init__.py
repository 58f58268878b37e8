"""Which driver a BMC's record names (table.py), and the drivers that are neither IPMI nor
Redfish."""
