"""DNS of the head: the names of nodes, their BMCs, aliases and services, and the rest of the world
by other servers.

pxe/packets/dns.py is the codec, zone.py the table of names, records.py which a node has, names.py
all of the site's, decision.py what is answered, limit.py how often, cache.py and forwarder.py what
others know, server.py and stream.py the sockets.
"""
