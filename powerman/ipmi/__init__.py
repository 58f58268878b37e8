"""IPMI: our own RMCP+ sessions, consoles by Serial over LAN, and pyghmi for the rest."""
