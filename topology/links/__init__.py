"""Link state: which routers are linked at what cost, and the best paths between them."""
