#include "test/harness/html.h"
#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/basics.h"
#include "test/harness/test.h"

enum { DEEPEST = 64, NAME = 16, MOST_IDS = 512 };

typedef struct Html {
  const char *begin, *at;
  char open[DEEPEST][NAME];
  int depth;
  const char *id[MOST_IDS]; // each ends with a quote
  int ids;
} Html;

static bool wrong(const Html *h, const char *what) {
  printf("    %s at byte %ld: %.60s\n", what, (long)(h->at - h->begin), h->at);
  return test_true(false, "well-formed HTML", __FILE__, __LINE__);
}

static bool is_void(const char *name) {
  static const char *const all[] = {"meta", "img", "br", "hr", "link", "input"};
  for (int i = 0; i < COUNT(all); i++)
    if (!strcmp(name, all[i])) return true;
  return false;
}

static bool read_name(Html *h, char *name) {
  int n = 0;
  while ((isalnum((unsigned char)*h->at) || *h->at == '-') && n < NAME - 1) name[n++] = *h->at++;
  name[n] = '\0';
  return n > 0;
}

static bool add_id(Html *h, const char *id) {
  const size_t n = strcspn(id, "\"") + 1;
  for (int i = 0; i < h->ids; i++)
    if (!strncmp(h->id[i], id, n)) return wrong(h, "an id that is there already");
  if (h->ids < MOST_IDS) h->id[h->ids++] = id;
  return true;
}

static bool read_entity(Html *h) {
  const size_t n = strspn(h->at + 1, "#abcdefghijklmnopqrstuvwxyz0123456789");
  if (!n || h->at[1 + n] != ';') return wrong(h, "a & that begins no entity");
  h->at += n + 2;
  return true;
}

static bool read_attribute(Html *h) {
  const char *name = h->at;
  while (isalnum((unsigned char)*h->at) || *h->at == '-') h->at++;
  if (h->at == name) return wrong(h, "no attribute");
  if (*h->at != '=') return true;
  if (h->at[1] != '"') return wrong(h, "an attribute without quotes");
  h->at += 2;
  if (!strncmp(name, "id=", 3) && !add_id(h, h->at)) return false;
  while (*h->at && *h->at != '"') {
    if (*h->at == '<') return wrong(h, "a < in an attribute");
    if (*h->at != '&')
      h->at++;
    else if (!read_entity(h))
      return false;
  }
  if (!*h->at) return wrong(h, "no end of an attribute");
  h->at++;
  return true;
}

static bool close_tag(Html *h, const char *name) {
  if (!h->depth || strcmp(h->open[h->depth - 1], name)) return wrong(h, "an end of what is not open");
  h->depth--;
  return true;
}

static bool read_tag(Html *h) {
  char name[NAME];
  const bool ends = h->at[1] == '/';
  h->at += 1 + ends;
  if (!read_name(h, name)) return wrong(h, "a < that begins no tag");
  bool itself = is_void(name);
  while (*h->at && *h->at != '>' && *h->at != '/') {
    if (isspace((unsigned char)*h->at))
      h->at++;
    else if (!read_attribute(h))
      return false;
  }
  if (*h->at == '/') {
    itself = true;
    h->at++;
  }
  if (*h->at != '>') return wrong(h, "no end of a tag");
  h->at++;
  if (ends) return close_tag(h, name);
  if (itself) return true;
  if (h->depth == DEEPEST) return wrong(h, "too deep");
  strcpy(h->open[h->depth++], name);
  if (strcmp(name, "style")) return true;
  const char *end = strstr(h->at, "</style>"); // what it holds is no HTML
  if (!end) return wrong(h, "no end of the style");
  h->at = end;
  return true;
}

bool html_well_formed(const char *text) {
  static const char type[] = "<!DOCTYPE html>\n";
  Html h = {.begin = text, .at = text};
  if (strncmp(text, type, sizeof type - 1)) return wrong(&h, "no type");
  h.at += sizeof type - 1;
  while (*h.at) {
    if (*h.at == '<') {
      if (!read_tag(&h)) return false;
    } else if (*h.at == '&') {
      if (!read_entity(&h)) return false;
    } else {
      h.at++;
    }
  }
  return h.depth == 0 || wrong(&h, h.open[h.depth - 1]);
}

int html_count(const char *text, const char *part) {
  int n = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) n++;
  return n;
}
