"""Who is where: membership, epochs and attachments over etcd, link state and best paths between routers."""
