"""What people are shown, one file per noun: JSON-ready, made from the records. Nothing here changes
anything."""
