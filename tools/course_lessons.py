#!/usr/bin/env python3
"""The diagrams of docs/course/conv/, chapters 01 to 07: up to the tensor cores through the library's fragments."""

DIAGRAMS = {}
