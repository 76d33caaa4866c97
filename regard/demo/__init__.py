"""The corpus of `regard demo`."""
