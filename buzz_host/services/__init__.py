"""What a face can ask for: the command line, people's code, and later the socket and the panel all call these."""
