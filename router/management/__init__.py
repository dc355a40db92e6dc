"""Management of a running router: one schema, and what carries it out over HTTP, AMQP and the command line."""
