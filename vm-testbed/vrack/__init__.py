"""A virtual rack: QEMU machines that stay off until their own virtual BMC, spoken to by IPMI or
Redfish, powers them on.

Nothing is imported here: what runs before anything is installed uses the parts that need the
standard library only.
"""
