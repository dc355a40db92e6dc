"""A simulation of routed links and of work queues over AMQP: the routers' and the bridge's own code, seeded faults."""
