#include "page/doctor_page.h"
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "base/record.h"
#include "base/text.h"
#include "page/album.h"
#include "page/augmentation.h"
#include "page/document.h"
#include "page/page_files.h"

// ---- facts ----------------------------------------------------------------------------------------------------------

// [a0,a1,…] or, with b, [[a0,b0],…]
static void record_counts(Record *r, const char *key, const int *a, const int *b, int n) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  fputc('[', f);
  for (int i = 0; i < n; i++) {
    if (i) fputc(',', f);
    b ? fprintf(f, "[%d,%d]", a[i], b[i]) : fprintf(f, "%d", a[i]);
  }
  fputc(']', f);
  text_close(f);
  record_raw(r, key, text);
  free(text);
}

static void record_tally(Record *r, const char *key, const Tally *t) {
  record_counts(r, key, t->value, t->count, t->n);
}

static void record_limits(Record *r) {
  char *text, number[NUMBER_TEXT];
  size_t size;
  FILE *f = text_open(&text, &size);
  for (int i = 0; i <= SIZE_BINS; i++)
    fprintf(f, "%s%s", i ? "," : "[", number_text(float_decimal((float)size_limit(i)), number));
  fputc(']', f);
  text_close(f);
  record_raw(r, "size_limits", text);
  free(text);
}

// If there is no such split, the name is null.
static void record_split(RecordList *l, const DiagnosisSplit *s) {
  const Histograms *h = &s->histograms;
  Record *r = &l->item;
  RecordList said = {0};
  record_begin(r);
  record_str(r, "name", s->name);
  record_str(r, "stop", s->stop);
  record_bool(r, "open", s->data != NULL);
  for (int i = 0; i < s->num_statistics; i++) {
    record_begin(&said.item);
    record_str(&said.item, "name", s->statistic[i].name);
    record_str(&said.item, "text", s->statistic[i].text);
    record_list_add(&said);
  }
  record_list_end(&said, r, "said");
  if (s->data) {
    record_int(r, "images", s->data->num_images);
    record_tally(r, "image_sizes", &h->image);
    if (h->objects) {
      record_tally(r, "per_image", &h->per_image);
      record_counts(r, "sizes", h->stored, NULL, SIZE_BINS);
      record_counts(r, "resized", h->resized, NULL, SIZE_BINS);
    }
  }
  record_list_add(l);
}

static void record_categories(Record *r, const Diagnosis *f) {
  RecordList l = {0};
  for (int i = 0; i < f->categories; i++) {
    const DiagnosisCategory *c = &f->category[i];
    record_begin(&l.item);
    record_str(&l.item, "name", c->name);
    record_int(&l.item, "id", c->id);
    record_counts(&l.item, "counts", c->count, NULL, DIAGNOSIS_SPLITS);
    record_int(&l.item, "images", c->images);
    record_num(&l.item, "size", f->classes ? NAN : float_decimal((float)c->size));
    record_list_add(&l);
  }
  record_list_end(&l, r, "categories");
}

static void record_wrong(Record *r, const Diagnosis *f) {
  RecordList l = {0};
  for (size_t i = 0; i < f->num_defects; i++) {
    const DiagnosisDefect *w = &f->defect[i];
    int details = 0;
    while (details < COUNT(w->detail) && w->detail[details]) details++;
    record_begin(&l.item);
    record_str(&l.item, "split", w->split < 0 ? NULL : f->split[w->split].name);
    record_str(&l.item, "what", w->what);
    record_int(&l.item, "count", w->count);
    record_str(&l.item, "treatment", w->treatment);
    record_strings(&l.item, "details", (const char *const *)w->detail, details);
    record_list_add(&l);
  }
  record_list_end(&l, r, "wrong");
}

static void record_diagnosis(Record *r, const Diagnosis *f) {
  RecordList splits = {0};
  record_begin(r);
  record_str(r, "page", "doctor");
  record_str(r, "data", f->data);
  record_str(r, "read_as", f->read_as);
  record_bool(r, "classes", f->classes);
  record_bool(r, "sound", f->sound);
  record_str(r, "unseen", f->unseen);
  record_str(r, "absent", f->absent);
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++) record_split(&splits, &f->split[s]);
  record_list_end(&splits, r, "splits");
  record_wrong(r, f);
  record_strings(r, "hurts", (const char *const *)f->concern, (int)f->num_concerns);
  record_str(r, "command", f->command);
  record_strings(r, "reasons", (const char *const *)f->reason, (int)f->num_reasons);
  record_limits(r);
  record_int(r, "small", SIZE_SMALL_BINS);
  record_categories(r, f);
  record_strings(r, "defect_types", f->defect_types.what, f->defect_types.n);
  record_strings(r, "treatments", f->defect_types.treatment, f->defect_types.n);
}

enum { AUGMENTED = 24 }; // images

static bool write_facts(Document *d, const Diagnosis *f, const DoctorPage *page, PictureFolder *folder, Err *err) {
  Record r = {0};
  record_diagnosis(&r, f);
  record_str(&r, "preset", page->preset);
  record_int(&r, "size", f->split[0].data ? f->split[0].data->resize.size : 0);
  document_jsons(d, r.text); // r.text is an object that is still open
  record_free(&r);
  document_jsons(d, ",\n\"images\":");
  bool ok = album_write(d, f, page->images, folder, err);
  document_jsons(d, ",\n\"augmented\":");
  if (ok && page->augment)
    ok = augmentation_write(d, f, page->augment, AUGMENTED, folder, err);
  else
    document_jsons(d, "[]");
  document_jsons(d, "}");
  return ok;
}

// ---- the page -------------------------------------------------------------------------------------------------------

static const char *const *const scripts[] = {page_dom_js, page_histogram_js, page_album_js, page_doctor_js, NULL};

bool doctor_page_write(const char *path, const Diagnosis *f, const DoctorPage *page, Err *err) {
  Document d;
  PictureFolder folder = {0}, *pictures = page->single_file ? NULL : &folder;
  struct stat at;
  if (pictures && !stat(path, &at) && !S_ISREG(at.st_mode))
    return err_set(
        err, "%s is not a regular file, so its pictures cannot be written to a folder next to it; add --single-file",
        path);
  if (pictures && !picture_folder_open(pictures, path, err)) return false;
  bool ok = document_begin(&d, path, f->data, err);
  if (ok) {
    ok = write_facts(&d, f, page, pictures, err);
    if (ok)
      ok = document_end(&d, scripts, err);
    else
      file_abort(&d.out);
  }
  if (ok && pictures) picture_folder_prune(pictures);
  picture_folder_close(&folder);
  return ok;
}
