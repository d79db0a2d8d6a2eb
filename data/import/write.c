// Writes a set as COCO: the annotations last, so that what was interrupted is not taken for whole.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/record.h"
#include "data/images/png.h"
#include "data/import/import.h"
#include "data/import/masks.h"
#include "data/import/samples_file.h"

bool import_may_write(const char *dir, Err *err) {
  DIR *d = opendir(dir);
  if (!d && errno == ENOENT) return true;
  if (!d) return err_set(err, "--to %s: %s", dir, strerror(errno));
  bool empty = true;
  for (struct dirent *entry; empty && (entry = readdir(d));)
    empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
  closedir(d);
  return empty ||
         err_set(err, "--to %s: the folder is not empty; nothing is overwritten: name another, or remove it", dir);
}

// ---- pictures -------------------------------------------------------------------------------------------------------

void import_name_pictures(ImportSet *s, bool stems) {
  TextTable seen = {0}, taken = {0};
  int *times = xcalloc((size_t)s->n + 1, sizeof *times), *of = xcalloc((size_t)s->n + 1, sizeof *of);
  for (int i = 0; i < s->n; i++) {
    char *key = xasprintf("%s/%s", s->images[i].split, path_name(s->images[i].name));
    times[of[i] = text_table_add(&seen, key)]++;
    free(key);
  }
  for (int i = 0; i < s->n; i++) {
    ImportImage *im = &s->images[i];
    const char *name = times[of[i]] > 1 ? im->name : path_name(im->name), *point = strrchr(path_name(name), '.');
    const int stem = (int)(point ? point - name : (ptrdiff_t)strlen(name));
    for (int k = 1;; k++) {
      free(im->picture);
      im->picture = k == 1 ? xstrdup(name) : xasprintf("%.*s-%d%s", stem, name, k, name + stem);
      const size_t ending = stems ? strlen(name + stem) : 0;
      char *key = xasprintf("%s/%.*s", im->split, (int)(strlen(im->picture) - ending), im->picture);
      const int before = taken.n;
      const bool is_new = text_table_add(&taken, key) == before;
      free(key);
      if (is_new) break;
    }
  }
  text_table_free(&seen);
  text_table_free(&taken);
  free(times);
  free(of);
}

static bool write_bytes(const char *path, const uint8_t *bytes, size_t size, Err *err) {
  AtomicFile f;
  if (!file_begin(&f, path, err)) return false;
  fwrite(bytes, 1, size, f.f);
  return file_commit(&f, err);
}

// A TIFF as a PNG of the same depth; its palette is looked up, and alpha of grey left out.
static bool write_png(const char *path, const Samples *s, Err *err) {
  const size_t pixels = (size_t)s->h * (size_t)s->w;
  const int channels = s->indexed ? 3 : s->channels == 2 ? 1 : s->channels, bytes = s->bits > 8 ? 2 : 1;
  uint8_t *out = xmalloc(pixels * (size_t)channels * (size_t)bytes), *to = out;
  for (size_t i = 0; i < pixels; i++)
    for (int k = 0; k < channels; k++) {
      const uint32_t v = s->v[i * (size_t)s->channels + (s->indexed ? 0 : (size_t)k)];
      if (bytes == 2) *to++ = (uint8_t)(v >> 8);
      *to++ = (uint8_t)(s->indexed ? s->palette[v & 255][k] : s->bits == 1 ? v * 255 : v);
    }
  const PngPixels png = {s->h, s->w, channels, bytes, out};
  const bool ok = png_write_pixels(path, &png, PNG_FAST, NULL, err);
  free(out);
  return ok;
}

// A TIFF whose pixels cannot be read leaves the set.
static bool write_tiff(ImportSet *s, ImportImage *im, const char *to, Err *err) {
  const TreeFile *f = &s->tree->file[im->file];
  Samples samples;
  Err why;
  bool ok = samples_load(&samples, f->full, &why);
  if (ok && samples.bits > 16) {
    ok = err_set(&why, "%s: its samples have 32 bits, and those of a PNG up to 16: convert it", f->path);
    samples_free(&samples);
  }
  if (!ok) {
    import_broken(s, "%s", why.msg);
    im->split = NULL;
    return true;
  }
  ok = write_png(to, &samples, err);
  samples_free(&samples);
  return ok;
}

