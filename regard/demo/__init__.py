"""The material of `regard demo`."""
