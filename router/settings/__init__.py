"""Every setting of the router, and the rules that operators write in settings."""
