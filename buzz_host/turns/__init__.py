"""From what holds now to the text of a turn: guards, snapshot, base prompt, composition."""
