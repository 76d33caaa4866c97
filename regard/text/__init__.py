"""Text in and out of files, and the tokenizer between text and ids; nothing here knows torch."""
