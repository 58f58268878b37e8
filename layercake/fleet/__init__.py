"""What the head knows: the records and their history, the database, and the engine that moves
them."""
