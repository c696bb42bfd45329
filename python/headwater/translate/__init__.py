"""Layers of others as layer texts: PyG's `MessagePassing`, and modules in DGL's style.

The Python of a module is read, not run: `interpret.py` (statements) and `expression.py` walk its functions over the values of
`value.py`, and `notes.py` keeps what they saw and what is not supported. `operators.py` and `known.py` say what torch's functions
mean, `message_passing.py` and `frames.py` what PyG's and DGL's do, and `emit.py` writes the text. `plan.py` runs it with a call's
arguments, and `module.py` decides what runs.
"""
