"""Boot by IPv6, where the setting `ra_prefix` names a network for it: router advertisements, and
DHCPv6 for firmware.

minOS and iPXE go on by IPv4; what is here takes a machine whose firmware speaks IPv6 only that far.
"""
