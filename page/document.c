#include "page/document.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "page/page_files.h"

static void write_text(FILE *f, const char *const *line) {
  for (; *line; line++) fputs(*line, f);
}

// Writes text, escaped as the content of an HTML element.
static void write_escaped(FILE *f, const char *text) {
  for (; *text; text++) {
    if (*text == '<')
      fputs("&lt;", f);
    else if (*text == '&')
      fputs("&amp;", f);
    else
      fputc(*text, f);
  }
}

bool document_name_fits(const char *path, Err *err) {
  struct stat there;
  const char *dot = strrchr(path, '.');
  if (dot && (!strcmp(dot, ".html") || !strcmp(dot, ".htm"))) return true;
  if (!stat(path, &there) && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) return true;
  return err_set(err, "%s: the page is HTML; give a name that ends in .html", path);
}

static bool make_nonce(Document *d, Err *err) {
  unsigned char random[(sizeof d->nonce - 1) / 2];
  if (getentropy(random, sizeof random)) return err_set(err, "cannot get random numbers: getentropy failed");
  for (size_t i = 0; i < sizeof random; i++) snprintf(d->nonce + 2 * i, 3, "%02x", random[i]);
  return true;
}

// A run and build/report may write the same page at once: who comes second reads newer facts.
static bool begin_in_turn(AtomicFile *f, const char *path, Err *err) {
  enum { TRIES = 500, MICROSECONDS = 10000 };
  for (int i = 1; !file_begin(f, path, err); i++) {
    if (errno != EWOULDBLOCK || i == TRIES) return false;
    usleep(MICROSECONDS);
  }
  return true;
}

bool document_begin(Document *d, const char *path, const char *title, Err *err) {
  *d = (Document){0};
  if (!make_nonce(d, err) || !begin_in_turn(&d->out, path, err)) return false;
  d->f = d->out.f;
  fprintf(d->f,
          "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-%s'; "
          "style-src 'nonce-%s'; img-src 'self' file: data:; base-uri 'none'; form-action 'none'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          d->nonce, d->nonce);
  write_escaped(d->f, title);
  fprintf(d->f, "</title>\n<style nonce=\"%s\">\n", d->nonce);
  write_text(d->f, page_report_css);
  fputs("</style>\n</head>\n<body>\n<main id=\"page\"><noscript>This page needs JavaScript to show its data. "
        "It makes no network requests.</noscript></main>\n"
        "<script type=\"application/json\" id=\"facts\">\n",
        d->f);
  return true;
}

void document_json(Document *d, const char *json, size_t size) {
  static const char mark[] = "\xEF\xBB\xBF"; // of byte order: our reader skips it, the browser's does not
  if (size >= sizeof mark - 1 && !memcmp(json, mark, sizeof mark - 1)) {
    json += sizeof mark - 1;
    size -= sizeof mark - 1;
  }
  for (const char *end = json + size; json < end;) {
    const char *less = memchr(json, '<', (size_t)(end - json)), *to = less ? less : end;
    fwrite(json, 1, (size_t)(to - json), d->f);
    if (less) fputs("\\u003c", d->f);
    json = less ? less + 1 : end;
  }
}

void document_jsons(Document *d, const char *json) { document_json(d, json, strlen(json)); }

bool document_end(Document *d, const char *const *const *scripts, Err *err) {
  fprintf(d->f, "\n</script>\n<script nonce=\"%s\">\n\"use strict\";\n", d->nonce);
  for (; *scripts; scripts++) write_text(d->f, *scripts);
  fputs("</script>\n</body>\n</html>\n", d->f);
  return file_commit(&d->out, err);
}
