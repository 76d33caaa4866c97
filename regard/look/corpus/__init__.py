"""Measurements over many texts: token identifiability, surveys, clusters, matches and word senses."""
