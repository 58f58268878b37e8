"""The head's log, and on request what containers and consoles say, to the site's own collectors."""
