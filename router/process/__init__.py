"""What every router process has, whatever it carries: logs, event loop, listeners and their gates."""
