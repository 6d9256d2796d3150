"""Agents as files: a person describes an agent in Markdown, and the host finds it, judges it and hands it out.

`files` reads one file, `catalogue` all of them by scope, `handle` is how plugins and harnesses see an agent.
"""
