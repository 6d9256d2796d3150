"""Sessions: one actor task owns an agent's program; everybody else posts commands and reads events."""
