"""The fault side: simulator, real-process experiments, and the checker of their journals."""
