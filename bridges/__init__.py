"""Edges to other worlds: Node, Spark, work queues, MQTT."""
