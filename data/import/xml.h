// XML, by expat where the build found it.
#pragma once
#include <stddef.h>
#include "base/error.h"

typedef struct XmlHandlers {
  void (*begin)(void *context, const char *name, const char **attributes); // name, value, …, NULL
  void (*end)(void *context, const char *name);
  void (*text)(void *context, const char *text, int length); // a piece of it
} XmlHandlers;

extern const bool xml_is_built;
// Calls the handlers with what is read. False with FILE:LINE: and the reason where it is no XML, has a DOCTYPE, or this
// build cannot read XML.
bool xml_parse(const char *text, size_t size, const char *file, const XmlHandlers *handlers, void *context, Err *err);
const char *xml_attribute(const char **attributes, const char *name); // NULL: there is none
