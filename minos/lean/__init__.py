"""What stands in for modules of the standard library on a node, where they take too long to
import."""
