"""DHCP for IPv4: what a packet is, whom a relay speaks for, what is decided, and the sockets."""
