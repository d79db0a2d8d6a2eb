// Text that may hold anything, in files of XML.
#pragma once
#include <stdio.h>

// XML has no place for control characters, for what is no UTF-8 and for the noncharacters U+FFFE and U+FFFF, not even
// escaped: U+FFFD stands for each.
void xml_print(FILE *f, const char *text);
