"""Checking a Responses stream against its rules; depends on nothing that writes one."""
