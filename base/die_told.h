// For a process that ends otherwise than by die (base/error.h), because other threads may hold what that needs.
#pragma once
#include <stdbool.h>

// Asks the function of die_tells, as die does, of a line that has room for DIE_LINE. True: another process says it.
bool die_told(int *code, char *line);
