"""What the model raises when the protocol breaks one of its promises."""


class Violation(Exception):
    """A promise of the protocol is broken; the message says which and how."""
