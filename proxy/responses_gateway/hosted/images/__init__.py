"""Images that a server of images makes for the tool `image_generation`."""
