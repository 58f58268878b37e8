"""The nodes' own disks on the head: what nodes say of them, the words of persons, and the keys."""
