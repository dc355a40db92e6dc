"""What edges keep in their store (`oncewire.store`), and how it comes and goes.

The maps of subscriptions, the outbox with its publisher, and the links of clients that attach to an address.
"""
