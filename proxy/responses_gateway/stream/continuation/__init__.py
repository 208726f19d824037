"""An answer that broke off is continued by another backend."""
