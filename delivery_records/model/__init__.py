"""Data that all rooms share: tags, outcomes, limits, the view, inputs, effects, messages. No behaviour of a link."""