bool import_write_picture(ImportSet *s, ImportImage *im, const char *to, Err *err) {
  char *folder = path_folder(to);
  bool ok = dirs_make(folder, err);
  free(folder);
  if (!ok || im->bytes) return ok && write_bytes(to, im->bytes, im->size, err);
  if (im->tiff) return write_tiff(s, im, to, err);
  char *real = realpath(s->tree->file[im->file].full, NULL); // a data set's links are followed, whoever made them
  ok = real ? file_link(real, to, err) : err_set(err, "%s: %s", s->tree->file[im->file].full, strerror(errno));
  free(real);
  return ok;
}

// ---- annotations ----------------------------------------------------------------------------------------------------

static void write_number(FILE *f, double value, const char *before) {
  char text[NUMBER_TEXT];
  fprintf(f, "%s%s", before, number_text(value, text));
}

static void write_segmentation(FILE *f, const ImportObject *o) {
  const double *xy = o->xy;
  if (o->mask.runs) {
    char *counts = rle_to_string(&o->mask);
    fprintf(f, "{\"size\":[%d,%d],\"counts\":\"", o->mask.h, o->mask.w);
    for (const char *c = counts; *c; c++) fprintf(f, *c == '\\' ? "\\%c" : "%c", *c);
    fputs("\"}", f);
    free(counts);
    return;
  }
  fputc('[', f);
  for (int p = 0; p < o->parts; p++) {
    fputs(p ? ",[" : "[", f);
    for (int i = 0; i < 2 * o->points[p]; i++) write_number(f, *xy++, i ? "," : "");
    fputc(']', f);
  }
  fputc(']', f);
}

static void write_object(FILE *f, const ImportObject *o, int id, int image) {
  fprintf(f, "%s\n{\"id\":%d,\"image_id\":%d,\"category_id\":%d,\"iscrowd\":0,\"area\":%llu,\"bbox\":[",
          id > 1 ? "," : "", id, image, o->category + 1, (unsigned long long)o->area);
  for (int i = 0; i < 4; i++) write_number(f, o->bbox[i], i ? "," : "");
  fputs("],\"segmentation\":", f);
  write_segmentation(f, o);
  fputc('}', f);
}

static void write_split(FILE *f, const ImportSet *s, const char *split) {
  Record r = {0};
  int id = 0, image = 0;
  fputs(IMPORT_MARK ",\n\"categories\":[", f);
  for (int k = 0; k < s->categories.n; k++) {
    record_begin(&r);
    record_int(&r, "id", k + 1);
    record_str(&r, "name", s->categories.text[k]);
    fprintf(f, "%s\n%s", k ? "," : "", record_end(&r));
  }
  fputs("],\n\"images\":[", f);
  for (int i = 0; i < s->n; i++) {
    const ImportImage *im = &s->images[i];
    if (im->split != split) continue;
    record_begin(&r);
    record_int(&r, "id", ++image);
    record_str(&r, "file_name", im->picture);
    record_int(&r, "width", im->w);
    record_int(&r, "height", im->h);
    fprintf(f, "%s\n%s", image > 1 ? "," : "", record_end(&r));
  }
  fputs("],\n\"annotations\":[", f);
  image = 0;
  for (int i = 0; i < s->n; i++) {
    if (s->images[i].split != split) continue;
    image++;
    for (int k = 0; k < s->images[i].n; k++) write_object(f, &s->images[i].objects[k], ++id, image);
  }
  fputs("]}\n", f);
  record_free(&r);
}

bool import_write(ImportSet *s, const char *dir, Err *err) {
  bool ok = import_may_write(dir, err);
  import_name_pictures(s, false);
  for (int i = 0; ok && i < s->n; i++) {
    char *to = xasprintf("%s/%s/%s", dir, s->images[i].split, s->images[i].picture);
    ok = import_write_picture(s, &s->images[i], to, err);
    free(to);
  }
  for (int k = 0; ok && k < s->splits.n; k++) {
    int images = 0;
    for (int i = 0; i < s->n; i++) images += s->images[i].split == s->splits.text[k];
    if (images == 0) continue;
    char *path = xasprintf("%s/annotations/instances_%s.json", dir, s->splits.text[k]), *folder = path_folder(path);
    AtomicFile f;
    ok = dirs_make(folder, err) && file_begin(&f, path, err);
    if (ok) write_split(f.f, s, s->splits.text[k]);
    ok = ok && file_commit(&f, err);
    free(path);
    free(folder);
  }
  return ok;
}
