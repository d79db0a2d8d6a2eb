// Reads lines of bounded length.
#pragma once
#include <stdio.h>
#include <sys/types.h>

// As getline, except that a line of 64 MB or more is an error, EFBIG: a terabyte without the end of a line is no reason
// to fill memory.
ssize_t line_read(char **line, size_t *cap, FILE *f);
