"""Publishers and subscribers that resume their links at any router."""
