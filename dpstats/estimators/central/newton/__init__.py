"""The default linear and generalised models: noisy Newton steps in whitened coordinates."""
