"""The client side of a router: connections of AMQP clients and their links."""
