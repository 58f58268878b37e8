"""The bond with the head: datagrams, the TLS link, the events on their way out, and keys that are
asked for."""
