"""Filters of subscriptions (AMQP 1.0 section 3.5.8): which are understood, what they say of a message (rule E-9).

`filter_set` reads what a client's source asks for, `selector` and `evaluation` are the selector language of Jakarta
Messaging 3.8.1, `property_filters` those of AMQP Filter Expressions. Everything here is a function of its arguments.
"""
