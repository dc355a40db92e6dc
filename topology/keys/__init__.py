"""What routers write to etcd: attachments, services, secrets; their keys and values."""
