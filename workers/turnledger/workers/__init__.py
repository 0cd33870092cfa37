"""What runs beside the engines: workers that commit turns, the clock, the command line."""
