#include "data/import/xml.h"
#include <string.h>

const char *xml_attribute(const char **attributes, const char *name) {
  for (; *attributes; attributes += 2)
    if (!strcmp(*attributes, name)) return attributes[1];
  return NULL;
}

#ifdef MASKRCNN_EXPAT // the build found it
#include <expat.h>
#include <limits.h>

const bool xml_is_built = true;

typedef struct Parsing {
  const XmlHandlers *handlers;
  void *context;
  XML_Parser parser;
} Parsing;

static void begin(void *of, const char *name, const char **attributes) {
  const Parsing *p = of;
  p->handlers->begin(p->context, name, attributes);
}

static void end(void *of, const char *name) {
  const Parsing *p = of;
  p->handlers->end(p->context, name);
}

static void text_piece(void *of, const char *text, int length) {
  const Parsing *p = of;
  p->handlers->text(p->context, text, length);
}

// Its entities could make a small file large, and no annotations have any.
static void refuse_doctype(void *of, const char *name, const char *system, const char *public, int internal) {
  const Parsing *p = of;
  (void)name;
  (void)system;
  (void)public;
  (void)internal;
  XML_StopParser(p->parser, XML_FALSE);
}

bool xml_parse(const char *text, size_t size, const char *file, const XmlHandlers *handlers, void *context, Err *err) {
  // text_read has made it UTF-8, whatever its declaration says, unless it is UTF-16.
  XML_Parser parser = XML_ParserCreate(memchr(text, '\0', size) ? NULL : "UTF-8");
  if (!parser) return err_set(err, "%s: out of memory", file);
  Parsing p = {handlers, context, parser};
  XML_SetUserData(parser, &p);
  XML_SetElementHandler(parser, begin, end);
  XML_SetCharacterDataHandler(parser, text_piece);
  XML_SetStartDoctypeDeclHandler(parser, refuse_doctype);
  bool ok = true;
  for (size_t at = 0; ok && at <= size;) {
    const size_t piece = size - at < INT_MAX / 2 ? size - at : INT_MAX / 2;
    ok = XML_Parse(parser, text + at, (int)piece, at + piece == size) == XML_STATUS_OK;
    if (at + piece == size) break;
    at += piece;
  }
  if (!ok) {
    const enum XML_Error reason = XML_GetErrorCode(parser);
    err_set(err, "%s:%lu: %s", file, (unsigned long)XML_GetCurrentLineNumber(parser),
            reason == XML_ERROR_ABORTED ? "a DOCTYPE, which annotations do not have" : XML_ErrorString(reason));
  }
  XML_ParserFree(parser);
  return ok;
}

#else

const bool xml_is_built = false;

bool xml_parse(const char *text, size_t size, const char *file, const XmlHandlers *handlers, void *context, Err *err) {
  (void)text;
  (void)size;
  (void)handlers;
  (void)context;
  return err_set(err, "%s: this build cannot read XML; install expat (Debian's libexpat1-dev) and build again", file);
}

#endif
