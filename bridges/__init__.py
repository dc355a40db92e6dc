"""Edges to other worlds: Spark, and the bridge node that receives and publishes for it."""
