"""Ready-made models for regard: index.toml names them, each directory is one; nothing here is code."""
