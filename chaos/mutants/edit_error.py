"""What is raised when an edit does not fit the sources any more."""


class EditError(Exception):
    """The edit's old text does not stand in the sources once: the rule has changed, so the edit must follow it."""
