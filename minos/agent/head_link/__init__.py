"""The link with the head: datagrams, the TLS connection, events on their way out, and keys that are
asked for."""
