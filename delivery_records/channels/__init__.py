"""Messages between routers, and their way to the ingresses and egresses here (rules T)."""
