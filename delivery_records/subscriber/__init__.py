"""From a message between routers to the subscriber's answer: what it has, holds and owes (rules E, C, SH)."""
