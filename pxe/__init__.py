"""The boot service: DHCP, TFTP, iPXE scripts and HTTP. A node is given a boot program only while
the engine wants it booted.

packets/ has the codecs. The files in boot order: dhcp/ (relay, decision, frame, server), subnet;
tftp_transfer, tftp_server; paths/, http_server; ipv6/ (IPv6 beside it all). What they share:
settings, nodes, windows, notes. What the head sees: mutations, service.
"""
