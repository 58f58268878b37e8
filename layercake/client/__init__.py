"""What all commands share: the client, the output, how a command is made, following nodes."""
