"""A running host: one process a home, which keeps its plugins alive and answers everybody else over a socket."""
