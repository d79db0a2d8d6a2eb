// Whether a page of HTML is well-formed: enough of the language for pages that programs write.
#pragma once
#include <stdbool.h>

// Tags are closed in the order in which they were opened, attributes are quoted, "<" and "&" stand for tags and
// entities alone, and no id comes twice. Reports what is wrong, and where, as a failure of the test.
bool html_well_formed(const char *text);
int html_count(const char *text, const char *part); // how often it comes
