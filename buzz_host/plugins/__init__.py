"""Plugins: found, loaded, started and stopped, and what they contribute.

The order of the rooms in here: a source is found (`discovery`), wanted or not (`enablement`), kept as wanted
(`lifecycle`), and what it registers stands in one registry (`contributions`).
"""
