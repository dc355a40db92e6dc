"""The topology inspector: what the network does and why anything waits, as JSON, as changes, and as a page.

`*_core.py` are pure; `api.py` and `watching.py` serve over aiohttp. Their data comes through `source.Source`, which
the router implements; it is collected only on request.
"""
