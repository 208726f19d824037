"""The model's tokenizer and chat template."""
