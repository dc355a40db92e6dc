"""AMQP that more than one kind of connection uses: errors, addresses, and what sessions are offered."""
