"""Client libraries in front of gateway and simulator: what their users do, and what they see."""
