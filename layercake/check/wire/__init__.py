"""Checks that listen on the nodes' network, and ask there: DHCP servers, addresses that two
machines have, LLDP neighbours."""
