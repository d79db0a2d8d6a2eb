// Text that may hold anything, in files of XML and of HTML.
#pragma once
#include <stdio.h>

// Between tags. Newlines and tabs stay. XML has no place for other control characters, for what is no UTF-8 and for the
// noncharacters U+FFFE and U+FFFF, not even escaped: U+FFFD stands for each. It does for a carriage return, too, of
// which a reader would make a newline.
void xml_print(FILE *f, const char *text);
// Between the quotes of an attribute. Newlines and tabs are escaped: a reader would make blanks of them.
void xml_print_attribute(FILE *f, const char *text);
