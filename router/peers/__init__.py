"""Links between routers: who dials, who listens, what waits to be sent."""
