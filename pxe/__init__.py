"""The boot service: DHCP, TFTP, iPXE scripts and HTTP. A node is given a boot program only while
the engine wants it booted.

The files in boot order: dhcp/ (packet, relay, decision, frame, server), subnet; tftp_packet,
tftp_transfer, tftp_server; script, http_server; ra (IPv6 beside it all). What they share: settings,
nodes, windows, notes. What the head sees: mutations, service.
"""
