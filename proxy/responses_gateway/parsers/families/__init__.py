"""Model families, one file each: its formats, their names, and the signs by which it is detected.

The registry reads `FAMILY` of every file here."""
