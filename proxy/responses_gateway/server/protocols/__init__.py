"""The protocols that clients speak, each as one value: what differs between them around a response."""
