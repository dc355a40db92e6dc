"""What an operator may see of the record core; nothing here decides anything."""
