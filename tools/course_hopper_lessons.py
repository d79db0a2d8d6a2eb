#!/usr/bin/env python3
"""The diagrams of docs/course/conv/, chapters 08 to 14: tensor cores by their own instructions, and Hopper."""

DIAGRAMS = {}
